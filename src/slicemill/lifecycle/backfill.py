"""Backfill: a new query reads stored rows in a task of its own, then joins the shared plan.

    backfilling   a separate task reads the past while live queries leave time; it gets a minimum share
    caught up     the separate task has reached the head of the streams, and runs like any other task
    joining       the shared plan computes the query too, from new rows only; that output is discarded
    joined        the state of the query in the shared plan is complete: the shared plan continues, and
                  the separate task is dropped

The journal records all steps. The separate task has the field `backfill`. The shared task has an extra
output without a log (`plan.backfill_tasks`). Keys of the field `backfill`:

    query     name of the query
    from      rows before this time are ignored
    goal      by input, the head of the log when the backfill started
    rows      number of log rows that are to be read up to `goal`
    again     streams whose source is read a second time, and derived streams that are computed again
    arrivals  by stream, the number of rows that were read before the query was created
    newest    by stream, the greatest timestamp of the rows that were read before
    alone     True if no other query could share the task
    after     results up to this time were emitted by a definition that was replaced
    done      time at which the task caught up
    joins     True if the shared plan computes the query too

A second read reads the source of a stream again for one query, because the first rows are no longer stored.
Its rows are in a log of its own (`plan.backfill_tasks`). The second read ends once both reads of the source
have the same offsets and watermark, and the task has processed all rows. One journal record then switches
the task to the stream's own log.

In the shared plan the query starts with new rows, like any new query. Its results are complete once the
watermark exceeds the start by the length of its windows, because no later result depends on missed rows. The
driver then brings both tasks to the same epochs and watermarks. One journal record moves the output of the
query to the shared task. The separate task has emitted all earlier results, and the shared task emits all
later results. A query with an unbounded history keeps its separate task. An example is a query with a window
that counts rows or never ends.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slicemill.catalog.catalog import AGAIN, ERRORS, JOINING, LATE
from slicemill.errors import all_of
from slicemill.functions.render import timestamp_text
from slicemill.ingest.intake import NEXT_ARRIVAL
from slicemill.ingest.watermarks import HELD_FROM, WATERMARK
from slicemill.lifecycle.running_catalog import RunningCatalog
from slicemill.lifecycle.task_fields import complete_from_of
from slicemill.operators.graph import QueryGraph
from slicemill.plan.backfill_tasks import backfill_log_name
from slicemill.plan.content import quote_name
from slicemill.plan.history import history_us
from slicemill.runtime.driver import Dispatcher
from slicemill.runtime.streams import RunningStream
from slicemill.runtime.task_queue import RunningTasks
from slicemill.runtime.tasks import BACKFILL, RunningTask
from slicemill.storage.changes import Change
from slicemill.storage.home import Home
from slicemill.time import BEGINNING, END, SECOND_US

_LOGGER = logging.getLogger("slicemill")

# A backfill task has caught up if its oldest unread row arrived at most this many microseconds ago.
_CAUGHT_UP_US = SECOND_US
# Length of the window over which the rate of a backfill is measured, and interval between its samples.
_RATE_US, _SAMPLES_US = 10 * SECOND_US, SECOND_US // 2
# Interval between attempts to switch a backfill task from its second read of a source to the stream's log.
_AGAIN_US = SECOND_US // 2


def describe_start(running: RunningTasks, graph: QueryGraph, name: str) -> str:
    """Describe in words where a query starts and when its windows are complete."""
    task = running.writers.get(name)
    if task is None or name not in task.since:
        return ""
    read = all_of(sorted({log.partition(AGAIN)[0] for log in task.reads(name)}))
    backfill, since = task.fields.get(BACKFILL, {}), task.since[name]
    if since is None:
        again = [stream for stream in backfill.get("again", ()) if stream in backfill.get("arrivals", {})]
        how = f", and reads {all_of(again)} again for it" if again else ""
        return f"it starts with the first row of {read}{how}"
    words = f"it starts after {timestamp_text(since)}: earlier rows of {read} are not in its results"
    history = history_us(graph, graph.streams.get(name, name))
    if history is None:
        return f"{words}, and count for none of them"
    if not history:
        return words
    complete_us = complete_from_of(name, graph, running.tasks)
    after = "" if complete_us is None else f"; its windows are complete after {timestamp_text(complete_us)}"
    return words + after


@dataclass(frozen=True, slots=True)
class BackfillProgress:
    """Progress of a backfill, in which a new query reads stored rows.

    `rows` counts the rows that existed when the backfill began. `rows_done` counts how many of these rows
    have been read. `rows_left` also counts later rows.
    """

    rows_done: int
    rows: int
    rows_left: int
    rows_per_s: float | None = None

    @property
    def share(self) -> float:
        return self.rows_done / self.rows if self.rows else 1.0

    @property
    def seconds_left(self) -> float | None:
        """Return the estimated seconds until the backfill has caught up, or None if the rate is unknown."""
        if not self.rows_left:
            return 0.0
        return self.rows_left / self.rows_per_s if self.rows_per_s else None

    def plain(self) -> dict[str, Any]:
        return {
            "rows_done": self.rows_done,
            "rows": self.rows,
            "rows_left": self.rows_left,
            "share": self.share,
            "rows_per_s": self.rows_per_s,
            "seconds_left": self.seconds_left,
        }

    def describe(self) -> str:
        """Format the progress as in `42 % of 1,000,000 rows, 120,000 rows/s, 5 s left`."""
        words = [f"{100 * self.share:.0f} % of {self.rows:,} rows"]
        words += [f"{self.rows_per_s:,.0f} rows/s"] if self.rows_per_s else []
        words += [f"{self.seconds_left:,.0f} s left"] if self.seconds_left is not None else []
        return ", ".join(words)


@dataclass(slots=True, kw_only=True)
class Backfills:
    """Backfills of all queries: reads the past in separate tasks, then merges these tasks."""

    running: RunningCatalog
    _samples: dict[str, list[tuple[int, int]]] = field(default_factory=dict)  # by task: (time, rows read)
    _histories: dict[str, int | None] = field(default_factory=dict)  # by task: length of history
    _tried_us: dict[str, int] = field(default_factory=dict)  # by task: last attempt to end a second read

    @property
    def home(self) -> Home:
        return self.running.home

    @property
    def dispatcher(self) -> Dispatcher:
        return self.running.dispatcher

    def advance(self) -> bool:
        """Advance one backfill by one step. Return False if no backfill can advance."""
        for task in self.dispatcher.running.apart:
            if task.is_idle:
                continue  # the query is paused or has failed
            if task.catching_up:
                self._sample(task)
                readings = self._second_reads(task)
                if self._switch_to_stream(task, readings) if readings else self._note_caught_up(task):
                    return True
            elif self.why_apart(task) is None and self._join(task):
                return True
        return False

    def look(self) -> None:
        """Advance one backfill by one step. The driver calls this between rounds of task runs."""
        self.advance()

    def progress_of(self, query: str) -> BackfillProgress | None:
        """Return the progress of a query's backfill, or None if the query is not backfilling."""
        task = self.dispatcher.running.writers.get(query)
        if task is None or not task.catching_up:
            return None
        backfill, logs = task.fields[BACKFILL], self.home.logs
        left = task.rows_left
        later = sum(
            logs[log].rows_after(max(goal, task.cursor(log))) for log, goal in backfill["goal"].items()
        )
        samples = self._samples.get(task.id, [])
        rate = None
        if len(samples) > 1 and samples[-1][0] > samples[0][0]:
            rate = (samples[-1][1] - samples[0][1]) * SECOND_US / (samples[-1][0] - samples[0][0])
        rows = backfill["rows"] + sum(backfill.get("arrivals", {}).values())
        unread = sum(
            max(0, count - self._read_again(name, query))
            for name, count in backfill.get("arrivals", {}).items()
        )
        return BackfillProgress(max(0, rows - (left - later) - unread), rows, left + unread, rate)

    def _read_again(self, stream: str, query: str) -> int:
        """Return how many rows have been read from a stream's source the second time, for one query."""
        fields: Mapping[str, Any] = self.home.streams.get(backfill_log_name(stream, query), {})
        return int(fields.get(NEXT_ARRIVAL, 0))

    def describe(self, query: str) -> str:
        """Return a line about a query's backfill for EXPLAIN, or "" if the query has no backfill."""
        task = self.dispatcher.running.writers.get(query)
        if task is None or BACKFILL not in task.fields:
            return ""
        progress, why = self.progress_of(query), self.why_apart(task)
        if progress is not None:
            words = f"reads the past in a task of its own: {progress.describe()}"
        elif why is None:
            words = "has read the past, and is about to join the others"
        else:
            words = f"has a task of its own: {why}"
        return f"\n{query} {words}"

    def state_of(self, query: str) -> str | None:
        """Return `backfilling`, `joining` or `apart`, or None if the query runs in the shared plan."""
        task = self.dispatcher.running.writers.get(query)
        if task is None or BACKFILL not in task.fields:
            return None
        if task.catching_up:
            return "backfilling"
        return "joining" if self.why_apart(task) is None else "apart"

    def why_apart(self, task: RunningTask) -> str | None:
        """Return the reason why a query keeps its separate task, or None if the task will be merged."""
        backfill = task.fields[BACKFILL]
        query = backfill["query"]
        if task.id == quote_name(query) or "alone" in backfill:
            return "it has nothing that others could share"
        if self.running.plan.graph.streams.get(query):
            return "a derived stream that starts in the past keeps it"
        if backfill.get("again"):
            return f"{all_of(backfill['again'])} is computed again for it, from the beginning"
        if task.id not in self._histories:
            self._histories[task.id] = history_us(self.running.plan.graph, query)
        if self._histories[task.id] is None:
            return "what it has seen counts for ever, so it would never be complete among others"
        other = self.dispatcher.running.writers.get(query + JOINING)
        if query in task.failed or (other is not None and query + JOINING in other.failed):
            return "it has failed"
        return None

    def _sample(self, task: RunningTask) -> None:
        now, samples = self.running.clock(), self._samples.setdefault(task.id, [])
        if not samples or now - samples[-1][0] >= _SAMPLES_US:
            samples.append((now, task.statistics.rows_in))
            while now - samples[0][0] > _RATE_US and len(samples) > 2:
                samples.pop(0)

    def _second_reads(self, task: RunningTask) -> list[tuple[RunningStream, RunningStream]]:
        """Return each stream whose source is read again for a backfill task, with this second read."""
        backfill, streams = task.fields[BACKFILL], self.dispatcher.streams
        names = [(name, backfill_log_name(name, backfill["query"])) for name in backfill.get("again", ())]
        return [(streams[name], streams[again]) for name, again in names if again in streams]

    def _switch_to_stream(
        self, task: RunningTask, readings: list[tuple[RunningStream, RunningStream]]
    ) -> bool:
        """Switch tasks from the logs of second reads (sources read again for a backfill) to stream logs.

        Return False if a second read of a source has not caught up.
        """
        now = self.running.clock()
        for stream, again in readings:
            if not again.asked or again.behind or stream.behind or again.ended or again.error is not None:
                return False
        renamed = {
            again.name + side: stream.name + side for stream, again in readings for side in ("", LATE, ERRORS)
        }
        tasks = [
            one
            for one in self.dispatcher.running.tasks
            if not renamed.keys().isdisjoint(one.plan.task.inputs)
        ]
        waiting = task.has_pending or any(one.run is not None or one.has_pending for one in tasks)
        tried_us = self._tried_us.get(task.id)
        if waiting or (tried_us is not None and now < tried_us + _AGAIN_US):
            return False
        self._tried_us[task.id] = now
        with self.dispatcher.paused():
            return self._take_over(task, tasks, readings, renamed)

    def _take_over(
        self,
        task: RunningTask,
        tasks: list[RunningTask],
        readings: list[tuple[RunningStream, RunningStream]],
        renamed: Mapping[str, str],
    ) -> bool:
        """Bring both reads of each source to one position, and switch tasks to the log of the first read.

        Call while the driver is paused. Return False if the positions of the two reads still differ.
        """
        self.dispatcher.read_now([one for pair in readings for one in pair])
        newest = task.fields[BACKFILL]["newest"]
        if not all(_is_at_same_position(*pair, newest[pair[0].name]) for pair in readings):
            return False
        with self.dispatcher.frozen_watermarks():
            for one in tasks:
                _run_to_head(self.dispatcher, one)
                self.dispatcher.finish(one)
            for one in tasks:
                marks = one.input_watermarks()
                logs = [log for log in one.plan.task.inputs if log in renamed]
                passed = any(
                    marks.get(log, BEGINNING) > self.dispatcher.watermark(renamed[log]) for log in logs
                )
                if passed or one.failed or one.has_pending or one.is_checkpoint_outdated:
                    return False
        change = Change()
        for one in tasks:
            fields = _rename_logs(one.fields, renamed)
            heads = {log: self.home.logs[log].head for log in fields["cursors"] if log in renamed.values()}
            fields["cursors"] |= heads
            fields["checkpoint"]["cursors"] |= heads
            change.tasks[one.id] = fields
        read = {stream.name for stream, _ in readings}
        change.tasks.setdefault(task.id, {})[BACKFILL] = {
            **{key: at for key, at in task.fields[BACKFILL].items() if key not in ("arrivals", "newest")},
            "again": [name for name in task.fields[BACKFILL]["again"] if name not in read],
            "goal": {
                renamed.get(log, log): self.home.logs[renamed.get(log, log)].head
                for log in task.plan.task.inputs
            },
        }
        for _, again in readings:
            change.dropped_streams.append(again.name)
            change.dropped_logs += [log for log in again.logs if log in self.home.logs]
        self.home.commit(change)
        self._samples.pop(task.id, None)
        for _, again in readings:
            del self.dispatcher.streams[again.name]
        ids = [one.id for one in tasks]
        # The switched tasks continue as after a restart, from the checkpoint that was just written.
        self.dispatcher.replace([one for one in self.dispatcher.running.tasks if one.id not in ids])
        self.dispatcher.forget(ids, [again.name for _, again in readings])
        self.running.replan()
        return True

    def _note_caught_up(self, task: RunningTask) -> bool:
        now = self.running.clock()
        heads = {log: self.home.logs[log].head for log in task.plan.task.inputs}
        arrived = [task.waiting(log, head)[2] for log, head in heads.items()]
        oldest = min((moment for moment in arrived if moment is not None), default=now)
        passed = all(task.cursor(log) >= goal for log, goal in task.fields[BACKFILL]["goal"].items())
        if task.run is not None or not passed or oldest < now - _CAUGHT_UP_US:
            return False
        self.home.commit(Change(tasks={task.id: {BACKFILL: {**task.fields[BACKFILL], "done": now}}}))
        self._samples.pop(task.id, None)
        self.dispatcher.running.mark_live(task)
        return True

    def _join(self, task: RunningTask) -> bool:
        query = task.fields[BACKFILL]["query"]
        other = self.dispatcher.running.writers.get(query + JOINING)
        if other is None:
            self.home.commit(Change(tasks={task.id: {BACKFILL: {**task.fields[BACKFILL], "joins": True}}}))
            with self.dispatcher.paused():
                self.running.replan()
            return True
        if task.run is not None or other.run is not None or not self._is_complete(query, other):
            return False
        with self.dispatcher.paused():
            return self._hand_over(query, task, other)

    def _is_complete(self, query: str, other: RunningTask) -> bool:
        """Return True if no later result of a query in the shared plan depends on rows that it missed."""
        graph, name = self.running.plan.graph, query + JOINING
        complete_us, history = complete_from_of(name, graph, [other]), history_us(graph, name)
        if complete_us is None or history is None:
            return False
        marks = other.input_watermarks()
        least = min((marks.get(log, BEGINNING) for log in other.reads(name)), default=BEGINNING)
        # An input whose watermark is END in this process may get more rows in the next process.
        return complete_us + history <= least < END

    def _hand_over(self, query: str, task: RunningTask, other: RunningTask) -> bool:
        """Bring a query's separate task and its shared task to one position; drop the separate task.

        Call while the driver is paused.
        """
        with self.dispatcher.frozen_watermarks():
            self.dispatcher.catch_up_upstream(self.dispatcher.running.tasks, task.plan.task.inputs)
            for one in (task, other):
                _run_to_head(self.dispatcher, one)
            self.dispatcher.finish(other)
        marks, name = other.input_watermarks(), query + JOINING
        same = all(
            task.cursor(log) == other.cursor(log) and task.input_watermarks().get(log) == marks.get(log)
            for log in task.plan.task.inputs
        )
        if not same or query in task.failed or name in other.failed:
            return False  # a run of a task failed, and is retried or reported
        renamed: dict[str, Any] = {
            "outputs": sorted(query if log == name else log for log in other.fields["outputs"]),
            "since": _rename_key(other.fields["since"], name, query, task.since[query]),
            "output_watermarks": _rename_key(
                other.fields["output_watermarks"], name, query, task.watermark(query)
            ),
        }
        self.home.commit(Change(tasks={other.id: renamed}, dropped_tasks=[task.id]))
        self.running.replan()
        return True


