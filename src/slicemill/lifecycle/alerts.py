"""Alert runner: evaluate the conditions of CREATE ALERT and send messages to webhooks.

One thread evaluates the conditions; each alert has a delivery thread. The dispatcher never waits for these
threads: after a commit, the dispatcher only calls `notify`. A slow or unreachable webhook delays only its own
alert.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from slicemill.catalog.alert import FIGURES, Alert, AlertSubject
from slicemill.catalog.catalog import DroppedName, Statement
from slicemill.columns.arrow_schema import as_results
from slicemill.connectors.sinks.folder import encode_json_lines
from slicemill.connectors.sinks.json_values import plain
from slicemill.connectors.webhook import TIMEOUT_S, WebhookError, post, url_origin
from slicemill.functions.rows import compile_expression
from slicemill.functions.values import ExpressionError
from slicemill.lifecycle.pause_and_retry import LifecycleState, QueryLifecycle
from slicemill.lifecycle.running_catalog import RunningCatalog
from slicemill.metrics.quality_of_service import Quantiles
from slicemill.operators.specs import Source
from slicemill.runtime.streams import RunningStream
from slicemill.storage.changes import Change
from slicemill.storage.filesystem import unique_name
from slicemill.storage.home import Home
from slicemill.storage.log import Epoch, Log
from slicemill.time import END, SECOND_US
from slicemill.types import TIMESTAMP, VARCHAR

# Delivery of the messages of one alert, with an outbox in the journal.
#
# A message stays in the outbox until the webhook has accepted it. The journal holds for each alert:
#
#     {"id": "5f0a…",                  created once; prefix of the ids of its messages
#      "epoch": 17,                    last delivered epoch of its query's rows
#      "alarms": {"hot": {"since": …, "told": …, "times": 1}},       firing alarms (`Alarm`)
#      "outbox": [{"id": "5f0a…-3", …}], "made": 3}                  undelivered messages; messages created
#
# A message is committed before it is sent, and removed after the webhook has accepted it. Result rows are
# sent epoch by epoch, and the number of the sent epoch is committed afterwards. So each message is
# delivered at least once, and duplicates have the same id.


Send = Callable[[str, bytes, dict[str, str]], None]

_ROWS_PER_MESSAGE = 500
_MOST_WAITING = 100
_FIRST_PAUSE_US, _LONGEST_PAUSE_US = SECOND_US, 300 * SECOND_US
_LONGEST_WISH_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertStatus:
    """Status of an alert, as SHOW ALERTS returns it.

    `state` is ok, pending or firing, or following for an alert that sends rows. `since_us` is the time from
    which the condition has held. `waiting` counts undelivered messages or epochs.
    """

    name: str
    on: str
    condition: str
    url: str
    state: str
    since_us: int | None
    firing: tuple[str, ...]
    sent: int
    sent_us: int | None
    waiting: int
    error: str | None


def new_state(home: Home) -> dict[str, Any]:
    """Return the journal fields of an alert that has just been declared."""
    return {"id": unique_name(), "epoch": home.epoch, "alarms": {}, "outbox": [], "made": 0}


def webhook(url: str, body: bytes, headers: dict[str, str]) -> None:
    post(url, body, headers)


class AlertDelivery:
    """Firing alarms and undelivered messages of one alert."""

    def __init__(self, alert: Alert, home: Home, clock: Callable[[], int], send: Send) -> None:
        self.alert = alert
        self.key = alert.name.lower()
        self._home = home
        self._clock = clock
        self._send = send
        self._state: dict[str, Any] = dict(home.alerts.get(self.key) or new_state(home))
        self._alarms = {name: Alarm.of(kept) for name, kept in self._state["alarms"].items()}
        self._changing = threading.Lock()
        self._delivering = threading.Lock()
        self._ended = False
        self._sent = 0
        self._sent_us: int | None = None
        self._error: str | None = None  # last error of the webhook
        self._unclear: str | None = None  # reason why the condition has no value
        self._failures = 0
        self._retry_us = 0

    # -- conditions ------------------------------------------------------------------------------------

    def apply_condition(
        self, holds: dict[str, tuple[bool | None, Figures]], unclear: str | None = None
    ) -> None:
        """Update the alarms with new values of the alert's condition, and queue the resulting messages.

        `holds` maps each query or stream to the value of the condition and to its metrics.
        """
        now = self._clock()
        with self._changing:
            self._unclear = unclear
            messages: list[dict[str, Any]] = []
            for name in {**self._alarms, **holds}:
                found, figures = holds.get(name, (False, {}))
                if name not in holds and self.alert.target is not None:
                    continue  # the query or stream of the alert is not running, so its alarm stays unchanged
                before = self._alarms.get(name, Alarm())
                after, told = before.apply_condition(found, now, self.alert.for_us, self.alert.repeat_us)
                if after.state is AlarmState.OK:
                    self._alarms.pop(name, None)
                else:
                    self._alarms[name] = after
                if told is not None and not (after.times > 1 and self._state["outbox"]):
                    since = after.since_us if told == "firing" else before.since_us
                    messages.append(self._message(told, name, since, now, max(1, after.times), figures))
            if messages:
                self._commit(outbox=[*self._state["outbox"], *messages][-_MOST_WAITING:])

    def _message(
        self, status: str, name: str, since: int, now: int, times: int, figures: Figures
    ) -> dict[str, Any]:
        self._state["made"] += 1
        types = {column.name: column.type for column in FIGURES[self.alert.watched]}
        return {
            "id": f"{self._state['id']}-{self._state['made']}",
            "alert": self.alert.name,
            "kind": "condition",
            "status": status,
            "on": name,
            "condition": self.alert.text,
            "since": plain(since, TIMESTAMP),
            "at": plain(now, TIMESTAMP),
            "times": times,
            "figures": {
                figure: plain(value, types.get(figure, VARCHAR)) for figure, value in figures.items()
            },
        }

    def _commit(self, **fields: object) -> None:
        """Commit the alert's state to the journal. The caller holds the lock `_changing`."""
        firing = {name: a.plain() for name, a in self._alarms.items() if a.state is AlarmState.FIRING}
        self._state = {**self._state, **fields, "alarms": firing}
        if not self._ended:
            self._home.commit(Change(alerts={self.key: self._state}))

    # -- Delivery of messages --------------------------------------------------------------------------

    @property
    def cursor(self) -> dict[str, int]:
        """Map the log of the alert's query to its last delivered epoch; empty if no rows are sent."""
        if self.alert.condition is not None or self.alert.target is None:
            return {}
        return {self.alert.target: self._state["epoch"]}

    @property
    def has_messages(self) -> bool:
        return bool(self._state["outbox"])

    def retry_in_s(self) -> float | None:
        """Return the seconds until delivery is retried, or None if the last delivery succeeded."""
        return None if self._error is None else max(0.0, (self._retry_us - self._clock()) / SECOND_US)

    def deliver_new(self) -> None:
        """Send the undelivered messages, except during the back-off after a webhook error."""
        with self._delivering:
            if self._error is not None and self._clock() < self._retry_us:
                return
            try:
                for body in self._waiting():
                    self._send(self.alert.url, json.dumps(body, ensure_ascii=False).encode(), _headers(body))
                    self._sent += 1
                    self._sent_us = self._clock()
            except Exception as problem:
                self._fail(problem)
            else:
                self._error, self._failures = None, 0

    def _waiting(self) -> Iterator[dict[str, Any]]:
        """Yield undelivered messages; taking the next message confirms that the previous one was sent."""
        while self._state["outbox"] and not self._ended:
            first = self._state["outbox"][0]
            yield first
            with self._changing:  # another thread may have added messages to the outbox
                self._commit(outbox=[body for body in self._state["outbox"] if body["id"] != first["id"]])
        for name in self.cursor:
            log = self._home.logs.get(name)
            for epoch in log.epochs(after=self._state["epoch"]) if log is not None else ():
                if self._ended:
                    return
                yield from self._rows(name, epoch)
                with self._changing:
                    self._commit(epoch=epoch.number)

    def _rows(self, name: str, epoch: Epoch) -> Iterator[dict[str, Any]]:
        log = self._home.logs[name]
        table = as_results(log.read(epoch))
        for part, first in enumerate(range(0, table.num_rows, _ROWS_PER_MESSAGE)):
            rows = encode_json_lines(table.slice(first, _ROWS_PER_MESSAGE)).splitlines()
            yield {
                "id": f"{self._state['id']}-{epoch.number}.{part}",
                "alert": self.alert.name,
                "kind": "rows",
                "on": name,
                "epoch": epoch.number,
                "gap": part == 0 and 0 <= self._state["epoch"] < log.freed,
                "rows": [json.loads(row) for row in rows],
            }

    def _fail(self, problem: Exception) -> None:
        pause_us = min(_LONGEST_PAUSE_US, _FIRST_PAUSE_US * 2 ** min(self._failures, 20))
        if isinstance(problem, WebhookError) and problem.after_s is not None:
            pause_us = max(pause_us, int(SECOND_US * min(problem.after_s, _LONGEST_WISH_S)))
        self._failures += 1
        self._retry_us = self._clock() + pause_us
        self._error = str(problem).strip() or type(problem).__name__

    def end(self) -> None:
        """Stop the delivery of a dropped alert. Later changes of its state are not committed."""
        with self._changing:
            self._ended = True

    def status(self) -> AlertStatus:
        alert, alarms = self.alert, dict(self._alarms)
        firing = tuple(sorted(name for name, a in alarms.items() if a.state is AlarmState.FIRING))
        state = AlarmState.FIRING if firing else AlarmState.PENDING if alarms else AlarmState.OK
        waiting = len(self._state["outbox"])
        for name, epoch in self.cursor.items():
            log = self._home.logs.get(name)
            waiting += len(log.epochs(after=epoch)) if log is not None else 0
        return AlertStatus(
            name=alert.name,
            on=alert.on,
            condition=alert.text,
            url=alert.url,
            state="following" if alert.condition is None else state.value,
            since_us=min((alarm.since_us for alarm in alarms.values()), default=None),
            firing=firing,
            sent=self._sent,
            sent_us=self._sent_us,
            waiting=waiting,
            error=self._error or self._unclear,
        )


