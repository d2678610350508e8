"""Alert runner: evaluates conditions and delivers messages of all alerts.

One thread evaluates the conditions; each alert has a delivery thread. The dispatcher never waits for these
threads; it only calls `notify` after a commit. A slow or unreachable webhook delays only its own alert.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from slicemill.connectors.webhook import TIMEOUT_S, place_of
from slicemill.engine.alerts.delivery import AlertDelivery, AlertStatus, Send, new_state, webhook
from slicemill.engine.alerts.figures import FigureHistory, Figures
from slicemill.esl.types.alert import FIGURES, Alert, AlertSubject
from slicemill.esl.types.catalog import DroppedName, Statement
from slicemill.scalar.rows import compile_expression
from slicemill.scalar.values import ExpressionError

if TYPE_CHECKING:
    from slicemill.engine.mill import Mill

_LOGGER = logging.getLogger("slicemill")
_LOOK_EVERY_S = 1.0
_SHARE = 50  # evaluation uses at most 1/50 of the time

Value = Callable[[tuple[object, ...]], object]


class AlertRunner:
    """Alerts of a mill.

    `send` sends a message to a webhook and raises if the webhook rejects it.
    """

    def __init__(self, mill: Mill, clock: Callable[[], int], send: Send = webhook) -> None:
        self._mill = mill
        self._clock = clock
        self.send = send
        self._history = FigureHistory(mill)
        self._deliveries: dict[str, AlertDelivery] = {}
        self._conditions: dict[str, Value] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._looker: threading.Thread | None = None
        self._changed = threading.Condition()
        self._news = 0
        self._running = False
        self._tells_rows = False

    # -- alerts ----------------------------------------------------------------------------------------

    def begun(self, statements: Iterable[Statement]) -> dict[str, dict[str, Any] | None]:
        """Return the journal changes for declared and dropped alerts."""
        found: dict[str, dict[str, Any] | None] = {}
        for statement in statements:
            key = statement.name.lower()
            if isinstance(statement, DroppedName) and statement.kind == "ALERT":
                found[key] = None
            elif isinstance(statement, Alert) and found.get(key, self._mill.home.alerts.get(key)) is None:
                found[key] = new_state(self._mill.home)
        return found

    def watch(self, alerts: Mapping[str, Alert], begun: Iterable[str] = ()) -> None:
        """Replace the set of alerts.

        Alerts in `begun` are new, even if their declaration is unchanged.
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
                    known[key] = AlertDelivery(alert, self._mill.home, self._clock, self._sent)
                    if alert.condition is not None:
                        schema = FIGURES[alert.watched]
                        self._conditions[key] = compile_expression(alert.condition, schema)
            self._deliveries = known
            self._tells_rows = any(delivery.cursor for delivery in known.values())
            if self._running:
                self._start_threads()
            self._changed.notify_all()

    def _sent(self, url: str, body: bytes, headers: dict[str, str]) -> None:
        self.send(url, body, headers)

    def status(self) -> list[AlertStatus]:
        return [delivery.status() for delivery in self._deliveries.values()]

    def problems(self) -> list[str]:
        """Describe alerts whose webhook fails or whose condition has no value."""
        return [
            f"alert {one.name} ({place_of(one.url)}): {one.error}; it is tried again"
            for one in self.status()
            if one.error is not None
        ]

    def cursors(self) -> list[Mapping[str, int]]:
        """Return the last delivered epochs, by log, of alerts that send rows."""
        return [delivery.cursor for delivery in self._deliveries.values() if delivery.cursor]

    # -- evaluation and delivery -----------------------------------------------------------------------

    def look(self) -> None:
        """Evaluate every condition once."""
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
            delivery.looked(holds, unclear)
        self._history.forget(seen)
        if any(delivery.has_messages for delivery in self._deliveries.values()):
            self._wake()

    def deliver_new(self) -> None:
        """Send undelivered messages in the calling thread; failed ones are retried later."""
        for delivery in list(self._deliveries.values()):
            delivery.deliver_new()

    def notify(self) -> None:
        """Wake the deliveries of rows, after a commit of the mill."""
        if self._tells_rows:
            self._wake()

    def _wake(self) -> None:
        with self._changed:
            self._news += 1
            self._changed.notify_all()

    # -- threads ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the threads."""
        with self._changed:
            self._running = True
            self._start_threads()

    def stop(self) -> None:
        """Stop the threads; undelivered messages stay in the journal."""
        with self._changed:
            self._running = False
            threads = [*self._threads.values(), *([self._looker] if self._looker else [])]
            self._threads, self._looker = {}, None
            self._changed.notify_all()
        until = time.monotonic() + TIMEOUT_S
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _start_threads(self) -> None:
        if self._conditions and (self._looker is None or not self._looker.is_alive()):
            self._looker = threading.Thread(target=self._look_on, name="alerts", daemon=True)
            self._looker.start()
        for key, delivery in self._deliveries.items():
            if key not in self._threads:
                self._threads[key] = threading.Thread(
                    target=self._deliver_on, args=[delivery], name=f"alert {delivery.alert.name}", daemon=True
                )
                self._threads[key].start()

    def _look_on(self) -> None:
        while self._running:
            began = time.thread_time()
            try:
                self.look()
            except Exception:  # a concurrent plan change or a full disk; retry
                _LOGGER.warning("conditions of alerts were not looked at", exc_info=True)
            pause_s = max(_LOOK_EVERY_S, _SHARE * (time.thread_time() - began))
            with self._changed:
                self._changed.wait_for(lambda: not self._running, pause_s)

    def _deliver_on(self, delivery: AlertDelivery) -> None:
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
        """Wait for news after `seen`, or for the end of the back-off."""
        pause_s = delivery.retry_in_s()
        with self._changed:
            if pause_s is None:
                self._changed.wait_for(lambda: ending() or self._news != seen)
            else:
                self._changed.wait_for(ending, pause_s)
            return self._news
