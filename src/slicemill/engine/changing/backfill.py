"""Queries that begin in the past: they read what is retained beside the others, and then join them.

    backfilling   its unit is apart and behind; it gets what live queries leave, and a little in any case
    caught up     its unit is where the streams are, and runs like any other
    joining       it is planned with the others as well, and what it gives there goes nowhere so far
    joined        that one knows all it would know had it always been there: it goes on, the unit apart goes

All of it stands in the journal. The unit apart has a field, and the unit that is joined has an output that no
log has the name of (`plan.apart`):

    backfill  {query, from, goal, rows, done, joins}
              `from`: rows before that time do not count. `goal`: by input, the last epoch that was there when
              it began, and `rows` how many there were up to that. `done`: when it had caught up. `joins`: it
              is planned with the others as well

Who joins reads from then on what comes, like any new query. When the watermark has passed the time from which
on it is complete by as long as its history is, no row that is still to come depends on what it has missed.
Both units are then brought to the same epochs and watermarks, and one record does the rest: what came up to
there the unit apart has given, and what comes later the other one gives. A query without such a time (windows
that count rows, or never end) stays apart.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from slicemill.engine.changing.joining import LEFT_OUT, complete_from_of, new_fields
from slicemill.engine.changing.retaining import WHOLE
from slicemill.engine.dispatcher import Dispatcher
from slicemill.engine.program import UnitPlan
from slicemill.engine.unit import BACKFILL, RunningUnit
from slicemill.esl.render.words import timestamp_text
from slicemill.esl.types.catalog import JOINING, Catalog, QueryDefinition, Stream
from slicemill.operators.graph import QueryGraph
from slicemill.plan.apart import unit_apart
from slicemill.plan.content import quoted
from slicemill.plan.history import history_us
from slicemill.storage.changes import Change
from slicemill.storage.home import Home
from slicemill.time import BEGINNING, END, US

_LOGGER = logging.getLogger("slicemill")

# A unit is where its streams are if what it still has to read came no longer ago than this.
_CAUGHT_UP_US = US
# Over how long a rate is measured, and how often.
_RATE_US, _SAMPLES_US = 10 * US, US // 2


def queries_apart(
    catalog: Catalog, home: Home, replaced: Collection[str] = (), again: Collection[str] = ()
) -> dict[str, bool]:
    """The queries that have units apart, or are to get one; True for those that are joining others.

    Those of `replaced` have another definition: what still reads the past does so no more, unless it begins
    there `again`.
    """
    units = home.units.values()
    written = {log for fields in units for log in (*fields["outputs"], *fields.get(LEFT_OUT, ()))}
    written.difference_update(again)
    known = {fields[BACKFILL]["query"]: fields[BACKFILL] for fields in units if BACKFILL in fields}
    known = {
        name: backfill
        for name, backfill in known.items()
        if name not in again and ("done" in backfill or name not in replaced)
    }
    return {
        query.name: known.get(query.name, {}).get("joins", False)
        for query in catalog.queries.values()
        if query.name in known or (query.begins_us is not None and query.name not in written)
    }


def beginnings(catalog: Catalog) -> dict[str, QueryDefinition]:
    """By the ids that units of queries alone may have, those of queries that begin in the past."""
    past = [query for query in catalog.queries.values() if query.begins_us is not None]
    return {unit: query for query in past for unit in (unit_apart(query.name), quoted(query.name))}


def fields_from_the_past(
    plan: UnitPlan, home: Home, query: QueryDefinition, catalog: Catalog
) -> dict[str, Any]:
    """The fields of a new unit that reads what is retained, from the time on that its query says."""
    begins_us = BEGINNING if query.begins_us is None else query.begins_us
    cursors: dict[str, int] = {}
    reach: dict[str, int | None] = {}
    for log in plan.unit.inputs:
        first, reach[log] = retained_from(log, home, catalog)
        before = home.logs[log].last_before(begins_us) if begins_us > BEGINNING else -1
        cursors[log] = max(first, before)
    _warn(query.name, begins_us, reach)
    known = [ts for ts in reach.values() if ts is not None]
    since = max([*known, *([begins_us - 1] if begins_us > BEGINNING else [])], default=None)
    goal = {log: home.logs[log].head for log in plan.unit.inputs}
    backfill = {
        "query": query.name,
        "from": begins_us if begins_us > BEGINNING else None,
        "goal": goal,
        "rows": sum(home.logs[log].rows_after(cursor) for log, cursor in cursors.items()),
    }
    return {
        **new_fields(plan, home),
        "cursors": cursors,
        "since": {query.name: since},
        "checkpoint": {"cursors": cursors, "input_watermarks": {}, "files": []},
        BACKFILL: backfill,
    }


def retained_from(log: str, home: Home, catalog: Catalog) -> tuple[int, int | None]:
    """The last epoch before those of a log that are whole; and the time after which all its rows are there,
    None for all times."""
    opened, relation = home.logs[log], catalog.relation(log)
    if opened.changes:
        return -1, None  # it begins with the table that its first changes came to
    first, reach = opened.first - 1, None
    if isinstance(relation, Stream):
        owner = catalog.declared_stream(log).name
        epoch, newest = home.streams.get(owner, {}).get(WHOLE, (opened.head, None))
        first, reach = max(first, epoch), newest if log == owner else None
        missing = opened.freed >= 0 or (log != owner and epoch >= 0)
    else:
        written = [fields["since"][log] for fields in home.units.values() if log in fields.get("since", {})]
        reach = written[0] if written else None
        missing = opened.freed >= 0
    if missing:
        # Rows of the same time may be among those that are gone.
        left = [epoch.min_ts for epoch in opened.epochs(after=first)[:1] if epoch.min_ts is not None]
        known = left[0] if left else opened.max_ts
        reach = max((ts for ts in (reach, known) if ts is not None), default=None)
    return first, reach


def _warn(query: str, begins_us: int, reach: Mapping[str, int | None]) -> None:
    for log, ts in reach.items():
        if ts is not None and ts >= begins_us:
            _LOGGER.warning(
                "%s reaches back to %s: %s begins there, and is complete when its windows are",
                log,
                timestamp_text(ts),
                query,
            )


@dataclass(frozen=True, slots=True)
class BackfillProgress:
    """How far a query has read the past: rows of those that were there when it began, and what is left now,
    with what has come since."""

    rows_done: int
    rows: int
    rows_left: int
    rows_per_s: float | None = None

    @property
    def share(self) -> float:
        return self.rows_done / self.rows if self.rows else 1.0

    @property
    def seconds_left(self) -> float | None:
        """How long it will take at the rate of the last seconds; None while that is not known."""
        if not self.rows_left:
            return 0.0
        return self.rows_left / self.rows_per_s if self.rows_per_s else None

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "rows_done": self.rows_done,
            "rows": self.rows,
            "rows_left": self.rows_left,
            "share": self.share,
            "rows_per_s": self.rows_per_s,
            "seconds_left": self.seconds_left,
        }

    def in_words(self) -> str:
        """`42 % of 1,000,000 rows, 120,000 rows/s, 5 s left`."""
        words = [f"{100 * self.share:.0f} % of {self.rows:,} rows"]
        words += [f"{self.rows_per_s:,.0f} rows/s"] if self.rows_per_s else []
        words += [f"{self.seconds_left:,.0f} s left"] if self.seconds_left is not None else []
        return ", ".join(words)


@dataclass(slots=True)
class Backfills:
    """Watches the units apart of a mill, and lets their queries join the others.

    `replan` runs the catalog as the journal says now, and `graph` is what runs.
    """

    home: Home
    dispatcher: Dispatcher
    clock: Callable[[], int]
    replan: Callable[[], None]
    graph: Callable[[], QueryGraph]
    _samples: dict[str, list[tuple[int, int]]] = field(default_factory=dict)  # by unit: time, rows read
    _histories: dict[str, int | None] = field(default_factory=dict)  # by unit

    def advance(self) -> bool:
        """Take the next steps of queries that can; False if there are none. Called often."""
        for unit in self.dispatcher.running.apart:
            if unit.rests:
                continue  # it is paused, or has failed
            if unit.catching_up:
                self._sample(unit)
                if self._note_caught_up(unit):
                    return True
            elif self.why_apart(unit) is None and self._join(unit):
                return True
        return False

    def look(self) -> None:
        """The same, for who asks nothing."""
        self.advance()

    def progress_of(self, query: str) -> BackfillProgress | None:
        """How far a query is that reads the past; None for one that is where its streams are."""
        unit = self.dispatcher.running.writers.get(query)
        if unit is None or not unit.catching_up:
            return None
        backfill, logs = unit.fields[BACKFILL], self.home.logs
        left = unit.rows_left
        later = sum(
            logs[log].rows_after(max(goal, unit.cursor(log))) for log, goal in backfill["goal"].items()
        )
        samples = self._samples.get(unit.id, [])
        rate = None
        if len(samples) > 1 and samples[-1][0] > samples[0][0]:
            rate = (samples[-1][1] - samples[0][1]) * US / (samples[-1][0] - samples[0][0])
        return BackfillProgress(max(0, backfill["rows"] - (left - later)), backfill["rows"], left, rate)

    def in_words(self, query: str) -> str:
        """A line on a query that has a unit apart, for explain; nothing of others."""
        unit = self.dispatcher.running.writers.get(query)
        if unit is None or BACKFILL not in unit.fields:
            return ""
        progress, why = self.progress_of(query), self.why_apart(unit)
        if progress is not None:
            words = f"reads the past in a unit of its own: {progress.in_words()}"
        elif why is None:
            words = "has read the past, and is about to join the others"
        else:
            words = f"has a unit of its own: {why}"
        return f"\n{query} {words}"

    def state_of(self, query: str) -> str | None:
        """`backfilling`, `joining` or `apart` for a query with a unit apart, else None."""
        unit = self.dispatcher.running.writers.get(query)
        if unit is None or BACKFILL not in unit.fields:
            return None
        if unit.catching_up:
            return "backfilling"
        return "joining" if self.why_apart(unit) is None else "apart"

    def why_apart(self, unit: RunningUnit) -> str | None:
        """Why a query that has caught up stays in a unit of its own; None where it joins others."""
        query = unit.fields[BACKFILL]["query"]
        if unit.id == quoted(query):
            return "it has nothing that others could share"
        if unit.id not in self._histories:
            self._histories[unit.id] = history_us(self.graph(), query)
        if self._histories[unit.id] is None:
            return "what it has seen counts for ever, so it would never be complete among others"
        other = self.dispatcher.running.writers.get(query + JOINING)
        if query in unit.failed or (other is not None and query + JOINING in other.failed):
            return "it has failed"
        return None

    def _sample(self, unit: RunningUnit) -> None:
        now, samples = self.clock(), self._samples.setdefault(unit.id, [])
        if not samples or now - samples[-1][0] >= _SAMPLES_US:
            samples.append((now, unit.statistics.rows_in))
            while now - samples[0][0] > _RATE_US and len(samples) > 2:
                samples.pop(0)

    def _note_caught_up(self, unit: RunningUnit) -> bool:
        now = self.clock()
        heads = {log: self.home.logs[log].head for log in unit.plan.unit.inputs}
        arrived = [unit.waiting(log, head)[2] for log, head in heads.items()]
        oldest = min((moment for moment in arrived if moment is not None), default=now)
        passed = all(unit.cursor(log) >= goal for log, goal in unit.fields[BACKFILL]["goal"].items())
        if unit.run is not None or not passed or oldest < now - _CAUGHT_UP_US:
            return False
        self.home.commit(Change(units={unit.id: {BACKFILL: {**unit.fields[BACKFILL], "done": now}}}))
        self._samples.pop(unit.id, None)
        self.dispatcher.running.caught_up(unit)
        return True

    def _join(self, unit: RunningUnit) -> bool:
        query = unit.fields[BACKFILL]["query"]
        other = self.dispatcher.running.writers.get(query + JOINING)
        if other is None:
            self.home.commit(Change(units={unit.id: {BACKFILL: {**unit.fields[BACKFILL], "joins": True}}}))
            with self.dispatcher.paused():
                self.replan()
            return True
        if unit.run is not None or other.run is not None or not self._is_complete(query, other):
            return False
        with self.dispatcher.paused():
            return self._hand_over(query, unit, other)

    def _is_complete(self, query: str, other: RunningUnit) -> bool:
        """Does nothing that is still to come depend on what the one among others has missed?"""
        graph, name = self.graph(), query + JOINING
        complete_us, history = complete_from_of(name, graph, [other]), history_us(graph, name)
        if complete_us is None or history is None:
            return False
        marks = other.input_watermarks()
        least = min((marks.get(log, BEGINNING) for log in other.reads(name)), default=BEGINNING)
        # An input that has ended for this mill may go on in the next.
        return complete_us + history <= least < END

    def _hand_over(self, query: str, unit: RunningUnit, other: RunningUnit) -> bool:
        """Bring both to the same epochs and watermarks, and let the other one go on; while paused."""
        with _time_held(self.dispatcher):
            catch_up_feeding(self.dispatcher, self.dispatcher.running.units, unit.plan.unit.inputs)
            for one in (unit, other):
                _bring_to_now(self.dispatcher, one)
            self.dispatcher.finish(other)
        marks, name = other.input_watermarks(), query + JOINING
        same = all(
            unit.cursor(log) == other.cursor(log) and unit.input_watermarks().get(log) == marks.get(log)
            for log in unit.plan.unit.inputs
        )
        if not same or query in unit.failed or name in other.failed:
            return False  # a run could not be done; it is tried again, or told
        renamed: dict[str, Any] = {
            "outputs": sorted(query if log == name else log for log in other.fields["outputs"]),
            "since": _renamed(other.fields["since"], name, query, unit.since[query]),
            "output_watermarks": _renamed(
                other.fields["output_watermarks"], name, query, unit.watermark(query)
            ),
        }
        self.home.commit(Change(units={other.id: renamed}, dropped_units=[unit.id]))
        self.replan()
        return True


def _renamed(by_log: Mapping[str, Any], before: str, after: str, value: Any) -> dict[str, Any]:
    return {**{log: known for log, known in by_log.items() if log != before}, after: value}


def catch_up_feeding(dispatcher: Dispatcher, units: Sequence[RunningUnit], logs: Collection[str]) -> None:
    """Let all that has arrived get to some logs; while paused."""
    wanted, feeding = set(logs), []
    for unit in reversed(units):
        if any(log in wanted for _, log in unit.plan.unit.outputs):
            wanted.update(unit.plan.unit.inputs)
            feeding.append(unit)
    for unit in reversed(feeding):
        dispatcher.catch_up(unit)


def _bring_to_now(dispatcher: Dispatcher, unit: RunningUnit) -> None:
    """Let a unit read all that is there, and know the watermarks of now; while paused."""

    def is_behind() -> bool:
        known = unit.input_watermarks()
        logs = unit.plan.unit.inputs
        return unit.has_pending or any(known.get(log, BEGINNING) < dispatcher.watermark(log) for log in logs)

    dispatcher.run_while(unit, is_behind)


@contextmanager
def _time_held(dispatcher: Dispatcher) -> Iterator[None]:
    """Let logs keep the watermarks at which they are first looked at: several units are given the same."""
    known: dict[str, int] = {}
    asked = dispatcher.watermark

    def held(log: str) -> int:
        if log not in known:
            known[log] = asked(log)
        return known[log]

    dispatcher.watermark = held
    try:
        yield
    finally:
        dispatcher.watermark = asked