def _is_at_same_position(stream: RunningStream, again: RunningStream, newest: int | None) -> bool:
    """Return True if the first and the second read of a source have reached the same position.

    Both reads have read the same rows and hold back the same rows. The stream may hold back rows that arrived
    before the query was created, and these rows may lack columns of the query. `newest` is the greatest
    timestamp of these rows.
    """
    one, other = stream.fields, again.fields
    if stream.error is not None or again.error is not None or not stream.is_at_position_of(again):
        return False
    if one.get(HELD_FROM) is None:
        return other.get(HELD_FROM) is None
    passed = newest is None or one.get(WATERMARK, BEGINNING) >= newest
    return passed and one.get(WATERMARK) == other.get(WATERMARK)


def _rename_logs(fields: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the journal fields of a task after some of its input logs are renamed."""

    def renamed(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {names.get(key, key): renamed(inner) for key, inner in value.items()}
        return [renamed(inner) for inner in value] if isinstance(value, (list, tuple)) else value

    found: dict[str, Any] = renamed(fields)
    return found


def _rename_key(by_log: Mapping[str, Any], before: str, after: str, value: Any) -> dict[str, Any]:
    return {**{log: known for log, known in by_log.items() if log != before}, after: value}


def _run_to_head(dispatcher: Dispatcher, task: RunningTask) -> None:
    """Run a task until it has read all epochs and watermarks of its inputs.

    Call while the driver is paused.
    """

    def is_behind() -> bool:
        known = task.input_watermarks()
        logs = task.plan.task.inputs
        return task.has_pending or any(known.get(log, BEGINNING) < dispatcher.watermark(log) for log in logs)

    dispatcher.run_while(task, is_behind)
