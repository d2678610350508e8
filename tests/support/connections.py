"""Connections to a mill: the mill itself, or a client of a server in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import slicemill
from slicemill.api.mill import Mill
from slicemill.server.network import ServerSockets, serving
from slicemill.server.service import MillService
from slicemill_client import SqlConnection

KINDS = ("local", "remote")


@contextmanager
def connected(kind: str, mill: Mill) -> Iterator[SqlConnection]:
    """Connect to a mill. Type checkers verify here that both kinds have the protocol."""
    if kind == "local":
        yield mill
    else:
        with serving(MillService(mill), ServerSockets()) as url, slicemill.connect(url) as connection:
            yield connection
