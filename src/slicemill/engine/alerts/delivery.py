"""Delivery of one alert: an outbox in the journal.

Messages are sent from the outbox to a webhook. The journal holds for each alert:

    {"id": "5f0a…",                  created once; prefix of the ids of its messages
     "epoch": 17,                    last delivered epoch of its query's rows
     "alarms": {"hot": {"since": …, "told": …, "times": 1}},       firing alarms
     "outbox": [{"id": "5f0a…-3", …}], "made": 3}                  undelivered messages, number of all so far

A message is committed before it is sent, and removed after the webhook has accepted it. Rows are sent epoch
by epoch, and the epoch is committed afterwards. So delivery is at least once, and duplicates have the same
id.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from slicemill.connectors.sinks.json_lines import encode
from slicemill.connectors.sinks.json_values import plain
from slicemill.connectors.webhook import WebhookError, post
from slicemill.engine.alerts.alarm import Alarm, AlarmState
from slicemill.engine.alerts.figures import Figures
from slicemill.esl.types.alert import FIGURES, Alert
from slicemill.esl.types.schema import TIMESTAMP, VARCHAR
from slicemill.storage.arrow_schema import as_results
from slicemill.storage.changes import Change
from slicemill.storage.epochs import Epoch
from slicemill.storage.files import unique_name
from slicemill.storage.home import Home
from slicemill.time import US

Send = Callable[[str, bytes, dict[str, str]], None]

_ROWS_PER_MESSAGE = 500
_MOST_WAITING = 100
_FIRST_PAUSE_US, _LONGEST_PAUSE_US = US, 300 * US
_LONGEST_WISH_S = 3600.0


@dataclass(frozen=True, slots=True)
class AlertStatus:
    """Status of an alert.

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
    """Return the journal fields of a new alert."""
    return {"id": unique_name(), "epoch": home.epoch, "alarms": {}, "outbox": [], "made": 0}


def webhook(url: str, body: bytes, headers: dict[str, str]) -> None:
    post(url, body, headers)


class AlertDelivery:
    """Alarms and undelivered messages of one alert; `clock` is in microseconds."""

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
        self._error: str | None = None  # of the webhook
        self._unclear: str | None = None  # why the condition has no value
        self._failures = 0
        self._retry_us = 0

    # -- conditions ------------------------------------------------------------------------------------

    def looked(self, holds: dict[str, tuple[bool | None, Figures]], unclear: str | None = None) -> None:
        """Apply the condition's values, by query or stream; queue messages."""
        now = self._clock()
        with self._changing:
            self._unclear = unclear
            messages: list[dict[str, Any]] = []
            for name in {**self._alarms, **holds}:
                found, figures = holds.get(name, (False, {}))
                if name not in holds and self.alert.target is not None:
                    continue  # not running; without a target, it has been dropped
                before = self._alarms.get(name, Alarm())
                after, told = before.looked(found, now, self.alert.for_us, self.alert.repeat_us)
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
        """Commit the alert's state; the caller holds the lock."""
        firing = {name: a.plain() for name, a in self._alarms.items() if a.state is AlarmState.FIRING}
        self._state = {**self._state, **fields, "alarms": firing}
        if not self._ended:
            self._home.commit(Change(alerts={self.key: self._state}))

    # -- delivering ------------------------------------------------------------------------------------

    @property
    def cursor(self) -> dict[str, int]:
        """Last delivered epoch, by log, of an alert that sends rows."""
        if self.alert.condition is not None or self.alert.target is None:
            return {}
        return {self.alert.target: self._state["epoch"]}

    @property
    def has_messages(self) -> bool:
        return bool(self._state["outbox"])

    def retry_in_s(self) -> float | None:
        """Return the time until the next retry, or None without error."""
        return None if self._error is None else max(0.0, (self._retry_us - self._clock()) / US)

    def deliver_new(self) -> None:
        """Send undelivered messages, except during the back-off after an error."""
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
        """Yield undelivered messages; advancing the iterator confirms the previous message."""
        while self._state["outbox"] and not self._ended:
            first = self._state["outbox"][0]
            yield first
            with self._changing:  # new messages may have been added meanwhile
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
            rows = encode(table.slice(first, _ROWS_PER_MESSAGE)).splitlines()
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
            pause_us = max(pause_us, int(US * min(problem.after_s, _LONGEST_WISH_S)))
        self._failures += 1
        self._retry_us = self._clock() + pause_us
        self._error = str(problem).strip() or type(problem).__name__

    def end(self) -> None:
        """Stop delivery of a dropped alert; its state is no longer written."""
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
            alert.name,
            alert.on,
            alert.text,
            alert.url,
            "following" if alert.condition is None else state.value,
            min((alarm.since_us for alarm in alarms.values()), default=None),
            firing,
            self._sent,
            self._sent_us,
            waiting,
            self._error or self._unclear,
        )


def _headers(body: dict[str, Any]) -> dict[str, str]:
    return {"User-Agent": "slicemill", "Idempotency-Key": body["id"]}