def _headers(body: dict[str, Any]) -> dict[str, str]:
    return {"User-Agent": "slicemill", "Idempotency-Key": body["id"]}


_LOGGER = logging.getLogger("slicemill")
_EVALUATE_EVERY_S = 1.0
_SHARE = 50  # evaluation of conditions uses at most 1/50 of one CPU core

Value = Callable[[tuple[object, ...]], object]


class AlertRunner:
    """Threads that evaluate alert conditions and deliver alert messages.

    `send` sends a message to a webhook and raises if the webhook rejects it.
    """

    def __init__(self, running: RunningCatalog, lifecycle: QueryLifecycle, send: Send = webhook) -> None:
        self._home = running.home
        self._clock = running.clock
        self.send = send
        self._history = AlertMetrics(running, lifecycle)
        self._deliveries: dict[str, AlertDelivery] = {}
        self._conditions: dict[str, Value] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._evaluator: threading.Thread | None = None
        self._changed = threading.Condition()
        self._news = 0
        self._running = False
        self._sends_rows = False

    # -- alerts ----------------------------------------------------------------------------------------

    def begun(self, statements: Iterable[Statement]) -> dict[str, dict[str, Any] | None]:
        """Return the journal fields of newly declared alerts, and None for each dropped alert."""
        found: dict[str, dict[str, Any] | None] = {}
        for statement in statements:
            key = statement.name.lower()
            if isinstance(statement, DroppedName) and statement.kind == "ALERT":
                found[key] = None
            elif isinstance(statement, Alert) and found.get(key, self._home.alerts.get(key)) is None:
                found[key] = new_state(self._home)
        return found

    def watch(self, alerts: Mapping[str, Alert], begun: Iterable[str] = ()) -> None:
        """Evaluate and deliver the given alerts in place of the previous alerts.

        Alerts in `begun` start without firing alarms or messages, even if their declaration is unchanged.
        """
        with self._changed:
            anew = set(begun)
            known = {
                key: delivery
                for key, delivery in self._deliveries.items()
                if alerts.get(key) == delivery.alert and key not in anew
            }
            for key, delivery in self._deliveries.items():
                if key not in known:
                    delivery.end()
                    self._conditions.pop(key, None)
                    self._threads.pop(key, None)
            for key, alert in alerts.items():
                if key not in known:
                    known[key] = AlertDelivery(alert, self._home, self._clock, self._sent)
                    if alert.condition is not None:
                        schema = FIGURES[alert.watched]
                        self._conditions[key] = compile_expression(alert.condition, schema)
            self._deliveries = known
            self._sends_rows = any(delivery.cursor for delivery in known.values())
            if self._running:
                self._start_threads()
            self._changed.notify_all()

    def _sent(self, url: str, body: bytes, headers: dict[str, str]) -> None:
        self.send(url, body, headers)

    def status(self) -> list[AlertStatus]:
        return [delivery.status() for delivery in self._deliveries.values()]

    def problems(self) -> list[str]:
        """Return a line of text for each alert whose webhook fails or whose condition has no value."""
        return [
            f"alert {one.name} ({url_origin(one.url)}): {one.error}; delivery is retried"
            for one in self.status()
            if one.error is not None
        ]

    def cursors(self) -> list[Mapping[str, int]]:
        """Return a map from log to last delivered epoch for each alert that sends result rows."""
        return [delivery.cursor for delivery in self._deliveries.values() if delivery.cursor]

    # -- evaluation and delivery -----------------------------------------------------------------------

    def look(self) -> None:
        """Evaluate the conditions of all alerts once; the alert thread calls this about once a second."""
        now = self._clock()
        seen: dict[tuple[AlertSubject, str], Figures | None] = {}

        def figures(watched: AlertSubject, name: str) -> Figures | None:
            if (watched, name) not in seen:
                seen[watched, name] = self._history.of(watched, name, now)
            return seen[watched, name]

        for key, condition in list(self._conditions.items()):
            delivery = self._deliveries.get(key)
            if delivery is None:
                continue
            alert, unclear = delivery.alert, None
            names = self._history.names(alert.watched) if alert.target is None else [alert.target]
            holds: dict[str, tuple[bool | None, Figures]] = {}
            for name in names:
                found = figures(alert.watched, name)
                if found is None:
                    continue
                try:
                    value = condition(tuple(found[figure] for figure in FIGURES[alert.watched].names))
                except ExpressionError as problem:
                    value, unclear = None, f"its condition has no value for {name}: {problem}"
                holds[name] = (value if value is None else value is True), found
            delivery.apply_condition(holds, unclear)
        self._history.forget(seen)
        if any(delivery.has_messages for delivery in self._deliveries.values()):
            self._wake()

    def deliver_new(self) -> None:
        """Send the undelivered messages of all alerts in the calling thread."""
        for delivery in list(self._deliveries.values()):
            delivery.deliver_new()

    def notify(self) -> None:
        """Wake the threads that deliver result rows. The driver calls this after each commit of results."""
        if self._sends_rows:
            self._wake()

    def _wake(self) -> None:
        with self._changed:
            self._news += 1
            self._changed.notify_all()

    # -- threads ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the threads that evaluate conditions and deliver messages."""
        with self._changed:
            self._running = True
            self._start_threads()

    def stop(self) -> None:
        """Stop the threads. Undelivered messages stay in the journal."""
        with self._changed:
            self._running = False
            threads = [*self._threads.values(), *([self._evaluator] if self._evaluator else [])]
            self._threads, self._evaluator = {}, None
            self._changed.notify_all()
        until = time.monotonic() + TIMEOUT_S
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _start_threads(self) -> None:
        if self._conditions and (self._evaluator is None or not self._evaluator.is_alive()):
            self._evaluator = threading.Thread(target=self._evaluate_periodically, name="alerts", daemon=True)
            self._evaluator.start()
        for key, delivery in self._deliveries.items():
            if key not in self._threads:
                self._threads[key] = threading.Thread(
                    target=self._deliver_periodically,
                    args=[delivery],
                    name=f"alert {delivery.alert.name}",
                    daemon=True,
                )
                self._threads[key].start()

    def _evaluate_periodically(self) -> None:
        while self._running:
            began = time.thread_time()
            try:
                self.look()
            except Exception:
                # A concurrent plan change or a full disk can raise here; the next evaluation retries.
                _LOGGER.warning(
                    "the conditions of alerts could not be evaluated; they are evaluated again in a second",
                    exc_info=True,
                )
            pause_s = max(_EVALUATE_EVERY_S, _SHARE * (time.thread_time() - began))
            with self._changed:
                self._changed.wait_for(lambda: not self._running, pause_s)

    def _deliver_periodically(self, delivery: AlertDelivery) -> None:
        def ending() -> bool:
            return not self._running or self._deliveries.get(delivery.key) is not delivery

        seen = self._news
        while not ending():
            before = delivery.status().error
            delivery.deliver_new()
            after = delivery.status().error
            if after is not None and after != before:  # log each error once, not each retry
                _LOGGER.warning("alert %s: %s", delivery.alert.name, after)
            seen = self._next_news(delivery, seen, ending)

    def _next_news(self, delivery: AlertDelivery, seen: int, ending: Callable[[], bool]) -> int:
        """Wait for new result rows or messages, or, after a webhook error, for the end of the back-off.

        `seen` is the number of notifications that have been handled. Return the current number.
        """
        pause_s = delivery.retry_in_s()
        with self._changed:
            if pause_s is None:
                self._changed.wait_for(lambda: ending() or self._news != seen)
            else:
                self._changed.wait_for(ending, pause_s)
            return self._news


