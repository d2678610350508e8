"""Lines from real sockets: no line is lost or repeated, whichever process or connection fails."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from connectors.sender import DEADLINE_S, Sender, eventually
from slicemill import types as t
from slicemill.catalog.catalog import SourceSpec, Stream, TimestampKind
from slicemill.connectors.registry import open_readers
from slicemill.connectors.tcp import reader as tcp_pump
from slicemill.connectors.tcp import spool as tcp_spool
from slicemill.connectors.tcp.reader import MAX_LINE_BYTES, TcpReader, tcp_options, tcp_status
from slicemill.connectors.tcp.spool import Spool, SpoolPosition, spool_files
from slicemill.errors import SlicemillError
from slicemill.ingest.reader import SourceBatch
from slicemill.types import Column, Schema

LINE = Schema((Column("value", t.VARCHAR),))
ALL = 1_000_000


@pytest.fixture
def sender() -> Iterator[Sender]:
    server = Sender()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_pump, "FIRST_DELAY_S", 0.01)


def now_us() -> int:
    return time.time_ns() // 1_000


def reader(
    port: int,
    spool: Path,
    schema: Schema = LINE,
    notify: Callable[[], None] = lambda: None,
    clock: Callable[[], int] = now_us,
    **options: object,
) -> TcpReader:
    """Return a reader of plain lines, unless a schema has other columns."""
    given = {"sep": "\x01", **options} if schema is LINE else options
    query = "&".join(f"{key}={value}" for key, value in given.items())
    source = SourceSpec(url=f"tcp://127.0.0.1:{port}?{query}")
    stream = Stream("s", schema, TimestampKind.LATENT, None, 0, None, source)
    readers = open_readers(stream, schema.names, Path(), spool, notify, clock)
    assert readers is not None
    opened = readers["0"]
    assert isinstance(opened, TcpReader)
    return opened


def lines_of(batch: SourceBatch) -> list[str]:
    return [] if batch.table is None else batch.table["value"].to_pylist()


def receive(source: TcpReader, offset: Any | None, count: int) -> tuple[Any, list[str]]:
    """Read until `count` lines have arrived."""
    lines: list[str] = []

    def enough() -> bool:
        nonlocal offset
        batch = source.read(offset, ALL)
        offset = batch.offset
        lines.extend(lines_of(batch))
        return len(lines) >= count and not batch.more

    eventually(enough)
    return offset, lines


def test_uncommitted_lines_can_be_read_again(sender: Sender, tmp_path: Path) -> None:
    source = reader(sender.port, tmp_path)
    try:
        sender.send(b"a 1\r\n\nb 2\nhalf of")
        offset, lines = receive(source, None, 2)
        assert lines == ["a 1", "b 2"]
        assert receive(source, None, 2) == (offset, lines)
        sender.send(b" a line\n")
        later, more = receive(source, offset, 1)
        assert more == ["half of a line"]
        source.commit(offset)
        assert receive(source, offset, 1) == (later, more)
    finally:
        source.close()


def test_a_read_returns_at_most_the_limit_of_lines(sender: Sender, tmp_path: Path) -> None:
    source = reader(sender.port, tmp_path)
    try:
        sender.send(b"1\n2\n3\n4\n5\n")
        receive(source, None, 5)
        first = source.read(None, 2)
        second = source.read(first.offset, 2)
        third = source.read(second.offset, 2)
        assert [lines_of(batch) for batch in (first, second, third)] == [["1", "2"], ["3", "4"], ["5"]]
        assert [batch.more for batch in (first, second, third)] == [True, True, False]
        assert first.offset == {"file": 1, "at": 4}
    finally:
        source.close()


def test_the_arrival_time_of_a_row_is_the_time_when_its_bytes_were_received(tmp_path: Path) -> None:
    spool = Spool(tmp_path, None)
    spool.append(b"1\n2\n", 100)
    spool.append(b"3\n", 200)
    spool.append(b"x,y\n5\n", 300)
    try:
        received = spool.read(SpoolPosition(1, 2), 1 << 20)
        assert received.data == b"2\n3\nx,y\n5\n"
        assert received.arrivals(np.array([2, 4, 8, 10])).tolist() == [100, 200, 300, 300]
    finally:
        spool.close()
    again = Spool(tmp_path, None)
    try:
        changed_us = spool_files(tmp_path)[1].stat().st_mtime_ns // 1_000
        assert again.read(SpoolPosition(1, 0), 1 << 20).arrivals(np.array([2])).tolist() == [changed_us]
    finally:
        again.close()


def test_the_reader_notifies_the_driver_about_new_lines(sender: Sender, tmp_path: Path) -> None:
    told = threading.Semaphore(0)
    source = reader(sender.port, tmp_path, notify=told.release, clock=lambda: 7)
    try:
        batch = source.read(None, ALL)
        sender.send(b"1\n")
        assert told.acquire(timeout=DEADLINE_S)
        batch = source.read(batch.offset, ALL)
        assert lines_of(batch) == ["1"] and np.asarray(batch.arrival_us).tolist() == [7]
        # A connected reader without lines is not polled again before its notification.
        assert batch.again_us is None and not batch.more
        sender.send(b"2\n")
        assert told.acquire(timeout=DEADLINE_S)
        sender.send(b"3\n")
        eventually(lambda: spool_files(tmp_path)[1].stat().st_size == 6)
        assert not told.acquire(blocking=False)
        assert lines_of(source.read(batch.offset, ALL)) == ["2", "3"]
    finally:
        source.close()


def test_a_new_process_continues_with_lines_that_a_killed_process_received(
    sender: Sender, tmp_path: Path
) -> None:
    first = reader(sender.port, tmp_path)
    sender.send(b"1\n2\n")
    offset, _ = receive(first, None, 2)
    first.commit(offset)
    sender.send(b"3\n4\n")
    eventually(lambda: spool_files(tmp_path)[1].stat().st_size == 8)
    first.close()  # received and on disk, but never reported
    sender.hang_up()
    second = reader(sender.port, tmp_path)
    try:
        sender.send(b"5\n")
        assert receive(second, offset, 3)[1] == ["3", "4", "5"]
    finally:
        second.close()


RECEIVE = """
import sys, threading, time
from pathlib import Path
from slicemill.connectors.tcp.reader import Pump
from slicemill.connectors.tcp.spool import Spool
Pump("127.0.0.1", int(sys.argv[1]), Spool(Path(sys.argv[2]), None), 1 << 20, lambda: 0, lambda: None).start()
threading.Event().wait()
"""


def test_received_lines_survive_kill_9_of_the_process(sender: Sender, tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", RECEIVE, str(sender.port), str(tmp_path)])
    try:
        sender.send(b"1\n2\n")
        eventually(lambda: sum(path.stat().st_size for path in spool_files(tmp_path).values()) == 4)
    finally:
        process.kill()
        process.wait()
    sender.hang_up()
    source = reader(sender.port, tmp_path)
    try:
        sender.send(b"3\n")
        assert receive(source, None, 3)[1] == ["1", "2", "3"]
    finally:
        source.close()


def test_the_reader_reconnects_when_the_sender_is_back(sender: Sender, tmp_path: Path) -> None:
    source = reader(sender.port, tmp_path)
    try:
        sender.send(b"1\n2 without an end")
        offset, _ = receive(source, None, 1)
        sender.hang_up()
        sender.send(b"3\n")
        assert receive(source, offset, 2)[1] == ["2 without an end", "3"]
        eventually(lambda: (status := tcp_status(tmp_path)) is not None and status.connected)
    finally:
        source.close()


def test_a_refused_connection_is_reported_after_the_patience_and_retried(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    source = reader(port, tmp_path, patience=0.05)
    message = rf"nobody listens at tcp://127.0.0.1:{port} \(Connection ref"
    try:
        for _ in range(2):

            def asked() -> bool:
                assert source.read(None, ALL).again_us == 500_000
                return False

            with pytest.raises(SlicemillError, match=message):
                eventually(asked)
        status = tcp_status(tmp_path)
        assert status is not None and not status.connected and status.problem == "Connection refused"
    finally:
        source.close()


def test_a_full_spool_slows_the_sender_down(sender: Sender, tmp_path: Path) -> None:
    source = reader(sender.port, tmp_path, maxSpoolBytes=1 << 18)
    total = 16 << 10  # 16 MiB, more than the buffers of the operating system
    sender.send((b"x" * 1023 + b"\n") * total)
    try:
        offset, seen = None, 0
        while seen < total:
            offset, lines = receive(source, offset, 1)
            held = sum(path.stat().st_size for path in spool_files(tmp_path).values())
            assert held < (1 << 18) + (1 << 18)
            source.commit(offset)
            seen += len(lines)
        assert seen == total
    finally:
        source.close()


def test_committed_files_are_deleted(tmp_path: Path) -> None:
    spool = Spool(tmp_path, None, roll_bytes=8)
    try:
        for text in (b"aaaa\nbb\n", b"cccc\ndd\n", b"e\n"):
            spool.append(text, 0)
        assert list(spool_files(tmp_path)) == [1, 2, 3] and spool.size_bytes == 18
        spool.free(SpoolPosition(2, 5))
        assert list(spool_files(tmp_path)) == [2, 3] and spool.size_bytes == 10
        with pytest.raises(SlicemillError, match="spool file 1 is missing"):
            spool.read(SpoolPosition(1, 0), 100)
        assert spool.read(SpoolPosition(2, 8), 100) == (b"e\n", SpoolPosition(3, 2), [2], [0])
    finally:
        spool.close()


def test_a_read_returns_at_most_the_byte_limit_but_at_least_one_line(tmp_path: Path) -> None:
    spool = Spool(tmp_path, None)
    spool.append(b"aaaa\nbbbb\ncccccccccccc\n", 0)
    try:
        taken = [spool.read(SpoolPosition(1, at), 9).data for at in (0, 5, 10)]
        assert taken == [b"aaaa\n", b"bbbb\n", b"cccccccccccc\n"]
    finally:
        spool.close()


def test_a_line_longer_than_the_limit_is_split(sender: Sender, tmp_path: Path) -> None:
    source = reader(sender.port, tmp_path)
    try:
        sender.send(b"x" * (2 * MAX_LINE_BYTES) + b"\nnext\n")
        lines: list[str] = []
        offset = None

        def came() -> bool:
            nonlocal offset
            offset, more = receive(source, offset, 1)
            lines.extend(more)
            return "next" in lines

        eventually(came)
        assert len(lines) > 2 and sum(map(len, lines[:-1])) == 2 * MAX_LINE_BYTES
    finally:
        source.close()


def test_two_processes_cannot_receive_into_one_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp_spool, "_LOCK_PATIENCE_S", 0.0)
    spool = Spool(tmp_path, None)
    with pytest.raises(SlicemillError, match="another process receives into"):
        Spool(tmp_path, None)
    spool.close()


def test_file_numbers_continue_after_lines_lost_by_the_disk(tmp_path: Path) -> None:
    spool = Spool(tmp_path, SpoolPosition(41, 10))
    try:
        assert spool.read(SpoolPosition(41, 10), 100).data == b""
        spool.append(b"x\n", 0)
        assert spool.read(SpoolPosition(41, 10), 100) == (b"x\n", SpoolPosition(42, 2), [2], [0])
    finally:
        spool.close()


def test_a_line_torn_by_a_crash_ends_at_the_tear(tmp_path: Path) -> None:
    (tmp_path / "000000000001.lines").write_bytes(b"whole\nto")
    spool = Spool(tmp_path, None)
    try:
        spool.append(b"new\n", 0)
        assert spool.read(SpoolPosition(1, 0), 100).data == b"whole\nto\nnew\n"
    finally:
        spool.close()


def test_a_full_disk_stops_the_reader_without_a_partial_line(
    sender: Sender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = reader(sender.port, tmp_path)
    full = threading.Event()
    append = Spool.append

    def write(spool: Spool, lines: bytes, arrival_us: int) -> None:
        if full.is_set():
            raise SlicemillError("cannot write what came by TCP: No space left on device")
        append(spool, lines, arrival_us)

    monkeypatch.setattr(Spool, "append", write)
    try:
        sender.send(b"1\n")
        offset, _ = receive(source, None, 1)
        full.set()
        sender.send(b"2\n")
        with pytest.raises(SlicemillError, match="No space left"):
            receive(source, offset, 1)
        full.clear()
        sender.hang_up()
        sender.send(b"3\n")
        assert receive(source, offset, 1)[1] == ["3"]
    finally:
        source.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("tcp://localhost", "from 1 to 65535"),
        ("tcp://localhost:99999", "a number from 1 to 65535, not '99999'"),
        ("tcp://localhost:4445?lines=xml", "lines are json, csv or either, not 'xml'"),
        ("tcp://localhost:1?patience=long", "patience is a number of 0 or more"),
        ("tcp://localhost:1?patients=5", "a TCP source has no option patients; it has"),
    ],
)
def test_options_are_checked_before_the_reader_starts(url: str, message: str, tmp_path: Path) -> None:
    stream = Stream("s", LINE, TimestampKind.LATENT, None, 0, None, SourceSpec(url=url))
    with pytest.raises(SlicemillError, match=message):
        open_readers(stream, LINE.names, Path(), tmp_path / "spool", lambda: None, now_us)
    assert not (tmp_path / "spool").exists()


def test_a_socket_needs_a_port() -> None:
    with pytest.raises(SlicemillError, match="needs the option port"):
        tcp_options({"host": "h"})


def test_a_declared_socket_gives_checked_rows_of_csv_and_json_lines(sender: Sender, tmp_path: Path) -> None:
    schema = Schema((Column("item", t.INT), Column("price", t.DOUBLE)))
    source = reader(sender.port, tmp_path, schema)
    sender.send(b'7,1.5\n{"price": 2}\nx,1\n\xff\n')
    rows, errors = [], []
    offset = None
    try:

        def came() -> bool:
            nonlocal offset
            batch = source.read(offset, ALL)
            offset = batch.offset
            rows.extend([] if batch.table is None else batch.table.to_pylist())
            errors.extend([] if batch.errors is None else batch.errors.to_pylist())
            return len(rows) + len(errors) == 4

        eventually(came)
    finally:
        source.close()
    assert rows == [{"item": 7, "price": 1.5}, {"item": None, "price": 2.0}]
    assert errors == [
        {"raw": "x,1", "reason": "column item: 'x' is no INT"},
        {"raw": "\ufffd", "reason": "this is no UTF-8 text"},
    ]
