"""Live table of a running engine: rates, lag, response times, problems."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from slicemill.api.mill import Mill
from slicemill.catalog.catalog import SourceSpec
from slicemill.connectors.tcp.reader import tcp_status
from slicemill.metrics.query_metrics import QueryMetrics

_RENEWALS_PER_SECOND = 2


@dataclass(slots=True)
class RowRates:
    """Rates at which row counters increase, in rows per second between two refreshes."""

    _seen: dict[str, tuple[float, int]] = field(default_factory=dict)
    _rates: dict[str, float] = field(default_factory=dict)

    def of(self, name: str, count: int, now: float) -> float:
        before, known = self._seen.get(name, (now, count))
        if now - before >= 1 or name not in self._seen:
            self._rates[name] = (count - known) / (now - before) if now > before else 0.0
            self._seen[name] = (now, count)
        return self._rates.get(name, 0.0)


def sources_polled(mill: Mill) -> bool:
    """Return True if every source has been polled at least once."""
    return all(stream.asked for stream in mill.running.streams.values())


def watch(
    mill: Mill, seconds: float | None, console: Console, print_new: Callable[[], None] | None = None
) -> None:
    """Show a live table of the engine until `seconds` have passed or all streams have ended.

    `seconds` counts from the first poll of every source, because workers may start slowly. `print_new` is
    called whenever there may be new results. If there is no terminal, or if results are printed on the
    terminal, no table is shown, and each problem is printed once.
    """
    began = time.monotonic()
    asked_s: float | None = None
    rates, told = RowRates(), list[str]()
    pictured = console.is_terminal and not (print_new is not None and sys.stdout.isatty())
    next_look_s = began
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            now = time.monotonic()
            if asked_s is None and (mill.dispatcher.problem or sources_polled(mill)):
                asked_s = now
            if print_new is not None:
                print_new()
            if seconds is not None and asked_s is not None and now - asked_s >= seconds:
                return
            if all_ended(mill):
                console.print("all inputs have ended", highlight=False)
                return
            if now >= next_look_s:
                mill.dispatcher.check()
                found = problems(mill)
                if pictured:
                    live.update(
                        render_mill(mill, rates, None if asked_s is None else now - asked_s), refresh=True
                    )
                else:
                    for problem in found:
                        if problem not in told:
                            console.print(problem, highlight=False, soft_wrap=True)
                    told = found
                next_look_s = now + 1 / _RENEWALS_PER_SECOND
            ends_s = math.inf if seconds is None or asked_s is None else asked_s + seconds
            patience_s = max(0.0, min(next_look_s, ends_s) - time.monotonic())
            if print_new is None:
                time.sleep(patience_s)
            else:
                with mill.dispatcher.changed:
                    mill.dispatcher.changed.wait(patience_s)


def all_ended(mill: Mill) -> bool:
    """Return True if every stream has ended or has no source."""
    return mill.dispatcher.problem is None and all(
        stream.ended or stream.stream.source == SourceSpec() for stream in mill.running.streams.values()
    )


def problems(mill: Mill) -> list[str]:
    """Describe all current problems of the engine, including failed queries."""
    sources = [
        f"{name} cannot be read: {stream.error}; its queries wait, and it is tried again"
        for name, stream in mill.dispatcher.streams.items()
        if stream.error is not None
    ]
    sources += [f"{name}: {s.warning}" for name, s in mill.running.streams.items() if s.warning is not None]
    sources += [
        f"{name} has no sender: {status.problem}; it is tried again"
        for name, stream in mill.running.streams.items()
        if stream.error is None
        and (status := tcp_status(mill.home.source_folder(name))) is not None
        and status.problem is not None
    ]
    sinks = [
        f"sink {sink.name} takes nothing: {sink.error}; it is tried again"
        for sink in mill.sinks.status()
        if sink.error is not None
    ]
    alerts = [*mill.tables.writer.problems(), *mill.tables.refresher.problems(), *mill.alerts.problems()]
    whole = [mill.dispatcher.problem] if mill.dispatcher.problem else []
    whole += mill.dispatcher.describe_stalls()
    return [*whole, *sources, *sinks, *alerts, *describe_failures(mill)]


def describe_failures(mill: Mill) -> list[str]:
    """Describe each failed query with its error."""
    return [f"{name} stopped: {query.error}" for name, query in mill.queries.items() if query.error]


def render_mill(mill: Mill, rates: RowRates, elapsed_s: float | None) -> RenderableType:
    """Render the problems of a running engine, and the tables of its streams and queries.

    `elapsed_s` is None until all sources are polled.
    """
    when = "workers start" if elapsed_s is None else f"{elapsed_s:5.0f} s"
    title = Text(f"{when}   policy {mill.dispatcher.chooser.policy.name}   ctrl-c ends", style="dim")
    lines = [Text(problem, style="red") for problem in problems(mill)]
    now = elapsed_s or 0.0
    return Group(title, *lines, _streams_table(mill, rates, now), queries_table(mill, rates, now))


def _streams_table(mill: Mill, rates: RowRates, now: float) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("stream")
    for column in ("read", "rows/s", "not needed", "late", "unreadable"):
        table.add_column(column, justify="right")
    for name, stream in mill.running.streams.items():
        counts = stream.counts
        rate = f"{rates.of(f'stream {name}', counts.read, now):,.0f}"
        others = [f"{count:,}" for count in (counts.unneeded, counts.late, counts.bad)]
        table.add_row(name, f"{counts.read:,}", rate, *others)
    return table


def queries_table(mill: Mill, rates: RowRates | None = None, now: float = 0.0) -> Table:
    """Return a table with one line of metrics per query.

    If `rates` is given, the table shows rows per second. Slowdown is the mean ratio of the response time to
    the response time without other load. Stale is the share of time in which a result was overdue. Response
    times in brackets are those of the warm-up, until there are results of later rows. Columns for service
    levels and shed rows exist if a query has a service level or a load budget.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    # A name may wrap, but a number must not be truncated.
    table.add_column("query", overflow="fold")
    for column in ("rows", "rows/s", "behind", "p50 ms", "p99 ms", "slowdown", "stale"):
        if column != "rows/s" or rates is not None:
            table.add_column(column, justify="right", no_wrap=True)
    levels = any(query.measured().slo is not None for query in mill.queries.values())
    sheds = any(query.measured().shed is not None for query in mill.queries.values())
    if sheds:
        table.add_column("dropped", justify="right", no_wrap=True)
        table.add_column("accuracy", justify="right", no_wrap=True)
    if levels:
        table.add_column("slo", no_wrap=True)
    for name, query in mill.queries.items():
        metrics = query.measured()
        cells: list[str | Text] = [f"{metrics.rows:,}"]
        if rates is not None:
            cells.append(f"{rates.of(name, metrics.rows, now):,.0f}")
        cells += [f"{query.lag_rows():,}", *(_response(metrics, share) for share in (0.5, 0.99))]
        slowdown, stale = metrics.figures.slowdown.mean, metrics.staleness
        cells.append("" if math.isnan(slowdown) else f"{slowdown:,.1f}")
        cells.append("" if math.isnan(stale) else f"{stale:.0%}")
        if sheds:
            shed = metrics.shed
            cells += ["", ""] if shed is None else [f"{shed.dropped:,}", f"{shed.accuracy:.0%}"]
        if levels:
            missed = metrics.met is False
            word = "" if metrics.met is None else "missed" if missed else "met"
            cells.append(Text(word, style="red" if missed else ""))
        table.add_row(Text(name, style="red" if query.error else ""), *cells)
    return table


def _response(metrics: QueryMetrics, share: float) -> str:
    """Format a quantile of a query's response times. Brackets mark times before all tasks have run once."""
    response = metrics.response_ms(share)
    if response is not None:
        return f"{response:,.0f}"
    return f"({1000 * metrics.warm_up.at(share):,.0f})" if metrics.warm_up.count else ""
