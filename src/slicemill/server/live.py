"""Live results: what is committed for a query goes to all who follow it, encoded once (P38).

    dispatcher ── commit ──► watcher thread ──► event of the query ──► followers
                                                                        │ each at its own place
                              log of the query  ◄── epoch by epoch ─────┘

A follower has a place in the query's log and nothing else. One that is slow falls behind in the log, where
its rows are anyway; no queue grows, and nobody waits for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from slicemill.engine.query import Query
from slicemill.server.service import MillService
from slicemill.storage.arrow_schema import as_results
from slicemill.storage.log import Epoch
from slicemill.storage.segments import ExtentGone

Encoder = Callable[[pa.Table, Epoch], bytes]

_CACHE_BYTES = 64 << 20
_LOOK_EVERY_S = 1.0
# Encoding more rows than these would hold up everybody else's.
_ROWS_AT_ONCE = 2_000
_BYTES_AT_ONCE = 64 << 10
_TABLES = 256  # of as many rows at most, for those who want the same in another form


@dataclass(frozen=True, slots=True)
class LiveEpoch:
    """Encoded rows of some epochs, and the epoch to ask for next; without content, nothing came for a while.

    With a `gap`, rows before it are not retained any more.
    """

    content: bytes
    next_epoch: int
    gap: bool = False


@dataclass(slots=True)
class LiveCounts:
    """How many epochs were encoded, how many went out to followers, and how many followers there are."""

    encoded: int = 0
    sent: int = 0
    followers: int = 0


class LiveResults:
    """Followers of the queries of a service, in one event loop."""

    def __init__(self, service: MillService) -> None:
        self._service = service
        self.counts = LiveCounts()
        self._events: dict[str, asyncio.Event] = {}
        self._heads: dict[str, int] = {}
        self._encoded: OrderedDict[tuple[int, int, Encoder], bytes] = OrderedDict()
        self._encoding: dict[tuple[int, int, Encoder], asyncio.Future[bytes]] = {}
        self._newest: dict[str, tuple[tuple[object, ...], Sequence[Epoch]]] = {}
        self._tables: OrderedDict[tuple[int, int], pa.Table] = OrderedDict()
        self._reading = threading.Lock()
        self._bytes = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = False
        self._watcher = threading.Thread(target=self._watch, name="live results", daemon=True)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._watcher.start()

    def stop(self) -> None:
        """End all followers."""
        self._stop = True
        self._service.mill.dispatcher.notify()

    async def follow(
        self, query: Query, since: int, encode: Encoder, idle_s: float = 15.0
    ) -> AsyncIterator[LiveEpoch]:
        """The results of a query from epoch `since` on, until it is dropped or the server stops."""
        self.counts.followers += 1
        try:
            async for epoch in self._follow(query, since - 1, encode, idle_s):
                yield epoch
        finally:
            self.counts.followers -= 1

    async def _follow(
        self, query: Query, cursor: int, encode: Encoder, idle_s: float
    ) -> AsyncIterator[LiveEpoch]:
        told_gap = False
        while not self._stop and self._service.mill.queries.get(query.name) is query:
            event = self._events.setdefault(query.name, asyncio.Event())
            gap = not told_gap and 0 <= cursor < query.log.freed
            epochs = self._epochs_after(query, cursor)
            # Whoever is behind gets several at once: fewer, larger writes when there is much to do.
            parts, size = list[bytes](), 0
            for epoch in epochs:
                try:
                    content = await self._content(query, epoch, encode)
                except ExtentGone:
                    content = None
                if parts and (content is None or size >= _BYTES_AT_ONCE):
                    yield self._sent(parts, cursor + 1, gap)
                    told_gap, gap, parts, size = told_gap or gap, False, [], 0
                if content is None:
                    gap = True
                    continue
                cursor = epoch.number
                parts.append(content)
                size += len(content)
            if parts:
                yield self._sent(parts, cursor + 1, gap)
                told_gap = told_gap or gap
            if not epochs:
                try:
                    async with asyncio.timeout(idle_s):
                        await event.wait()
                except TimeoutError:
                    yield LiveEpoch(b"", cursor + 1)

    def _epochs_after(self, query: Query, cursor: int) -> Sequence[Epoch]:
        """The epochs behind a place in a query's log; those who are at the same place share the list."""
        head = query.log.head
        if cursor >= head:
            return ()
        key = (query.name, head, cursor)
        if self._newest.get(query.name, ((), ()))[0] != key:
            self._newest[query.name] = (key, query.log.epochs(after=cursor))
        return self._newest[query.name][1]

    def _table(self, query: Query, epoch: Epoch) -> pa.Table:
        """The rows of an epoch, read once for those who want them in different forms."""
        key = (id(query), epoch.number)
        with self._reading:
            known = self._tables.get(key)
        if known is not None:
            return known
        table = as_results(query.log.read(epoch))
        if epoch.rows <= _ROWS_AT_ONCE:
            with self._reading:
                self._tables[key] = table
                while len(self._tables) > _TABLES:
                    self._tables.popitem(last=False)
        return table

    def _sent(self, parts: list[bytes], next_epoch: int, gap: bool) -> LiveEpoch:
        self.counts.sent += len(parts)
        return LiveEpoch(b"".join(parts), next_epoch, gap)

    async def _content(self, query: Query, epoch: Epoch, encode: Encoder) -> bytes:
        key = (id(query), epoch.number, encode)
        known = self._encoded.get(key)
        if known is not None:
            return known

        def encoded() -> bytes:
            self.counts.encoded += 1
            return encode(self._table(query, epoch), epoch)

        if epoch.rows <= _ROWS_AT_ONCE:
            content = encoded()
        else:  # beside the loop, by the first who wants it
            running = self._encoding.get(key)
            if running is None:
                running = self._encoding[key] = asyncio.ensure_future(asyncio.to_thread(encoded))
                running.add_done_callback(lambda _: self._encoding.pop(key, None))
            content = await asyncio.shield(running)
        if key not in self._encoded:
            self._encoded[key] = content
            self._bytes += len(content)
            while self._bytes > _CACHE_BYTES:
                _, oldest = self._encoded.popitem(last=False)
                self._bytes -= len(oldest)
        return content

    def _watch(self) -> None:
        changed = self._service.mill.dispatcher.changed
        while True:
            with changed:
                changed.wait(_LOOK_EVERY_S)
            assert self._loop is not None, "it is started with a loop"
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._wake)
            if self._stop:
                return

    def _wake(self) -> None:
        """Wake those whose query has something new, or is gone; in the loop."""
        for name, event in list(self._events.items()):
            query = self._service.mill.queries.get(name)
            head = -2 if query is None else query.log.head
            if query is None:
                self._newest.pop(name, None)
            if self._stop or head != self._heads.get(name):
                self._heads[name] = head
                del self._events[name]
                event.set()
