"""Alert metrics: values of queries and streams to which alert conditions refer.

Rates, quantiles and counts cover the last minute, for which samples are kept. An unknown value is None, such
as the response time of a query without results.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slicemill.engine.changing.lives import LifeState
from slicemill.engine.streams import RunningStream
from slicemill.esl.types.alert import AlertSubject
from slicemill.metrics.quantiles import Quantiles
from slicemill.operators.streams.spec import Source
from slicemill.storage.log import Log
from slicemill.time import END, US

if TYPE_CHECKING:
    from slicemill.engine.mill import Mill

OVER_US = 60 * US

Figures = dict[str, Any]


@dataclass(slots=True)
class _Counts:
    """Sample of counters at one time."""

    at_us: int
    rows: int
    errors: int
    late: int = 0
    stale_s: float = 0.0
    responses: dict[int, int] = field(default_factory=dict)


class FigureHistory:
    """Metrics of one mill for alert conditions, with their history.

    Only one thread may use the history.
    """

    def __init__(self, mill: Mill) -> None:
        self._mill = mill
        self._past: dict[tuple[AlertSubject, str], deque[_Counts]] = {}
        self._changed_us: dict[tuple[AlertSubject, str], int] = {}

    def names(self, watched: AlertSubject) -> list[str]:
        """Return the names of all queries or streams."""
        return list(self._mill.queries if watched is AlertSubject.QUERY else self._mill.streams)

    def of(self, watched: AlertSubject, name: str, now_us: int) -> Figures | None:
        """Return the current metrics, or None if the query does not run."""
        if watched is AlertSubject.QUERY:
            return self._query(name, now_us)
        return self._stream(name, now_us)

    def forget(self, asked: Iterable[tuple[AlertSubject, str]]) -> None:
        """Keep the history only of these queries and streams."""
        kept = set(asked)
        self._past = {key: past for key, past in self._past.items() if key in kept}
        self._changed_us = {key: at for key, at in self._changed_us.items() if key in kept}

    def _query(self, name: str, now_us: int) -> Figures | None:
        mill = self._mill
        query = mill.queries.get(name)
        if query is None:
            return None
        metrics, life = query.metrics(), query.life()
        read = [mill.streams[stream] for stream in self._sources(name) if stream in mill.streams]
        errors = sum(stream.counts.bad for stream in read)
        counts = _Counts(
            now_us,
            metrics.rows,
            errors,
            stale_s=metrics.stale.stale,
            responses=dict(metrics.responses.counts),
        )
        before = self._since(AlertSubject.QUERY, name, counts)
        unit = mill.dispatcher.running.writers.get(name)
        running = mill.dispatcher.running
        waits = unit is not None and unit.id in running.position
        fresh = Quantiles(
            {index: n - before.responses.get(index, 0) for index, n in counts.responses.items()}
        )
        elapsed_s = (now_us - before.at_us) / US
        stale = min(1.0, (counts.stale_s - before.stale_s) / elapsed_s) if elapsed_s > 0 else None
        return {
            "state": life.state.value,
            "rows": metrics.rows,
            "rate": _rate(counts, before),
            "silence": self._silence(AlertSubject.QUERY, name, counts, query.log),
            "lag": int(US * running.longest_wait_s(unit.id, now_us)) if unit is not None and waits else 0,
            "rows_waiting": running.rows_waiting(unit.id)[0] if unit is not None and waits else 0,
            "p50": int(US * fresh.at(0.5)) if fresh.count else None,
            "p99": int(US * fresh.at(0.99)) if fresh.count else None,
            "staleness": stale,
            "freshness": None if stale is None else 1 - stale,
            "errors": counts.errors - before.errors,
            "error": life.why,
        }

    def _stream(self, name: str, now_us: int) -> Figures | None:
        stream = self._mill.streams.get(name)
        if stream is None:
            return None
        counts = _Counts(now_us, stream.counts.read, stream.counts.bad, stream.counts.late)
        before = self._since(AlertSubject.STREAM, name, counts)
        behind = stream.announced
        log = self._mill.home.logs.get(name)
        return {
            "state": _stream_state(stream, self._mill.lives.of(name).state),
            "rows": counts.rows,
            "rate": _rate(counts, before),
            "silence": self._silence(AlertSubject.STREAM, name, counts, log),
            "lag": max(0, now_us - behind) if 0 < behind < END else None,
            "late": counts.late - before.late,
            "errors": counts.errors - before.errors,
            "error": stream.error,
        }

    def _sources(self, query: str) -> set[str]:
        graph = self._mill.graph
        if query not in graph.nodes:
            return set()
        above = (graph.nodes[node].operator for node in graph.ancestors(query))
        return {operator.stream for operator in above if isinstance(operator, Source)}

    def _since(self, watched: AlertSubject, name: str, now: _Counts) -> _Counts:
        """Return the oldest sample of the last minute."""
        past = self._past.setdefault((watched, name), deque())
        while past and (now.at_us - past[0].at_us > OVER_US or past[-1].rows > now.rows):
            past.popleft()
        past.append(now)
        return past[0]

    def _silence(self, watched: AlertSubject, name: str, now: _Counts, log: Log | None) -> int:
        """Return the time since the last row.

        The first call uses the log, later calls use the counters.
        """
        key = watched, name
        past = self._past[key]
        if key not in self._changed_us:
            newest = log.epochs(after=log.head - 1) if log is not None else []
            self._changed_us[key] = newest[-1].arrival_us if newest else now.at_us
        elif len(past) > 1 and past[-2].rows != now.rows:
            self._changed_us[key] = now.at_us
        return max(0, now.at_us - self._changed_us[key])


def _stream_state(stream: RunningStream, life: LifeState) -> str:
    if life is LifeState.PAUSED:
        return life.value
    return "failing" if stream.error else "ended" if stream.ended else "running"


def _rate(now: _Counts, before: _Counts) -> float | None:
    elapsed_s = (now.at_us - before.at_us) / US
    return (now.rows - before.rows) / elapsed_s if elapsed_s > 0 else None
