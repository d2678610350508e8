"""slicemill: many continuous queries over streams, planned together and run on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slicemill.errors import SlicemillError
from slicemill.esl import EslError

if TYPE_CHECKING:
    from slicemill.engine.mill import Mill
    from slicemill.engine.query import Query

__version__ = "0.1.0"
__all__ = ["EslError", "Mill", "Query", "SlicemillError", "__version__"]


def __getattr__(name: str) -> object:
    # PySpark takes a second to import: only those who run queries on it should pay.
    if name == "Mill":
        from slicemill.engine.mill import Mill

        return Mill
    if name == "Query":
        from slicemill.engine.query import Query

        return Query
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
