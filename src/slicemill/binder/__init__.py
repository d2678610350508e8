"""Binder of ESL, the SQL for streams: statements become typed and checked.

`bind` is the entry point. It reads a script and returns its statements and the resulting catalog, or
raises an EslError that lists every error with its line and column.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from slicemill.sql.errors import EslError, SourceText

if TYPE_CHECKING:
    from slicemill.binder.script import BoundScript, bind_script
    from slicemill.catalog.catalog import Catalog

__all__ = ["BoundScript", "Catalog", "EslError", "SourceText", "bind", "bind_script"]

_LAZY = {
    "BoundScript": "slicemill.binder.script",
    "Catalog": "slicemill.catalog.catalog",
    "bind_script": "slicemill.binder.script",
}


def __getattr__(name: str) -> object:
    # The grammar is imported on first use, because the import takes a third of a second.
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def bind(
    text: str | SourceText, catalog: Catalog | None = None, kept: Callable[[], Catalog] | None = None
) -> BoundScript:
    """Parse and check a script, or raise EslError with all errors.

    The catalog `kept` has objects of an earlier start of the engine, which can be dropped but not read.

    >>> bound = bind("CREATE STREAM Bid(item int, price real); SELECT item FROM Bid WHERE price > 1000")
    >>> bound.catalog.queries["query_1"].schema.names
    ('item',)
    """
    from slicemill.binder.script import bind_script

    source = text if isinstance(text, SourceText) else SourceText(text)
    bound = bind_script(source, catalog, kept)
    if bound.diagnostics:
        raise EslError(source, bound.diagnostics)
    return bound
