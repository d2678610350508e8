"""Live results: what is committed for a query goes to all who follow it, encoded once (P38).

    dispatcher ── commit ──► watcher thread ──► loop: read and encode once ──► written to all connections
                                                                               that have taken the last
                              log of the query  ◄── epoch by epoch ── the others, each at its own place

A follower has a place in the query's log and nothing else. As long as its client takes what it gets, it
sleeps: whoever hears of a commit writes to all connections of a query in one pass, which costs each of them
one write. One that is slow falls behind in the log, where its rows are anyway, and reads on by itself; no
queue grows, and nobody waits for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from slicemill.engine.query import Query
from slicemill.server.epoch_rows import EpochRows, RowLayout
from slicemill.server.service import MillService
from slicemill.storage.epochs import Epoch
from slicemill.storage.log import Log
from slicemill.storage.segments import ExtentGone

Encoder = Callable[[EpochRows, Epoch, int], bytes]  # rows of an epoch, and the version of their query

_CACHE_BYTES = 64 << 20
_LOOK_EVERY_S = 0.5
# Encoding more rows than these would hold up everybody else's.
_ROWS_AT_ONCE = 2_000
_BYTES_AT_ONCE = 64 << 10
_MOST_IN_RECENT = 20_000  # rows of one epoch that are still sent to whoever begins to look
_EPOCHS_READ = 256  # of as many rows at most, for those who want the same in another form


def recent_epoch(log: Log, rows: int) -> int:
    """The epoch to follow a log from to see its newest rows, about so many, before those that come."""
    found, left = log.head + 1, rows
    before = max(log.newest(rows) - 1, log.shown_begun_after)
    for epoch in reversed(log.epochs(after=before) if rows else []):
        if left <= 0 or epoch.rows > _MOST_IN_RECENT:
            break
        found, left = epoch.number, left - epoch.rows
    return found


class DirectConnection(Protocol):
    """A connection to which bytes can be written from outside of the task that serves it."""

    @staticmethod
    def framed(content: bytes) -> bytes:
        """The content as it goes over the connection."""

    def takes(self) -> bool:
        """Whether its client has taken most of what was written."""

    def write(self, framed: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class LiveEpoch:
    """Encoded rows of some epochs, and the epoch to ask for next; without content, nothing came for a while.

    With a `gap`, rows before it are not retained any more; those of a changelog begin anew with its table.
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


@dataclass(slots=True, eq=False)
class _Sleeper:
    """A follower that has all there is; what comes is written for it, until its task is needed again."""

    query: Query
    cursor: int
    encode: Encoder
    connection: DirectConnection
    until_s: float
    needed: asyncio.Event = field(default_factory=asyncio.Event)