# Alert metrics: values of queries and streams to which alert conditions refer.
#
# Rates, quantiles and counts cover the last minute, for which samples are stored. An unknown value is None,
# such as the response time of a query without results.


OVER_US = 60 * SECOND_US

Figures = dict[str, Any]


@dataclass(slots=True)
class _Counts:
    """Sample of the counters of one query or stream, taken at one time."""

    at_us: int
    rows: int
    errors: int
    late: int = 0
    stale_s: float = 0.0
    responses: dict[int, int] = field(default_factory=dict)


class AlertMetrics:
    """Metrics of queries and streams for alert conditions, with samples of the last minute.

    Only one thread may use an object of this class.
    """

    def __init__(self, running: RunningCatalog, lifecycle: QueryLifecycle) -> None:
        self._running = running
        self._lifecycle = lifecycle
        self._past: dict[tuple[AlertSubject, str], deque[_Counts]] = {}
        self._changed_us: dict[tuple[AlertSubject, str], int] = {}

    def names(self, watched: AlertSubject) -> list[str]:
        """Return the names of all queries or streams."""
        return list(self._running.queries if watched is AlertSubject.QUERY else self._running.streams)

    def of(self, watched: AlertSubject, name: str, now_us: int) -> Figures | None:
        """Return the current metrics of a query or stream, or None if no such name exists."""
        if watched is AlertSubject.QUERY:
            return self._query(name, now_us)
        return self._stream(name, now_us)

    def forget(self, asked: Iterable[tuple[AlertSubject, str]]) -> None:
        """Delete the samples of all queries and streams except those in `asked`."""
        kept = set(asked)
        self._past = {key: past for key, past in self._past.items() if key in kept}
        self._changed_us = {key: at for key, at in self._changed_us.items() if key in kept}

    def _query(self, name: str, now_us: int) -> Figures | None:
        streams = self._running.streams
        query = self._running.queries.get(name)
        if query is None:
            return None
        metrics, life = query.measured(), query.status()
        read = [streams[stream] for stream in self._sources(name) if stream in streams]
        errors = sum(stream.counts.bad for stream in read)
        counts = _Counts(
            now_us,
            metrics.rows,
            errors,
            stale_s=metrics.stale.stale,
            responses=dict(metrics.responses.counts),
        )
        before = self._since(AlertSubject.QUERY, name, counts)
        running = self._running.dispatcher.running
        task = running.writers.get(name)
        waits = task is not None and task.id in running.position
        fresh = Quantiles(
            {index: n - before.responses.get(index, 0) for index, n in counts.responses.items()}
        )
        elapsed_s = (now_us - before.at_us) / SECOND_US
        stale = min(1.0, (counts.stale_s - before.stale_s) / elapsed_s) if elapsed_s > 0 else None
        return {
            "state": life.state.value,
            "rows": metrics.rows,
            "rate": _rate(counts, before),
            "silence": self._silence(AlertSubject.QUERY, name, counts, query.log),
            "lag": int(SECOND_US * running.longest_wait_s(task.id, now_us))
            if task is not None and waits
            else 0,
            "rows_waiting": running.rows_waiting(task.id)[0] if task is not None and waits else 0,
            "p50": int(SECOND_US * fresh.at(0.5)) if fresh.count else None,
            "p99": int(SECOND_US * fresh.at(0.99)) if fresh.count else None,
            "staleness": stale,
            "freshness": None if stale is None else 1 - stale,
            "errors": counts.errors - before.errors,
            "error": life.why,
        }

    def _stream(self, name: str, now_us: int) -> Figures | None:
        stream = self._running.streams.get(name)
        if stream is None:
            return None
        counts = _Counts(now_us, stream.counts.read, stream.counts.bad, stream.counts.late)
        before = self._since(AlertSubject.STREAM, name, counts)
        behind = stream.announced
        log = self._running.home.logs.get(name)
        return {
            "state": _stream_state(stream, self._lifecycle.of(name).state),
            "rows": counts.rows,
            "rate": _rate(counts, before),
            "silence": self._silence(AlertSubject.STREAM, name, counts, log),
            "lag": max(0, now_us - behind) if 0 < behind < END else None,
            "late": counts.late - before.late,
            "errors": counts.errors - before.errors,
            "error": stream.error,
        }

    def _sources(self, query: str) -> set[str]:
        graph = self._running.plan.graph
        if query not in graph.nodes:
            return set()
        above = (graph.nodes[node].operator for node in graph.ancestors(query))
        return {operator.stream for operator in above if isinstance(operator, Source)}

    def _since(self, watched: AlertSubject, name: str, now: _Counts) -> _Counts:
        """Store a sample of a query's or stream's counters; return the oldest sample of the last minute."""
        past = self._past.setdefault((watched, name), deque())
        while past and (now.at_us - past[0].at_us > OVER_US or past[-1].rows > now.rows):
            past.popleft()
        past.append(now)
        return past[0]

    def _silence(self, watched: AlertSubject, name: str, now: _Counts, log: Log | None) -> int:
        """Return the microseconds since the query or stream last had a new row.

        The first call uses the arrival time of the last epoch in the log. Later calls use the counters.
        """
        key = watched, name
        past = self._past[key]
        if key not in self._changed_us:
            newest = log.epochs(after=log.head - 1) if log is not None else []
            self._changed_us[key] = newest[-1].arrival_us if newest else now.at_us
        elif len(past) > 1 and past[-2].rows != now.rows:
            self._changed_us[key] = now.at_us
        return max(0, now.at_us - self._changed_us[key])


