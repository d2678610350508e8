"""PAUSE, RESUME, RESTART and automatic retries of queries and streams.

    "lives": {"hot": {"paused": {"epoch": 16, "max_ts": 5000, "as_of": 18, "watermark": 4000, "by": …},
                      "tries": {"count": 2, "failed_us": …, "next_us": …, "began_us": …, "why": "…"}}}

**Paused.** Readers see a paused log only up to the epoch and watermark of its pause. Readers are sinks,
subscribers, downstream tasks and ad hoc queries. The task that writes the log keeps running while another
query of the task is not paused. If all its queries are paused, the task stops too. On RESUME readers get all
pending rows of the log, or the task continues from its state. The results are the same rows in the same order
as without a pause. Until RESUME readers see the definition that was in force at journal record `as_of`.

**Failed.** If all queries of a task failed together, the failed run was not committed. A retry repeats the
run from the committed state, and no row is lost. If a query failed while other queries of its task continued,
a retry starts the query without state from new rows. `complete_from` then returns the time from which its
results are complete. The back-off doubles with each retry. After the last retry the query stays stopped until
RESTART. A query that stalls takes seconds of a worker each time, so it gets fewer retries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from slicemill.catalog.statements import LifecycleAction, LifecycleChange
from slicemill.errors import SlicemillError
from slicemill.lifecycle.running_catalog import RunningCatalog
from slicemill.plan.content import quote_name
from slicemill.runtime.step_limit import FAR_LONGER
from slicemill.runtime.tasks import BACKFILL, RunningTask
from slicemill.storage.changes import Change
from slicemill.time import BEGINNING, SECOND_US

FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 300.0
MOST_TRIES = 8
# Number of consecutive failures by a too long run (stall) after which a query is not retried.
MOST_STALLS = 3
# If a query has run for this many seconds without failure, its count of failures starts at zero.
STEADY_S = 600.0
_LOOK_US = SECOND_US // 5


class LifecycleState(StrEnum):
    RUNNING = "running"
    BACKFILLING = "backfilling"  # the query reads stored rows of its streams (`lifecycle.backfill`)
    PAUSED = "paused"
    FAILED = "failed"  # stopped until a RESTART statement
    RESTARTING = "restarting"  # the query has failed and will be retried


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """Lifecycle state of a query, with its last error and next retry."""

    state: LifecycleState
    why: str | None = None
    failures: int = 0
    next_try_us: int | None = None
    paused_us: int | None = None
    paused_by: str | None = None

    def plain(self) -> dict[str, Any]:
        return {
            "state": self.state.value,
            "why": self.why,
            "failures": self.failures,
            "next_try_us": self.next_try_us,
            "paused_us": self.paused_us,
            "paused_by": self.paused_by,
        }


@dataclass(slots=True)
class QueryLifecycle:
    """PAUSE, RESUME, RESTART and retries of running queries."""

    running: RunningCatalog
    _looked_us: int = 0

    def of(self, name: str) -> QueryStatus:
        """Return the lifecycle state of a query or stream."""
        life = self.running.home.lives.get(name, {})
        tries, paused = life.get("tries", {}), life.get("paused")
        written = [fields for fields in self.running.home.tasks.values() if name in fields["outputs"]]
        why = next((fields.get("failed", {}).get(name) for fields in written), None)
        next_us = tries.get("next_us") if why is not None else None
        past = any(BACKFILL in fields and "done" not in fields[BACKFILL] for fields in written)
        state = LifecycleState.BACKFILLING if past else LifecycleState.RUNNING
        if paused is not None:
            state = LifecycleState.PAUSED
        elif why is not None:
            # The next call of `look` records a new failure; until then the query is shown as restarting.
            known = "failed_us" in tries
            state = LifecycleState.FAILED if known and next_us is None else LifecycleState.RESTARTING
        since, by = (paused["at"], paused["by"]) if paused is not None else (None, None)
        return QueryStatus(state, why or tries.get("why"), tries.get("count", 0), next_us, since, by)

    def change(self, statement: LifecycleChange, by: str) -> None:
        """Apply a PAUSE, RESUME or RESTART statement in one journal record.

        PAUSE of a paused query and RESUME of a running query have no effect.
        """
        names = [statement.name, *(one.name for one in self.running.catalog.writers_for(statement.name))]
        with self.running.dispatcher.paused():
            if statement.action is LifecycleAction.RESTART:
                self._restart(names, statement.kind)
            elif statement.action is LifecycleAction.PAUSE:
                self._pause(names, by)
            else:
                self._resume(names)

    def look(self) -> None:
        """Record new failures, and retry the failed queries whose back-off has passed."""
        now_us = self.running.clock()
        if 0 <= now_us - self._looked_us < _LOOK_US:
            return
        self._looked_us = now_us
        tasks = self.running.dispatcher.running.tasks
        for log, why in [found for task in tasks for found in task.failed.items()]:
            task = self._writer(log)
            if task is None or log not in task.failed:
                continue  # an earlier retry in this loop has restarted this query too
            tries = self.running.home.lives.get(log, {}).get("tries", {})
            if "failed_us" not in tries:
                self._note_failure(log, why, tries, now_us)
            elif tries["next_us"] is not None and tries["next_us"] <= now_us:
                self._restart_failed([log])

    def _pause(self, names: Sequence[str], by: str) -> None:
        home, paused = self.running.home, dict[str, dict[str, Any]]()
        for name in names:
            if "paused" in home.lives.get(name, {}):
                continue
            log = home.logs.get(name)
            if log is None:
                raise SlicemillError(
                    f"{name} has no reader and no rows yet, so it cannot be paused; create a query over it"
                )
            known = name in self.running.dispatcher.streams or self._writer(name) is not None
            paused[name] = {
                "epoch": log.end.epoch,
                "max_ts": log.end.max_ts,
                "as_of": home.epoch,
                "watermark": self.running.dispatcher.watermark(name) if known else BEGINNING,
                "at": self.running.clock(),
                "by": by,
            }
        if paused:
            home.commit(Change(lives={name: {"paused": fields} for name, fields in paused.items()}))
            self._refresh_tasks()

    def _resume(self, names: Sequence[str]) -> None:
        resumed = [name for name in names if "paused" in self.running.home.lives.get(name, {})]
        if not resumed:
            return
        self.running.home.commit(Change(lives={name: {"paused": None} for name in resumed}))
        self._refresh_tasks()
        for name in resumed:
            if (query := self.running.queries.get(name)) is not None:
                query.delivered()
        self.running.sinks.notify()

    def _restart(self, names: Sequence[str], kind: str) -> None:
        # Restart the query and the queries that write its tables, but only those that have failed.
        failed = [name for name in names if self._has_failed(name)]
        if not failed:
            raise SlicemillError(
                f"{kind.lower()} {names[0]} has not failed, so it cannot be restarted; "
                f"DROP {kind} {quote_name(names[0])} and CREATE it to start it without state"
            )
        self._restart_failed(failed, forget_tries=True)

    def _has_failed(self, name: str) -> bool:
        task = self._writer(name)
        return task is not None and name in task.failed

    def _note_failure(self, log: str, why: str, tries: dict[str, Any], now_us: int) -> None:
        """Record the failure of a query in the journal, with the time of the next retry, if any.

        The back-off doubles with each failure.
        """
        steady = now_us - tries.get("began_us", now_us) > STEADY_S * SECOND_US
        count = 1 if steady else tries.get("count", 0) + 1
        stalls = (0 if steady else tries.get("stalls", 0)) + 1 if FAR_LONGER in why else 0
        pause_s = min(FIRST_PAUSE_S * 2 ** (count - 1), LONGEST_PAUSE_S)
        again = count <= MOST_TRIES and stalls < MOST_STALLS
        next_us = now_us + int(pause_s * SECOND_US) if again else None
        noted = {"count": count, "failed_us": now_us, "next_us": next_us, "why": why}
        noted |= {"stalls": stalls} if stalls else {}
        self.running.home.commit(Change(lives={log: {"tries": noted}}))

    def _restart_failed(self, failed: Sequence[str], *, forget_tries: bool = False) -> None:
        """Restart failed queries in one journal record, from their committed state if possible.

        If `forget_tries` is True, the counts of their failures start at zero.
        """
        home, now_us = self.running.home, self.running.clock()
        began: dict[str, dict[str, Any]] = {}
        tasks: dict[str, dict[str, Any]] = {}
        resumed: list[str] = []
        anew: list[str] = []
        for log in failed:
            task = self._writer(log)
            assert task is not None, "it has failed"
            logs = list(task.resumable) if log in task.resumable else [log]
            (resumed if log in task.resumable else anew).extend(logs)
            for one in logs:
                known = home.lives.get(one, {}).get("tries", {})
                tries = {"count": known.get("count", 1), "why": known.get("why"), "began_us": now_us}
                tries |= {"stalls": known["stalls"]} if "stalls" in known else {}
                began[one] = {"tries": None if forget_tries and one in failed else tries}
            if log in task.resumable:
                left = {one: why for one, why in task.failed.items() if one not in logs}
                tasks[task.id] = {"failed": left or None, "resumable": None}
        change = Change(tasks=tasks, lives=began)
        if anew:
            self.running.begin_anew(anew, change)
        else:
            home.commit(change)
        for one in resumed:
            if (query := self.running.queries.get(one)) is not None:
                query.error = None
        if resumed:
            self._refresh_tasks()

    def _writer(self, log: str) -> RunningTask | None:
        return self.running.dispatcher.running.writers.get(log)

    def _refresh_tasks(self) -> None:
        """Let the driver determine anew which tasks can run."""
        dispatcher = self.running.dispatcher
        dispatcher.replace(dispatcher.running.tasks)
        dispatcher.notify()
