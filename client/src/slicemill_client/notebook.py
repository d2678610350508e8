"""`%%esl` magics for notebooks: run statements, and show tables, live results and plans.

%load_ext slicemill_client.notebook
%esl_connect http://127.0.0.1:8080

%%esl
SELECT * FROM hot_items ORDER BY bids DESC LIMIT 10

%esl_plan hot_items
%esl_live hot_items 30
"""

from __future__ import annotations

import html
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from slicemill_client.connection import Connection, connect
from slicemill_client.errors import ClientError
from slicemill_client.messages import LiveRows, StatementResult

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_SHOWN_ROWS = 50
_LIVE_S = 30
_DEFAULT_URL = "http://127.0.0.1:8080"


_loaded: list[Notebook] = []


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics. Called by `%load_ext slicemill_client.notebook`."""
    notebook = Notebook()
    _loaded.append(notebook)
    shell.register_magic_function(notebook.connect, "line", "esl_connect")
    shell.register_magic_function(notebook.run, "line_cell", "esl")
    shell.register_magic_function(notebook.plan, "line", "esl_plan")
    shell.register_magic_function(notebook.live, "line", "esl_live")


def unload_ipython_extension(_: InteractiveShell) -> None:
    """Close the connections. Called by `%unload_ext slicemill_client.notebook` and before a reload."""
    while _loaded:
        _loaded.pop().close()


@contextmanager
def _telling_mistakes() -> Iterator[None]:
    """Display errors of the client as a message instead of a stack trace."""
    from IPython.display import HTML, display

    try:
        yield
    except ClientError as problem:
        display(HTML(f"<pre style='color:#b00020'>{html.escape(str(problem))}</pre>"))


class Notebook:
    """Magics of one notebook, which share one connection."""

    def __init__(self) -> None:
        self._connection: Connection | None = None

    @property
    def _server(self) -> Connection:
        if self._connection is None:
            self._connection = connect(_DEFAULT_URL)
        return self._connection

    def connect(self, line: str) -> None:
        """`%esl_connect URL [token]`."""
        url, _, token = line.strip().partition(" ")
        self.close()
        self._connection = connect(url or _DEFAULT_URL, token.strip() or None)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def run(self, line: str, cell: str | None = None) -> None:
        """`%esl STATEMENT`, or `%%esl` over a cell of statements."""
        from IPython.display import HTML, display

        with _telling_mistakes():
            for result in self._server.execute(cell or line):
                display(HTML(as_html(result)))

    def plan(self, line: str) -> None:
        """`%esl_plan [query]`: show the execution plan as a drawing."""
        from IPython.display import SVG, display

        with _telling_mistakes():
            display(SVG(self._server.explain(line.strip() or None, "svg")))

    def live(self, line: str) -> None:
        """`%esl_live query [seconds]`: show the newest results, updated as they arrive."""
        from IPython.display import HTML, display

        name, _, seconds = line.strip().partition(" ")
        with _telling_mistakes():
            ends = time.monotonic() + _seconds(seconds)
            query = self._server.queries.get(name)
            if query is None:
                raise ClientError(f"there is no query {name}; list the queries with %esl SHOW QUERIES")
            shown = display(HTML(f"waiting for results of {html.escape(name)} …"), display_id=True)
            newest: list[dict[str, Any]] = []
            # Results are received in a thread, so that the cell ends in time even if there are none.
            come: SimpleQueue[LiveRows] = SimpleQueue()
            subscription = query.subscribe(come.put)
            try:
                while subscription.error is None and (left := ends - time.monotonic()) > 0:
                    with suppress(Empty):
                        newest = [*newest, *come.get(timeout=left).rows][-_SHOWN_ROWS:]
                        columns = [(column, "") for column in newest[0]]
                        shown.update(HTML(as_html(StatementResult("", "", columns, newest))))
            finally:
                subscription.stop()


def _seconds(text: str) -> float:
    try:
        return float(text or _LIVE_S)
    except ValueError:
        raise ClientError(
            f"{text} is not a number of seconds; write %esl_live hot_items 30, for example"
        ) from None


def as_html(result: StatementResult) -> str:
    """Format the rows of a statement's result as an HTML table, or its message as a paragraph."""
    if result.columns is None:
        return f"<p>{html.escape(result.message or result.tag)}</p>"
    names = [name for name, _ in result.columns]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    rows = result.rows[:_SHOWN_ROWS]
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_shown(row[name]))}</td>" for name in names) + "</tr>"
        for row in rows
    )
    left = len(result.rows) - len(rows)
    more = f"<p>and {left} more rows</p>" if left else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _shown(value: object) -> str:
    return "NULL" if value is None else str(value)