def _stream_state(stream: RunningStream, life: LifecycleState) -> str:
    if life is LifecycleState.PAUSED:
        return life.value
    return "failing" if stream.error else "ended" if stream.ended else "running"


def _rate(now: _Counts, before: _Counts) -> float | None:
    elapsed_s = (now.at_us - before.at_us) / SECOND_US
    return (now.rows - before.rows) / elapsed_s if elapsed_s > 0 else None


# State machine of an alert: ok, pending, firing.
#
# Each query or stream of an alert has its own state machine.
#
#            holds                 has held FOR d
#     ok ────────────► pending ────────────────────► firing ──┐ REPEAT EVERY d: sent again
#      ▲                  │                             │  ▲──┘
#      └──────────────────┴──────── does not hold ──────┘ sends: resolved
#
# A condition that is NULL, because a metric is not known yet, changes nothing.


class AlarmState(StrEnum):
    OK = "ok"
    PENDING = "pending"
    FIRING = "firing"


@dataclass(frozen=True, slots=True)
class Alarm:
    """State of one alarm, with the times of its start and its last message.

    `since_us` is the time from which the condition has held. `told_us` is the time of the last message.
    `times` is the number of messages.
    """

    state: AlarmState = AlarmState.OK
    since_us: int = 0
    told_us: int = 0
    times: int = 0

    def apply_condition(
        self, holds: bool | None, now_us: int, for_us: int, repeat_us: int | None
    ) -> tuple[Alarm, str | None]:
        """Return the next state for a new value of the alert's condition, and the message to send or None."""
        if holds is None:
            return self, None
        if not holds:
            return Alarm(), "resolved" if self.state is AlarmState.FIRING else None
        pending = replace(self, state=AlarmState.PENDING, since_us=now_us)
        now = pending if self.state is AlarmState.OK else self
        if now.state is AlarmState.PENDING:
            if now_us - now.since_us < for_us:
                return now, None
            return replace(now, state=AlarmState.FIRING, told_us=now_us, times=1), "firing"
        if repeat_us is not None and now_us - now.told_us >= repeat_us:
            return replace(now, told_us=now_us, times=now.times + 1), "firing"
        return now, None

    def plain(self) -> dict[str, Any]:
        """Return the fields that the journal stores for a firing alarm."""
        return {"since": self.since_us, "told": self.told_us, "times": self.times}

    @staticmethod
    def of(plain: dict[str, Any]) -> Alarm:
        return Alarm(AlarmState.FIRING, plain["since"], plain["told"], plain["times"])
