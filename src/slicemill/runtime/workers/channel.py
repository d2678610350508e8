"""Messages between driver and workers: framing, authentication, and the listening socket.

Frames are those of `multiprocessing.connection`, because workers use its `Connection` and its key exchange: a
length of four bytes, then the content. The first byte of the content is the kind of the frame, and the rest
is a pickle. The driver's end never blocks, even if a worker is stopped in the middle of a message or does not
read. A pickle is loaded only after the peer has proved that it has the key.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import select
import socket
import struct
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path
from typing import TypeAlias

# Kinds of frames (messages on a connection) that workers send.
HELLO, READY, ANSWER, NOTICE, LEAVING = b"H", b"R", b"A", b"N", b"L"
# Kinds of frames (messages on a connection) that the driver sends.
MESSAGE, END = b"M", b"E"

# Time in seconds within which a peer must prove its key and send HELLO.
HANDSHAKE_S = 10.0
# Maximum number of concurrent handshakes. Further connections are closed at once.
_HANDSHAKES = 256
_HEADER = struct.Struct("!i")
_LONG_HEADER = struct.Struct("!Q")
_CHUNK = 1 << 16
# The path of a Unix socket has at most 108 bytes on Linux and 104 on other systems, including a zero byte.
_PATH_BYTES = 103

Address: TypeAlias = str | tuple[str, int]


@dataclass(frozen=True, slots=True)
class Hello:
    """First message of a worker, with its identity."""

    worker: int
    incarnation: int
    name: str
    host: str
    pid: int


def encode(kind: bytes, value: object) -> memoryview:
    buffer = io.BytesIO()
    buffer.write(kind)
    pickle.dump(value, buffer, pickle.HIGHEST_PROTOCOL)
    return buffer.getbuffer()


def connect(address: Address, key: bytes) -> Connection[bytes, bytes]:
    """Connect a worker to the driver.

    Both sides prove that they have the same key.
    """
    if isinstance(address, str):
        near = socket.socket(socket.AF_UNIX)
        near.settimeout(HANDSHAKE_S)
        near.connect(address)
    else:
        near = socket.create_connection(address, HANDSHAKE_S)
        _tune(near)
    near.settimeout(None)
    connection: Connection[bytes, bytes] = Connection(near.detach())
    try:
        prove(connection, key)
    except BaseException:
        connection.close()
        raise
    return connection


def prove(connection: Connection[bytes, bytes], key: bytes) -> None:
    """Prove to the driver that this worker has the key, and verify that the driver has it too."""
    answer_challenge(connection, key)
    deliver_challenge(connection, key)


def clear_abandoned(address: Address) -> None:
    """Remove the Unix socket of a driver that was killed."""
    if isinstance(address, str) and _is_abandoned(address):
        with contextlib.suppress(OSError):
            Path(address).unlink()
            Path(address).parent.rmdir()


def _is_abandoned(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(HANDSHAKE_S)
        try:
            probe.connect(path)
            # A running driver sends a challenge first. A dying driver may still accept the connection.
            return not probe.recv(1)
        except (ConnectionRefusedError, ConnectionResetError):
            return True
        except OSError:
            return False


def _tune(tcp: socket.socket) -> None:
    # A message of 20 KB is written in two parts. With Nagle's algorithm the second part would wait 40 ms.
    tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # With keep-alive packets, the loss of a host is detected after half a minute, not after hours.
    tcp.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            tcp.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class Channel:
    """Driver's end of a connection to a worker. Its methods never block."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._out: deque[memoryview] = deque()
        self._head = bytearray()  # beginning of an incomplete frame
        self._body: memoryview | None = None
        self._filled = 0

    def fileno(self) -> int:
        return self._sock.fileno()

    @property
    def sending(self) -> bool:
        """Return True while bytes wait to be sent, because the worker does not read."""
        return bool(self._out)

    def send(self, frame: memoryview | bytes) -> None:
        size = len(frame)
        header = _HEADER.pack(size) if size < 1 << 31 else _HEADER.pack(-1) + _LONG_HEADER.pack(size)
        if size < _CHUNK:
            self._out.append(memoryview(header + frame))
        else:
            self._out += (memoryview(header), memoryview(frame))
        self.flush()

    def flush(self) -> None:
        """Send waiting bytes until the socket would block."""
        while self._out:
            part = self._out[0]
            try:
                sent = self._sock.send(part)
            except BlockingIOError:
                return
            if sent == len(part):
                self._out.popleft()
            else:
                self._out[0] = part[sent:]

    def receive(self) -> list[memoryview]:
        """Return the complete frames that have arrived from the worker.

        Raise EOFError if the connection is closed and no frame is left.
        """
        frames: list[memoryview] = []
        while True:
            try:
                if self._body is not None:
                    got = self._sock.recv_into(self._body[self._filled :])
                else:
                    data = self._sock.recv(_CHUNK)
                    got = len(data)
            except BlockingIOError:
                return frames
            if not got:
                if frames:
                    return frames
                raise EOFError
            if self._body is not None:
                self._filled += got
                if self._filled == len(self._body):
                    frames.append(self._body)
                    self._body = None
                continue
            self._take(data, frames)
            if got < _CHUNK and self._body is None:
                return frames

    def _take(self, data: bytes, frames: list[memoryview]) -> None:
        self._head += data
        at = 0
        while len(self._head) - at >= 4:
            (size,) = _HEADER.unpack_from(self._head, at)
            begin = at + 4
            if size == -1:
                if len(self._head) - at < 12:
                    break
                (size,) = _LONG_HEADER.unpack_from(self._head, begin)
                begin += 8
            if size < 1:
                raise OSError("the frame has no kind")
            here = self._head[begin : begin + size]
            at = begin + len(here)
            if len(here) == size:
                frames.append(memoryview(here))
                continue
            # The rest of a large frame is received directly into the buffer of the frame.
            self._body = memoryview(bytearray(size))
            self._body[: len(here)] = here
            self._filled = len(here)
        del self._head[:at]

    def close(self) -> None:
        self._sock.close()


