"""Writes the part of the server's OpenAPI description that the console uses; `make openapi` calls it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, cast

from slicemill.server.auth import Access
from slicemill.server.http.app import create_app
from slicemill.server.live_results import LiveResults
from slicemill.server.pages.stored_slices import SliceWatch
from slicemill.server.sampling import Sampler
from slicemill.server.service import MillService


def described() -> dict[str, Any]:
    """The description of an application over no mill: routes need none until they are called."""
    service = cast(MillService, type("NoService", (), {"mill": None})())
    app = create_app(
        service, LiveResults(service), Sampler(cast(Any, None)), SliceWatch(cast(Any, None)), Access()
    )
    return app.openapi()


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(described(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
