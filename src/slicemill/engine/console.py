"""What the command line does with a mill."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from slicemill.engine.live import Rates, queries_table, watch
from slicemill.engine.mill import Mill
from slicemill.engine.session import session
from slicemill.errors import SlicemillError
from slicemill.esl import Source
from slicemill.show import show_counts, show_rows, show_timestamp
from slicemill.storage.home import Home, log_names


def run_on_spark(
    source: Source,
    seconds: float | None,
    home: Path | None,
    master: str | None,
    policy: str | None,
    rows: int,
    as_json: bool,
    metrics: Path | None = None,
) -> None:
    """Run a script for a time, or until interrupted; then print results and figures.

    Without a home the streams are ended, so that windows still open report too. With one they go on next
    time.
    """
    console = Console(stderr=True)
    with console.status("starting Spark"):
        spark = session(master)
    try:
        with Mill(spark, home) as mill:
            with console.status("planning"):
                mill.execute(source)
            if policy is not None:  # it goes before what the script sets
                mill.policy = policy
            mill.start()
            with contextlib.suppress(KeyboardInterrupt):
                watch(mill, seconds, console)
            with console.status("finishing what has arrived"):
                if home is None:
                    mill.drain()
                else:
                    mill.stop()
                    mill.dispatcher.run_all()
            results = [(query.name, query.schema, query.rows()) for query in mill.queries.values()]
            show_rows(results, rows, as_json)
            if not as_json:
                _summary(mill)
            if metrics is not None:
                metrics.write_text(json.dumps(mill.metrics().plain(), indent=2) + "\n", encoding="utf-8")
    finally:
        spark.stop()


def _summary(mill: Mill) -> None:
    for name, intake in mill.intakes.items():
        show_counts(name, intake.counts.rows, intake.counts.bad, intake.counts.late)
    console = Console()
    console.print()
    console.print(queries_table(mill, Rates(), 0.0))


def logs_table(folder: Path) -> Table:
    """What the logs of a home hold."""
    if not (folder / "logs").is_dir():
        raise SlicemillError(f"there are no logs in {folder}; is it the home of a mill?")
    home = Home(folder)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("log")
    for column in ("epochs", "rows", "bytes"):
        table.add_column(column, justify="right")
    table.add_column("from")
    table.add_column("to")
    for name in log_names(folder):
        epochs = home.log(name).epochs(after=home.log(name).first - 1)
        times = [ts for epoch in epochs for ts in (epoch.min_ts, epoch.max_ts) if ts is not None]
        table.add_row(
            name,
            f"{len(epochs):,}",
            f"{sum(epoch.rows for epoch in epochs):,}",
            f"{sum(epoch.bytes for epoch in epochs):,}",
            show_timestamp(min(times)) if times else "",
            show_timestamp(max(times)) if times else "",
        )
    return table