class WorkerListener:
    """Listening socket of the driver, to which workers connect.

    The socket is a Unix socket, or a TCP socket if `listen` has an address. Each connection has a thread and
    limited time for the handshake. Then the socket is passed to `admit`.
    """

    def __init__(
        self,
        listen: tuple[str, int] | None,
        key: bytes,
        admit: Callable[[Hello, socket.socket], None],
        *,
        limit_s: float = HANDSHAKE_S,
    ) -> None:
        self._key = key
        self._admit = admit
        self._limit_s = limit_s
        self._peers: dict[
            threading.Thread, socket.socket
        ] = {}  # thread of each handshake in progress -> socket
        self._changing = threading.Lock()
        self._folder: Path | None = None
        self._stopping = threading.Event()
        self._wake, self._woken = socket.socketpair()
        self.address: Address
        if listen is None:
            self._folder = _socket_folder()
            self.address = str(self._folder / "s")
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.bind(self.address)
        else:
            self._socket = socket.create_server(listen)
            self.address = self._socket.getsockname()[:2]
        self._socket.listen(128)
        self._socket.setblocking(False)
        self._thread = threading.Thread(target=self._accept, name="slicemill entrance", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening, and close connections whose handshake is in progress."""
        self._stopping.set()
        self._wake.send(b"\0")
        self._thread.join()
        with self._changing:
            peers = dict(self._peers)
        for greeter, peer in peers.items():
            _hang_up(peer)
            greeter.join()
        for each in (self._socket, self._wake, self._woken):
            each.close()
        if self._folder is not None:
            Path(str(self.address)).unlink(missing_ok=True)
            # A worker that lost the driver may have removed the folder already.
            with contextlib.suppress(FileNotFoundError):
                self._folder.rmdir()

    def _accept(self) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while True:
            poll.poll()
            if self._stopping.is_set():
                return
            try:
                peer, _ = self._socket.accept()
            except OSError:
                # The listener goes on if a peer has disconnected or file descriptors are exhausted.
                self._stopping.wait(0.01)
                continue
            if len(self._peers) == _HANDSHAKES:
                peer.close()
                continue
            greeter = threading.Thread(
                target=self._greet, args=(peer,), name="slicemill greeter", daemon=True
            )
            with self._changing:
                self._peers[greeter] = peer
            greeter.start()

    def _greet(self, peer: socket.socket) -> None:
        # The time limit covers the whole handshake, which a peer could prolong by sending single bytes.
        late = threading.Timer(self._limit_s, _hang_up, (peer,))
        late.daemon = True
        late.start()
        hello = self._read_hello(peer)
        late.cancel()
        if hello is None:
            peer.close()
        else:
            self._admit(hello, peer)
        with self._changing:
            del self._peers[threading.current_thread()]

    def _read_hello(self, peer: socket.socket) -> Hello | None:
        connection: Connection[bytes, bytes] | None = None
        try:
            peer.setblocking(True)
            if peer.family != socket.AF_UNIX:
                _tune(peer)
            connection = Connection(os.dup(peer.fileno()))
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
            frame = connection.recv_bytes()
            hello = pickle.loads(frame[1:]) if frame[:1] == HELLO else None
            return hello if isinstance(hello, Hello) else None
        except Exception:
            # Any bytes of a peer without the key are ignored.
            return None
        finally:
            if connection is not None:
                connection.close()


def _hang_up(peer: socket.socket) -> None:
    with contextlib.suppress(OSError):
        peer.shutdown(socket.SHUT_RDWR)


def _socket_folder() -> Path:
    """Create a private folder with a path short enough for Unix sockets."""
    for base in (None, "/tmp"):
        folder = Path(tempfile.mkdtemp(prefix="slicemill-", dir=base))
        if len(os.fsencode(folder / "s")) <= _PATH_BYTES:
            return folder
        folder.rmdir()
    raise OSError("the folder for temporary files has too long a path for a Unix socket")
