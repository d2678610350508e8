"""Live results: send the newly committed results of a query to all clients that follow it.

    dispatcher ── commit ──► watcher thread ──► event loop: read and encode once ──► connections that have
                                                                                     drained their output
                              log of the query  ◄── epoch by epoch ── slow followers, each with its own
                              cursor

The only state of a follower is its cursor in the query's log. While its client keeps up, the follower's task
sleeps. On a commit, the event loop encodes the new rows once and writes them to all sleeping followers of
the query, with one write per connection. A slow follower falls behind in the log and reads from there in its
own task. So no output queue grows, and a slow follower does not delay others.
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

from slicemill.lifecycle.query import Query
from slicemill.server.encoding import EpochRows, RowLayout
from slicemill.server.service import MillService
from slicemill.storage.log import Epoch, Log
from slicemill.storage.segments import ExtentFreed

Encoder = Callable[[EpochRows, Epoch, int], bytes]  # the integer is the version of the query

_CACHE_BYTES = 64 << 20
_LOOK_EVERY_S = 0.5
# Larger epochs are encoded in a thread, because they would block the event loop for all followers.
_ROWS_AT_ONCE = 2_000
_BYTES_AT_ONCE = 64 << 10
_MOST_IN_RECENT = 20_000  # maximum rows of an epoch that is sent to a new follower which requests recent rows
_EPOCHS_READ = 256  # number of decoded epochs in the cache, for followers that request different formats


def recent_epoch(log: Log, rows: int) -> int:
    """Return the epoch (commit) at which about the last `rows` rows of a log begin."""
    found, left = log.head + 1, rows
    before = max(log.newest(rows) - 1, log.shown_begun_after)
    for epoch in reversed(log.epochs(after=before) if rows else []):
        if left <= 0 or epoch.rows > _MOST_IN_RECENT:
            break
        found, left = epoch.number, left - epoch.rows
    return found


class DirectConnection(Protocol):
    """Connection to which code outside of its own task may write."""

    @staticmethod
    def frame_content(content: bytes) -> bytes:
        """Return the content in the frame (for example an HTTP chunk) that the protocol requires."""

    def takes(self) -> bool:
        """Return True if the client has drained most of its pending output."""

    def write(self, framed: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class LiveEpoch:
    """Encoded rows of some epochs (commits), and the epoch to continue from.

    Empty `content` means that no rows arrived during the idle time. `gap` is True if earlier rows are no
    longer retained. A changelog then starts again with the current rows of its table.
    """

    content: bytes
    next_epoch: int
    gap: bool = False


@dataclass(slots=True)
class LiveCounts:
    """Numbers of epochs encoded, epochs sent to followers, and followers."""

    encoded: int = 0
    sent: int = 0
    followers: int = 0


@dataclass(slots=True, eq=False)
class _IdleFollower:
    """Follower (client of live results) that is up to date. The event loop writes new rows for it."""

    query: Query
    cursor: int
    encode: Encoder
    connection: DirectConnection
    until_s: float
    needed: asyncio.Event = field(default_factory=asyncio.Event)


class LiveResults:
    """Followers (clients of live results) of the queries of a service, in one event loop."""

    def __init__(self, service: MillService) -> None:
        self._service = service
        self.counts = LiveCounts()
        self._events: dict[str, asyncio.Event] = {}
        self._sleepers: dict[str, set[_IdleFollower]] = {}
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
        """Yield the results of a query from epoch (commit) `since` on.

        The iteration ends when the query is dropped or the server stops. Rows that the event loop has
        written directly to `connection` are not yielded again. After `idle_s` seconds without rows an empty
        epoch is yielded, so that the caller can check its client. With `columns`, the iteration also ends
        when the query is replaced by a version with other columns.
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
                return  # the query was replaced
            event = self._events.setdefault(query.name, asyncio.Event())
            gap = query.log.has_freed_after(cursor)
            epochs = self._epochs_after(query, cursor)
            # A follower that is behind gets several epochs in one write, which reduces the number
            # of writes under load.
            parts, size = list[bytes](), 0
            for epoch in epochs:
                if columns is not None and query.log.columns_at(epoch.number) is not columns:
                    cursor = epoch.number
                    continue
                try:
                    content = await self._content(query, epoch, encode)
                except ExtentFreed:
                    content = None
                if parts and (content is None or size >= _BYTES_AT_ONCE):
                    yield self._sent(parts, cursor + 1, gap)
                    gap, parts, size = False, [], 0
                if content is None and query.log.freed >= epoch.number:
                    break  # the epoch was freed, so the list of epochs is read again
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

    # -- Followers that are up to date --------------------------------------------------------------

    async def _sleep(
        self, query: Query, cursor: int, encode: Encoder, idle_s: float, connection: DirectConnection
    ) -> tuple[int, bool]:
        """Sleep while the event loop writes new rows for this follower.

        Wakes up when the client is slow, the query ends, or the idle time is over. Return the follower's
        cursor, and True if the idle time is over.
        """
        loop = asyncio.get_running_loop()
        sleeper = _IdleFollower(query, cursor, encode, connection, loop.time() + idle_s)
        sleepers = self._sleepers.setdefault(query.name, set())
        sleepers.add(sleeper)
        try:
            await sleeper.needed.wait()
        finally:
            sleepers.discard(sleeper)
            if not sleepers and self._sleepers.get(query.name) is sleepers:
                del self._sleepers[query.name]
        return sleeper.cursor, loop.time() >= sleeper.until_s

    def _write_to_sleepers(self, query: Query, sleepers: set[_IdleFollower]) -> None:
        """Write new rows to all followers that are up to date, whose own tasks sleep."""
        framed: dict[tuple[int, Encoder, Callable[[bytes], bytes]], tuple[bytes, int, int] | None] = {}
        for sleeper in sleepers:
            if sleeper.query is not query:
                continue  # the follower reads a dropped query of the same name
            frame = sleeper.connection.frame_content
            key = sleeper.cursor, sleeper.encode, frame
            if key not in framed:
                framed[key] = self._frame_epochs(query, sleeper.cursor, sleeper.encode, frame)
            found = framed[key]
            if found is None or (found[1] and not sleeper.connection.takes()):
                sleeper.needed.set()
            elif found[1]:
                content, epochs, sleeper.cursor = found
                sleeper.connection.write(content)
                self.counts.sent += epochs

    def _frame_epochs(
        self, query: Query, cursor: int, encode: Encoder, frame: Callable[[bytes], bytes]
    ) -> tuple[bytes, int, int] | None:
        """Return the rows after a cursor as one HTTP chunk, the number of epochs, and the last epoch.

        Return None if there are too many rows, or if rows were freed. Each follower then reads the rows in
        its own task.
        """
        epochs = self._epochs_after(query, cursor)
        if not epochs:
            return b"", 0, cursor
        rows, size = sum(epoch.rows for epoch in epochs), sum(epoch.bytes for epoch in epochs)
        if rows > _ROWS_AT_ONCE or size > _BYTES_AT_ONCE or query.log.has_freed_after(cursor):
            return None
        if query.log.columns_at(epochs[-1].number) is not query.log.columns_at(max(cursor, 0)):
            return None  # the query was replaced
        try:
            content = b"".join(self._encode_cached(query, epoch, encode) for epoch in epochs)
        except ExtentFreed:
            return None
        return frame(content), len(epochs), epochs[-1].number

    # -- Reading and encoding --------------------------------------------------------------------------

    def _epochs_after(self, query: Query, cursor: int) -> Sequence[Epoch]:
        """Return the epochs after a cursor. Followers with the same cursor share the list."""
        head = query.log.head
        if cursor >= head:
            return ()
        key = (query.name, head, cursor, query.log.freed)
        if self._newest.get(query.name, ((), ()))[0] != key:
            self._newest[query.name] = (key, query.log.epochs(after=cursor))
        return self._newest[query.name][1]

    def _epoch_rows(self, query: Query, epoch: Epoch) -> EpochRows:
        """Return the rows of an epoch, read once for all encodings."""
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
            return self._encode_cached(query, epoch, encode)
        key = (id(query), epoch, encode)
        known = self._encoded.get(key)
        if known is not None:
            return known
        running = self._encoding.get(key)
        if running is None:  # the first follower that needs the encoded rows starts a thread
            encoding = asyncio.to_thread(self._encode, query, epoch, encode)
            running = self._encoding[key] = asyncio.ensure_future(encoding)
            running.add_done_callback(lambda _: self._encoding.pop(key, None))
        return self._kept(key, await asyncio.shield(running))

    def _encode_cached(self, query: Query, epoch: Epoch, encode: Encoder) -> bytes:
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

    # -- Notification of commits ---------------------------------------------------------------------

    def _watch(self) -> None:
        mill = self._service.mill
        changed, seen = mill.dispatcher.changed, -1
        while True:
            with changed:
                if mill.home.epoch == seen:  # if the numbers differ, there is a new commit already
                    changed.wait(_LOOK_EVERY_S)
                seen = mill.home.epoch
            assert self._loop is not None, "start() sets the loop"
            if not self._waking:
                self._waking = True
                with suppress(RuntimeError):  # the loop has ended
                    self._loop.call_soon_threadsafe(self._wake)
            if self._stop:
                return

    def _wake(self) -> None:
        """Wake the followers of queries with new epochs and of dropped queries. Runs in the event loop."""
        self._waking = False
        assert self._loop is not None, "start() sets the loop"
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