class LiveResults:
    """Followers of the queries of a service, in one event loop."""

    def __init__(self, service: MillService) -> None:
        self._service = service
        self.counts = LiveCounts()
        self._events: dict[str, asyncio.Event] = {}
        self._sleepers: dict[str, set[_Sleeper]] = {}
        self._heads: dict[str, int] = {}
        self._encoded: OrderedDict[tuple[int, Epoch, Encoder], bytes] = OrderedDict()
        self._encoding: dict[tuple[int, Epoch, Encoder], asyncio.Future[bytes]] = {}
        self._newest: dict[str, tuple[tuple[object, ...], Sequence[Epoch]]] = {}
        self._layouts: dict[str, tuple[pa.Schema, RowLayout]] = {}
        self._rows: OrderedDict[tuple[int, Epoch], EpochRows] = OrderedDict()
        self._reading = threading.Lock()
        self._bytes = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = False
        self._waking = False
        self._watcher = threading.Thread(target=self._watch, name="live results", daemon=True)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._watcher.start()

    def stop(self) -> None:
        """End all followers."""
        self._stop = True
        self._service.mill.dispatcher.notify()

    async def follow(
        self,
        query: Query,
        since: int,
        encode: Encoder,
        idle_s: float,
        connection: DirectConnection | None = None,
        columns: pa.Schema | None = None,
    ) -> AsyncIterator[LiveEpoch]:
        """The results of a query from epoch `since` on, until it is dropped or the server stops.

        Those that its `connection` has got already are left out. Whoever follows is asked every `idle_s`
        seconds, be it with nothing. With `columns`, until the query has others.
        """
        self.counts.followers += 1
        try:
            async for epoch in self._follow(query, since - 1, encode, idle_s, connection, columns):
                yield epoch
        finally:
            self.counts.followers -= 1

    async def _follow(
        self,
        query: Query,
        cursor: int,
        encode: Encoder,
        idle_s: float,
        connection: DirectConnection | None,
        columns: pa.Schema | None,
    ) -> AsyncIterator[LiveEpoch]:
        while not self._stop and self._service.mill.queries.get(query.name) is query:
            if columns is not None and query.log.columns is not columns:
                return  # it was replaced
            event = self._events.setdefault(query.name, asyncio.Event())
            gap = query.log.missed(cursor)
            epochs = self._epochs_after(query, cursor)
            # Whoever is behind gets several at once: fewer, larger writes when there is much to do.
            parts, size = list[bytes](), 0
            for epoch in epochs:
                if columns is not None and query.log.columns_at(epoch.number) is not columns:
                    cursor = epoch.number
                    continue
                try:
                    content = await self._content(query, epoch, encode)
                except ExtentGone:
                    content = None
                if parts and (content is None or size >= _BYTES_AT_ONCE):
                    yield self._sent(parts, cursor + 1, gap)
                    gap, parts, size = False, [], 0
                if content is None and query.log.freed >= epoch.number:
                    break  # freed meanwhile: what stands in its place is looked up
                if content is None:
                    gap = True
                    continue
                cursor = epoch.number
                parts.append(content)
                size += len(content)
            if parts:
                yield self._sent(parts, cursor + 1, gap)
            if epochs:
                continue
            if connection is not None and connection.takes():
                cursor, idle = await self._sleep(query, cursor, encode, idle_s, connection)
                if idle:
                    yield LiveEpoch(b"", cursor + 1)
                continue
            try:
                async with asyncio.timeout(idle_s):
                    await event.wait()
            except TimeoutError:
                yield LiveEpoch(b"", cursor + 1)

    # -- those who have all there is -------------------------------------------------------------------

    async def _sleep(
        self, query: Query, cursor: int, encode: Encoder, idle_s: float, connection: DirectConnection
    ) -> tuple[int, bool]:
        """Have what comes written, until the client is slow, the query ends or the time is over.

        Returns how far it has come, and whether it is time to ask who follows.
        """
        loop = asyncio.get_running_loop()
        sleeper = _Sleeper(query, cursor, encode, connection, loop.time() + idle_s)
        sleepers = self._sleepers.setdefault(query.name, set())
        sleepers.add(sleeper)
        try:
            await sleeper.needed.wait()
        finally:
            sleepers.discard(sleeper)
            if not sleepers and self._sleepers.get(query.name) is sleepers:
                del self._sleepers[query.name]
        return sleeper.cursor, loop.time() >= sleeper.until_s

    def _write_to_sleepers(self, query: Query, sleepers: set[_Sleeper]) -> None:
        """Write what is new to all that have what was there before, each form made once."""
        framed: dict[tuple[int, Encoder, Callable[[bytes], bytes]], tuple[bytes, int, int] | None] = {}
        for sleeper in sleepers:
            if sleeper.query is not query:
                continue  # one of its name that was dropped
            frame = sleeper.connection.framed
            key = sleeper.cursor, sleeper.encode, frame
            if key not in framed:
                framed[key] = self._framed(query, sleeper.cursor, sleeper.encode, frame)
            found = framed[key]
            if found is None or (found[1] and not sleeper.connection.takes()):
                sleeper.needed.set()
            elif found[1]:
                content, epochs, sleeper.cursor = found
                sleeper.connection.write(content)
                self.counts.sent += epochs

    def _framed(
        self, query: Query, cursor: int, encode: Encoder, frame: Callable[[bytes], bytes]
    ) -> tuple[bytes, int, int] | None:
        """What comes after a place as bytes, how many epochs that is, and the last of them.

        None where it is so much, or so long ago, that each follower has to read it in steps.
        """
        epochs = self._epochs_after(query, cursor)
        if not epochs:
            return b"", 0, cursor
        rows, size = sum(epoch.rows for epoch in epochs), sum(epoch.bytes for epoch in epochs)
        if rows > _ROWS_AT_ONCE or size > _BYTES_AT_ONCE or query.log.missed(cursor):
            return None
        if query.log.columns_at(epochs[-1].number) is not query.log.columns_at(max(cursor, 0)):
            return None  # it was replaced
        try:
            content = b"".join(self._content_now(query, epoch, encode) for epoch in epochs)
        except ExtentGone:
            return None
        return frame(content), len(epochs), epochs[-1].number

    # -- reading and encoding --------------------------------------------------------------------------

    def _epochs_after(self, query: Query, cursor: int) -> Sequence[Epoch]:
        """The epochs behind a place in a query's log; those who are at the same place share the list."""
        head = query.log.head
        if cursor >= head:
            return ()
        key = (query.name, head, cursor, query.log.freed)
        if self._newest.get(query.name, ((), ()))[0] != key:
            self._newest[query.name] = (key, query.log.epochs(after=cursor))
        return self._newest[query.name][1]

    def _epoch_rows(self, query: Query, epoch: Epoch) -> EpochRows:
        """The rows of an epoch, read once for those who want them in different forms."""
        key = (id(query), epoch)
        with self._reading:
            known = self._rows.get(key)
            columns = query.log.columns_at(epoch.number)
            owner, layout = self._layouts.get(query.name, (None, None))
            if layout is None or owner is not columns:
                layout = RowLayout.of(columns)
                self._layouts[query.name] = columns, layout
        if known is not None:
            return known
        found = EpochRows.read(query.log, epoch, layout)
        if epoch.rows <= _ROWS_AT_ONCE:
            with self._reading:
                self._rows[key] = found
                while len(self._rows) > _EPOCHS_READ:
                    self._rows.popitem(last=False)
        return found

    def _sent(self, parts: list[bytes], next_epoch: int, gap: bool) -> LiveEpoch:
        self.counts.sent += len(parts)
        return LiveEpoch(b"".join(parts), next_epoch, gap)

    async def _content(self, query: Query, epoch: Epoch, encode: Encoder) -> bytes:
        if epoch.rows <= _ROWS_AT_ONCE:
            return self._content_now(query, epoch, encode)
        key = (id(query), epoch, encode)
        known = self._encoded.get(key)
        if known is not None:
            return known
        running = self._encoding.get(key)
        if running is None:  # beside the loop, by the first who wants it
            encoding = asyncio.to_thread(self._encode, query, epoch, encode)
            running = self._encoding[key] = asyncio.ensure_future(encoding)
            running.add_done_callback(lambda _: self._encoding.pop(key, None))
        return self._kept(key, await asyncio.shield(running))

    def _content_now(self, query: Query, epoch: Epoch, encode: Encoder) -> bytes:
        key = (id(query), epoch, encode)
        known = self._encoded.get(key)
        return self._kept(key, self._encode(query, epoch, encode)) if known is None else known

    def _encode(self, query: Query, epoch: Epoch, encode: Encoder) -> bytes:
        self.counts.encoded += 1
        return encode(self._epoch_rows(query, epoch), epoch, query.version_at(epoch.number))

    def _kept(self, key: tuple[int, Epoch, Encoder], content: bytes) -> bytes:
        if key not in self._encoded:
            self._encoded[key] = content
            self._bytes += len(content)
            while self._bytes > _CACHE_BYTES:
                _, oldest = self._encoded.popitem(last=False)
                self._bytes -= len(oldest)
        return content

    # -- hearing of commits ----------------------------------------------------------------------------

    def _watch(self) -> None:
        mill = self._service.mill
        changed, seen = mill.dispatcher.changed, -1
        while True:
            with changed:
                if mill.home.epoch == seen:  # else there was a commit while nobody waited here
                    changed.wait(_LOOK_EVERY_S)
                seen = mill.home.epoch
            assert self._loop is not None, "it is started with a loop"
            if not self._waking:
                self._waking = True
                with suppress(RuntimeError):  # the loop has ended
                    self._loop.call_soon_threadsafe(self._wake)
            if self._stop:
                return

    def _wake(self) -> None:
        """Serve those whose query has something new, or is gone; in the loop."""
        self._waking = False
        assert self._loop is not None, "it is started with a loop"
        now = self._loop.time()
        for name in {**self._events, **self._sleepers}:
            query = self._service.mill.queries.get(name)
            head = -2 if query is None else query.log.head
            sleepers = self._sleepers.get(name, set())
            if self._stop or head != self._heads.get(name):
                self._heads[name] = head
                if event := self._events.pop(name, None):
                    event.set()
                if query is not None and not self._stop:
                    self._write_to_sleepers(query, sleepers)
            for sleeper in sleepers:
                if self._stop or sleeper.query is not query or now >= sleeper.until_s:
                    sleeper.needed.set()
            if query is None:
                self._newest.pop(name, None)
                self._layouts.pop(name, None)
