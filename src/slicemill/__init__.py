"""slicemill: many continuous queries over streams, planned together and run on Spark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from slicemill.errors import SlicemillError

if TYPE_CHECKING:
    from slicemill.api.mill import Mill
    from slicemill.lifecycle.query import Query
    from slicemill.sql.errors import EslError
    from slicemill_client.connection import connect

__version__ = "0.1.0"
__all__ = ["EslError", "Mill", "Query", "SlicemillError", "__version__", "connect"]


_LAZY = {
    "EslError": "slicemill.binder",
    "Mill": "slicemill.api.mill",
    "Query": "slicemill.lifecycle.query",
    "connect": "slicemill_client",
}


def __getattr__(name: str) -> object:
    # PySpark takes a second to import and the ESL grammar a third of a second, so both are imported lazily.
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
