"""The channel: frames in any pieces, peers with and without the key, a driver's end that never blocks."""

from __future__ import annotations

import pickle
import queue
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.workers.pools import PATIENCE_S
from slicemill.runtime.workers.channel import (
    HELLO,
    Address,
    Channel,
    Hello,
    WorkerListener,
    clear_abandoned,
    connect,
    encode,
    prove,
)

KEY = b"a key of the driver"
HELLO_0 = Hello(0, 7, "w0", "here", 1)
Admitted = queue.SimpleQueue[tuple[Hello, socket.socket]]


@contextmanager
def entrance(
    listen: tuple[str, int] | None = None, limit_s: float = PATIENCE_S
) -> Iterator[tuple[Address, Admitted]]:
    admitted: Admitted = queue.SimpleQueue()
    opened = WorkerListener(listen, KEY, lambda hello, sock: admitted.put((hello, sock)), limit_s=limit_s)
    try:
        yield opened.address, admitted
    finally:
        opened.close()
        while not admitted.empty():
            admitted.get()[1].close()


def raw(address: Address) -> socket.socket:
    if isinstance(address, str):
        peer = socket.socket(socket.AF_UNIX)
        peer.connect(address)
    else:
        peer = socket.create_connection(address)
    peer.settimeout(PATIENCE_S)
    return peer


def is_hung_up(peer: socket.socket) -> bool:
    try:
        while peer.recv(4096):
            pass
    except ConnectionError:
        return True
    return True


@pytest.mark.parametrize("listen", [None, ("127.0.0.1", 0)])
def test_who_has_the_key_and_says_hello_is_admitted(listen: tuple[str, int] | None) -> None:
    with entrance(listen) as (address, admitted), connect(address, KEY) as peer:
        peer.send_bytes(encode(HELLO, HELLO_0))
        hello, sock = admitted.get(timeout=PATIENCE_S)
        assert hello == HELLO_0
        if listen is not None:
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        sock.close()


def test_who_has_another_key_is_turned_away() -> None:
    with entrance() as (address, admitted):
        with pytest.raises(AuthenticationError):
            connect(address, b"another key")
        with connect(address, KEY) as peer:
            peer.send_bytes(encode(HELLO, HELLO_0))
            admitted.get(timeout=PATIENCE_S)[1].close()
        assert admitted.empty()


def test_who_asks_for_proof_and_has_none_is_not_trusted() -> None:
    near, far = socket.socketpair()
    with Connection(near.detach()) as worker, Connection(far.detach()) as impostor:
        impostor.send_bytes(b"#CHALLENGE#" + bytes(20))
        impostor.send_bytes(b"#WELCOME#")
        impostor.send_bytes(bytes(16))
        with pytest.raises(AuthenticationError):
            prove(worker, KEY)


@pytest.mark.parametrize(
    "said", [b"", b"\0", b"\0\0\0\x14half", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, b"\0\0\0\0"]
)
def test_who_is_silent_or_says_something_else_keeps_nobody_out_and_is_turned_away(said: bytes) -> None:
    with entrance(limit_s=0.2) as (address, admitted), raw(address) as stranger:
        stranger.sendall(said)
        with connect(address, KEY) as peer:
            peer.send_bytes(encode(HELLO, HELLO_0))
            admitted.get(timeout=PATIENCE_S)[1].close()
        assert is_hung_up(stranger)
        assert admitted.empty()


@pytest.mark.parametrize("first", [encode(b"A", HELLO_0), encode(HELLO, 1), HELLO + b"no pickle", b""])
def test_who_has_the_key_but_does_not_say_hello_is_turned_away(first: bytes) -> None:
    with entrance() as (address, admitted), connect(address, KEY) as peer:
        peer.send_bytes(first)
        with pytest.raises((EOFError, ConnectionError)):
            peer.recv_bytes()
        assert admitted.empty()


def test_closing_turns_away_who_has_not_said_hello_and_removes_the_socket() -> None:
    with entrance() as (address, _):
        silent = raw(address)
    with silent:
        assert is_hung_up(silent)
    assert not Path(str(address)).parent.exists()


def test_a_long_path_for_temporary_files_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("long" * 30)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with entrance() as (address, _):
        assert len(str(address)) < 107
    assert not list(long.iterdir())


def test_the_socket_of_a_driver_that_lives_is_not_removed_and_that_of_a_dead_one_is(tmp_path: Path) -> None:
    with entrance() as (address, _):
        clear_abandoned(address)
        assert Path(str(address)).is_socket()
    dead = tmp_path / "dead" / "s"
    dead.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(dead))
    clear_abandoned(str(dead))
    assert not dead.parent.exists()
    clear_abandoned(str(dead))
    clear_abandoned(("127.0.0.1", 1))


@contextmanager
def joined() -> Iterator[tuple[Channel, socket.socket]]:
    near, far = socket.socketpair()
    channel = Channel(near)
    with far:
        yield channel, far
    channel.close()


@given(
    payloads=st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=8),
    cuts=st.lists(st.integers(1, 300), max_size=12),
)
def test_frames_arrive_whole_however_they_are_cut(payloads: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(len(payload).to_bytes(4, "big") + payload for payload in payloads)
    received: list[bytes] = []
    with joined() as (channel, far):
        begin = 0
        for end in [*sorted(cut for cut in cuts if cut < len(stream)), len(stream)]:
            far.sendall(stream[begin:end])
            begin = end
            received += [bytes(frame) for frame in channel.receive()]
    assert received == payloads


def test_a_frame_with_a_long_length_is_read() -> None:
    with joined() as (channel, far):
        far.sendall(b"\xff\xff\xff\xff" + (5).to_bytes(8, "big") + b"h")
        assert channel.receive() == []
        far.sendall(b"ello")
        assert [bytes(frame) for frame in channel.receive()] == [b"hello"]


@pytest.mark.parametrize("size", [0, -2, -(1 << 31)])
def test_a_length_that_cannot_be_is_an_error(size: int) -> None:
    with joined() as (channel, far):
        far.sendall(size.to_bytes(4, "big", signed=True))
        with pytest.raises(OSError, match="has no kind"):
            channel.receive()


def test_the_end_comes_after_the_last_whole_frame() -> None:
    with joined() as (channel, far):
        far.sendall(b"\0\0\0\1A\0\0\0\2B")
        far.close()
        assert [bytes(frame) for frame in channel.receive()] == [b"A"]
        with pytest.raises(EOFError):
            channel.receive()


def test_sending_to_who_does_not_read_returns_and_the_rest_is_sent_later() -> None:
    sent = [bytes([number]) * (3 << 20) for number in range(3)]
    got: list[bytes] = []
    with joined() as (channel, far):
        for payload in sent:
            channel.send(encode(b"M", payload))
        assert channel.sending

        def read() -> None:
            with Connection(far.detach()) as reader:
                got.extend(pickle.loads(reader.recv_bytes()[1:]) for _ in sent)

        reading = threading.Thread(target=read)
        reading.start()
        while reading.is_alive():
            channel.flush()
            reading.join(0.001)
        assert not channel.sending
    assert got == sent
