"""Diagnosis of slow queries: find the most severe cause and describe it.

`cause_of` is a pure function of metrics. So each cause can be tested, and every client interface reports the
same cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

# A shorter wait in seconds is normal: one round of the engine takes up to this long.
LONG_WAIT_S = 1.0
HELD_S = 5.0
_BUSY = 0.5
_PYTHON = 0.5
_COLLECTING = 0.2
_LITTLE = 0.25  # number of cores; if all tasks together use fewer, no other task delays the query


class Severity(IntEnum):
    """Severity of the cause of a slow query."""

    NONE = 0
    NOTE = 1
    SLOW = 2
    BROKEN = 3


@dataclass(frozen=True, slots=True)
class SlownessCause:
    """Cause of a slow query; `kind` names the cause for programs, `text` describes it for people.

    `of` names the task, stream or query that causes the delay.
    """

    attention: Severity
    kind: str
    text: str
    of: str = ""


@dataclass(frozen=True, slots=True)
class QuerySituation:
    """Metrics of a query at one moment, from which `cause_of` finds the cause of slowness.

    `tasks` has the cores that each task has used recently. `watermarks` has the watermark of each input
    stream in seconds of event time, or None before its first row. `python` is the share of the task's CPU
    time in loops that are not compiled yet, `collecting` the share in garbage collection. `server_collecting`
    is the share of wall clock time in which garbage collection stops the server. `has_ended` is True if all
    input streams have ended and no row waits.
    """

    task: str
    state: str = "running"
    failed: str | None = None
    mill_problem: str | None = None
    sink_error: str | None = None
    failing_sources: Mapping[str, str] = field(default_factory=dict)
    rows_waiting: int = 0
    longest_wait_s: float = 0.0
    tasks: Mapping[str, float] = field(default_factory=dict)
    watermarks: Mapping[str, float | None] = field(default_factory=dict)
    level: str | None = None
    level_met: bool | None = None
    level_measured_s: float | None = None
    shed_share: float = 0.0
    python: float = 0.0
    collecting: float = 0.0
    server_collecting: float = 0.0
    has_ended: bool = False


def cause_of(query: QuerySituation) -> SlownessCause | None:
    """Return the most severe cause why a query is slow, or None."""
    if query.failed is not None:
        return SlownessCause(Severity.BROKEN, "failed", f"failed: {query.failed}")
    if query.mill_problem is not None:
        return SlownessCause(Severity.BROKEN, "mill", query.mill_problem)
    for stream, error in query.failing_sources.items():
        return SlownessCause(
            Severity.BROKEN, "source", f"the source of stream {stream} cannot be read: {error}", stream
        )
    if query.sink_error is not None:
        return SlownessCause(Severity.BROKEN, "sink", f"the sink cannot be written: {query.sink_error}")
    if query.state == "paused":
        return SlownessCause(Severity.NOTE, "paused", "paused: it emits no results until RESUME QUERY")
    return (
        _waiting_cause(query)
        or _watermark_cause(query)
        or _service_level_cause(query)
        or _shedding_cause(query)
        or _end_cause(query)
    )


def _waiting_cause(query: QuerySituation) -> SlownessCause | None:
    if not query.rows_waiting or query.longest_wait_s < LONG_WAIT_S:
        return None
    since = f"{query.rows_waiting:,} rows are pending, the oldest for {query.longest_wait_s:.1f} s"
    own = query.tasks.get(query.task, 0.0)
    if query.python > _PYTHON:
        text = f"its loops run as slow Python until they are compiled; {since}"
        return SlownessCause(Severity.SLOW, "compiling", text, query.task)
    if query.collecting > _COLLECTING:
        text = f"garbage collection (GC) takes {query.collecting:.0%} of the time of its task; {since}"
        return SlownessCause(Severity.SLOW, "gc", text, query.task)
    if query.server_collecting > _COLLECTING:
        share = f"{query.server_collecting:.0%} of the time"
        text = f"garbage collection (GC) stops the server for {share}; {since}"
        return SlownessCause(Severity.SLOW, "gc", text)
    used = sum(query.tasks.values())
    if used < _LITTLE:
        text = f"other processes use this machine: all tasks together get only {used:.0%} of a core; {since}"
        return SlownessCause(Severity.SLOW, "starved", text)
    others = {task: cores for task, cores in query.tasks.items() if task != query.task and cores > own}
    if others:
        busiest = max(others, key=lambda task: others[task])
        text = f"its task waits for task {busiest}, which uses {others[busiest]:.0%} of a core; {since}"
        return SlownessCause(Severity.SLOW, "waiting", text, busiest)
    if own > _BUSY:
        text = f"its own task uses {own:.0%} of a core; {since}"
        return SlownessCause(Severity.SLOW, "busy", text, query.task)
    return SlownessCause(Severity.SLOW, "waiting", since, query.task)


def _watermark_cause(query: QuerySituation) -> SlownessCause | None:
    """Report a stream that holds back the watermark of a query over several streams."""
    known = {stream: at for stream, at in query.watermarks.items() if at is not None}
    if len(query.watermarks) < 2 or not known:
        return None
    ahead = max(known, key=lambda stream: known[stream])
    silent = next((stream for stream, at in query.watermarks.items() if at is None), None)
    if silent is not None:
        text = f"the watermark waits for stream {silent}, which has had no rows yet"
        return SlownessCause(Severity.SLOW, "watermark", text, silent)
    behind = min(known, key=lambda stream: known[stream])
    gap_s = known[ahead] - known[behind]
    if gap_s < HELD_S:
        return None
    text = f"the watermark waits for stream {behind}, which is {gap_s:,.0f} s behind {ahead}"
    return SlownessCause(Severity.SLOW, "watermark", text, behind)


def _service_level_cause(query: QuerySituation) -> SlownessCause | None:
    if query.level is None or query.level_met is not False:
        return None
    measured = (
        "" if query.level_measured_s is None else f": {query.level_measured_s:.3g} s in the last minute"
    )
    return SlownessCause(Severity.SLOW, "level", f"misses its service level {query.level}{measured}")


def _shedding_cause(query: QuerySituation) -> SlownessCause | None:
    if query.shed_share <= 0:
        return None
    text = f"drops {query.shed_share:.1%} of its rows to stay within its load budget"
    return SlownessCause(Severity.NOTE, "shed", text)


def _end_cause(query: QuerySituation) -> SlownessCause | None:
    if not query.has_ended:
        return None
    return SlownessCause(
        Severity.NONE, "ended", "its streams have ended, and all its results have been emitted"
    )
