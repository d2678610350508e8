"""Ad hoc queries over views. A log stores the rows in the window of each view."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from slicemill.aggregates.udf.lookup import evaluate_relation
from slicemill.catalog.catalog import Catalog, Table, View
from slicemill.catalog.queries import FrameUnit, RelationQuery, SelectQuery, Window
from slicemill.columns.rows import timed_rows
from slicemill.errors import SlicemillError
from slicemill.operators.step import relation_rows, view_content
from slicemill.plan.statement_equality import relations_read
from slicemill.storage.home import Home
from slicemill.storage.log import Log
from slicemill.time import BEGINNING, END
from slicemill.types import Row


def answer(catalog: Catalog, name: str, held: Callable[[str], Sequence[Row]]) -> list[Row]:
    """Return the rows of an ad hoc query over tables and views.

    `held` returns the rows of a table or view.
    """
    known = catalog.queries.get(name.lower())
    if known is None:
        raise SlicemillError(f"there is no query {name}; create it first: CREATE QUERY {name} AS SELECT …")
    query = known.query
    if not isinstance(query, RelationQuery):
        raise SlicemillError(f"{name} is a continuous query; read its results from mill.queries[{name!r}]")
    read = [catalog.relation(one) for one in relations_read(catalog, query)]
    rows = {
        relation.name: held(relation.name)
        for relation in read
        if isinstance(relation, Table)
        or (isinstance(relation, View) and not isinstance(relation.query, RelationQuery))
    }
    return evaluate_relation(query, catalog, lambda t: relation_rows(t, catalog, rows))


def window_rows(view: View, home: Home, watermark: Callable[[str], int]) -> list[Row]:
    """Return the rows that are in a view's window at the watermark."""
    log = home.logs.get(view.name)
    if log is None:
        return []  # the log of a new view does not exist yet
    found = [row for epoch in log.epochs() for row in timed_rows(log.read(epoch), view.schema)]
    return view_content(view, found, _now(log, watermark))


def first_epochs_in_use(views: Iterable[View], home: Home, watermark: Callable[[str], int]) -> dict[str, int]:
    """Map each view to the first epoch of its log that its window still needs."""
    freed = {}
    for view in views:
        log = home.logs.get(view.name)
        if log is not None:
            first = _first_epoch_in_use(_window(view), log, _now(log, watermark))
            if first > log.first:
                freed[view.name] = first
    return freed


def _first_epoch_in_use(window: Window, log: Log, now: int) -> int:
    assert window.extent is not None, "the binder rejects an unbounded window"
    rows, first = 0, log.head + 1
    for epoch in reversed(log.epochs()):
        if window.frame is FrameUnit.ROWS:
            passed = rows >= window.extent
        else:
            passed = epoch.max_ts is not None and epoch.max_ts <= now - window.extent
        if passed:
            break
        rows, first = rows + epoch.rows, epoch.number
    return first


def _now(log: Log, watermark: Callable[[str], int]) -> int:
    reached = watermark(log.name)
    newest = BEGINNING if log.max_ts is None else log.max_ts
    return max(newest, reached) if reached < END else newest


def _window(view: View) -> Window:
    assert isinstance(view.query, SelectQuery), "the binder rejects other queries"
    window = view.query.inputs[0].window
    assert window is not None, "the binder rejects a view without a window"
    return window
