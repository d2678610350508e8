"""Support bundle: a ZIP file of statements, plans and metrics, without rows and tokens."""

from __future__ import annotations

import io
import json
import platform
import zipfile
from collections.abc import Callable
from importlib.metadata import distributions

from slicemill import __version__
from slicemill.lifecycle.catalog_journal import redact_entry
from slicemill.secrets import redact
from slicemill.server.service import MillService


def support_bundle(service: MillService) -> bytes:
    """Return the support bundle as the bytes of a ZIP file.

    A part that cannot be computed contains its error instead.
    """
    mill = service.mill
    parts: dict[str, Callable[[], str]] = {
        "about.json": lambda: _json(_about()),
        "problems.txt": lambda: "\n".join(service.problems()) or "none",
        "statements.esl": lambda: ";\n\n".join(
            entry["text"].rstrip("; \n") for entry in service.statements()
        ),
        "history.json": lambda: _json([redact_entry(entry) for entry in mill.home.statements]),
        "plan.txt": service.explain,
        "plan.json": lambda: service.explain(form="json"),
        "metrics.json": lambda: _json(mill.metrics()),
        "home.json": lambda: _json(_home(service)),
    }
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, make in parts.items():
            try:
                text = make()
            except Exception as problem:  # a broken part is often the reason for the request
                text = redact(f"{type(problem).__name__}: {problem}")
            bundle.writestr(f"slicemill/{name}", text)
    return content.getvalue()


def _about() -> dict[str, object]:
    return {
        "slicemill": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": {found.name: found.version for found in distributions()},
    }


def _home(service: MillService) -> dict[str, object]:
    home = service.mill.home
    return {
        "epoch": home.epoch,
        "logs": {
            name: {"rows": log.rows, "bytes": log.bytes, "epochs": len(log)}
            for name, log in home.logs.items()
        },
        "tasks": {name: fields.get("placement") for name, fields in home.tasks.items()},
    }


def _json(value: object) -> str:
    return json.dumps(value, indent=1, default=str)
