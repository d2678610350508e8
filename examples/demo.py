"""Half a minute with a server: it is started with examples/auction.esl, asked, followed, and ended.

    python examples/demo.py [seconds]

All that is asked here goes through the client, `slicemill.connect`, as it would from another machine.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

import slicemill
from slicemill_client import Connection

ROOT = Path(__file__).parents[1]
SERVE = (sys.executable, "-c", "from slicemill.cli import main; main()", "serve")
QUERY = (
    "SELECT auction, max(bids) AS bids FROM hot_items GROUP BY auction ORDER BY bids DESC, auction LIMIT 5"
)
NEW_QUERY = "CREATE QUERY dear_bids AS SELECT auction, price, channel FROM bid WHERE price > 90000000"


def main(seconds: float) -> None:
    console = Console()
    console.print("starting: slicemill serve examples/auction.esl --port 0", style="dim")
    server = subprocess.Popen(
        [*SERVE, "examples/auction.esl", "--port", "0", "--log-format", "json"],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        with slicemill.connect(_url(server)) as connection:
            show(connection, console, seconds)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    console.print("the server has ended; `make serve` starts one that stays")


def show(connection: Connection, console: Console, seconds: float) -> None:
    """Declare a query, follow two, and ask some ad hoc queries."""
    ends = time.monotonic() + seconds
    console.rule("a query, while others run")
    console.print(NEW_QUERY)
    dear = connection.query(NEW_QUERY)
    console.rule("live results")
    for query in (dear, connection.queries["turnover_by_channel"]):
        query.subscribe(lambda found, name=query.name: tell(console, name, found.rows))  # type: ignore[misc]
    while time.monotonic() < ends:
        time.sleep(max(0.0, min(10.0, ends - time.monotonic())))
        console.rule(QUERY)
        console.print(as_table(connection.ask(QUERY)))
    console.rule("SHOW QUERIES")
    (shown,) = connection.execute("SHOW QUERIES")
    console.print(as_table(shown.rows, ("name", "state", "rows", "p50_ms", "p99_ms")))


def tell(console: Console, name: str, rows: list[dict[str, object]]) -> None:
    """The first row of those that have just come."""
    for row in rows[:1]:
        console.print(f"{name}: {row}", highlight=False, soft_wrap=True)


def as_table(rows: list[dict[str, object]], columns: tuple[str, ...] = ()) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    names = columns or tuple(rows[0] if rows else ("no rows yet",))
    for name in names:
        table.add_column(name)
    for row in rows:
        table.add_row(*(shown(row[name]) for name in names))
    return table


def shown(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if isinstance(value, float) else str(value)


def _url(server: subprocess.Popen[str]) -> str:
    """Where it serves, once it does; what it logs is read to its end, so that it never waits for us."""
    assert server.stderr is not None
    for line in server.stderr:
        if line.startswith("{") and (event := json.loads(line))["event"] == "start":
            threading.Thread(target=server.stderr.read, daemon=True).start()
            return str(event["url"])
        print(line, end="", file=sys.stderr)
    raise SystemExit("the server did not start")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 30.0)
