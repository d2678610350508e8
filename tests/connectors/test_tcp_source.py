"""Lines from real sockets: nothing lost, nothing twice, whatever stops in between."""

from __future__ import annotations

import contextlib
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from slicemill.connectors.spark.frame import streaming_frame
from slicemill.connectors.tcp import spool as tcp_source_spool
from slicemill.connectors.tcp.source import FORMAT, TcpSource, TcpStreamReader, tcp_options
from slicemill.connectors.tcp.spool import MAX_LINE_BYTES, Spool, file_bytes, sealed_files, tcp_status
from slicemill.errors import SlicemillError
from slicemill.esl import types as t
from slicemill.esl.catalog import SourceSpec, Stream, TimestampKind
from slicemill.esl.types import Column, Schema

DEADLINE_S = 30.0


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        threading.Event().wait(0.02)


class Sender:
    """A server on 127.0.0.1. What it is told to do it does in order, as soon as somebody is connected."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._orders: queue.Queue[bytes | None] = queue.Queue()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def send(self, data: bytes) -> None:
        self._orders.put(data)

    def hang_up(self) -> None:
        self._orders.put(None)

    def close(self) -> None:
        self._closing.set()
        self._orders.put(None)
        # Wakes the thread in accept, which close alone does not.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while not self._closing.is_set():
                connection, _ = self._listener.accept()
                with connection:
                    while (data := self._orders.get()) is not None:
                        connection.sendall(data)


@pytest.fixture
def sender() -> Iterator[Sender]:
    server = Sender()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_source_spool, "FIRST_DELAY_S", 0.01)


def reader(port: int, spool: Path, **options: object) -> TcpStreamReader:
    given = {"host": "127.0.0.1", "port": str(port), "spool": str(spool)}
    return TcpStreamReader(tcp_options({**given, **{key: str(value) for key, value in options.items()}}))


def lines_between(source: TcpStreamReader, start: int, end: int) -> list[bytes]:
    parts = source.partitions({"file": start}, {"file": end})
    return [line for part in parts for batch in source.read(part) for line in batch["value"].to_pylist()]


def receive(source: TcpStreamReader, start: int, count: int) -> tuple[int, list[bytes]]:
    """Ask for the latest offset until so many lines are there."""
    end = start
    lines: list[bytes] = []

    def enough() -> bool:
        nonlocal end, lines
        end = source.latestOffset({"file": start}, ReadAllAvailable())["file"]
        lines = lines_between(source, start, end)
        return len(lines) >= count

    eventually(enough)
    return end, lines


def test_lines_come_as_they_are_and_can_be_read_again_until_they_are_committed(
    sender: Sender, tmp_path: Path
) -> None:
    source = reader(sender.port, tmp_path)
    try:
        sender.send(b'{"a": 1}\r\n\xff\xfe,x\n\nhalf of')
        end, lines = receive(source, 0, 3)
        assert lines == [b'{"a": 1}', b"\xff\xfe,x", b""]
        assert lines_between(source, 0, end) == lines
        sender.send(b" a line\n")
        later, more = receive(source, end, 1)
        assert more == [b"half of a line"]
        source.commit({"file": end})
        assert list(sealed_files(tmp_path)) == list(range(end + 1, later + 1))
        with pytest.raises(SlicemillError, match="spool file 1 is missing"):
            source.partitions({"file": 0}, {"file": end})
    finally:
        source.stop()


def test_a_new_process_goes_on_with_what_the_killed_one_had_received(sender: Sender, tmp_path: Path) -> None:
    first = reader(sender.port, tmp_path)
    sender.send(b"1\n2\n")
    end, _ = receive(first, 0, 2)
    first.commit({"file": end})
    sender.send(b"3\n4\n")
    eventually(lambda: (tmp_path / "incoming").stat().st_size == 4)
    first.stop()  # received, on disk, and never reported
    sender.hang_up()
    second = reader(sender.port, tmp_path)
    try:
        assert receive(second, end, 2)[1] == [b"3", b"4"]
        sender.send(b"5\n")
        assert receive(second, end, 3)[1] == [b"3", b"4", b"5"]
    finally:
        second.stop()


RECEIVE = """
import sys, threading
from pathlib import Path
from slicemill.connectors.tcp.spool import Pump, Spool
Pump("127.0.0.1", int(sys.argv[1]), Spool(Path(sys.argv[2]), after=0), 1 << 20).start()
threading.Event().wait()
"""


def test_lines_survive_kill_9_of_the_receiving_process(sender: Sender, tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", RECEIVE, str(sender.port), str(tmp_path)])
    incoming = tmp_path / "incoming"
    try:
        sender.send(b"1\n2\n")
        eventually(lambda: incoming.exists() and incoming.stat().st_size == 4)
    finally:
        process.kill()
        process.wait()
    sender.hang_up()
    source = reader(sender.port, tmp_path)
    try:
        sender.send(b"3\n")
        assert receive(source, 0, 3)[1] == [b"1", b"2", b"3"]
    finally:
        source.stop()


def test_it_connects_again_when_the_sender_comes_back(sender: Sender, tmp_path: Path) -> None:
    source = reader(sender.port, tmp_path)
    try:
        sender.send(b"1\n2 without an end")
        receive(source, 0, 1)
        sender.hang_up()
        sender.send(b"3\n")
        assert receive(source, 0, 3)[1] == [b"1", b"2 without an end", b"3"]
        status = tcp_status(tmp_path)
        assert status is not None and status.connected
    finally:
        source.stop()


def test_nobody_listening_is_said_when_patience_ends(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    source = reader(port, tmp_path, patience=0.05)
    try:

        def asked() -> bool:
            source.latestOffset({"file": 0}, ReadAllAvailable())
            return False

        with pytest.raises(
            SlicemillError, match=rf"nobody listens at tcp://127.0.0.1:{port} \(Connection ref"
        ):
            eventually(asked)
        status = tcp_status(tmp_path)
        assert status is not None and not status.connected and status.problem == "Connection refused"
    finally:
        source.stop()


def test_a_sender_that_is_too_fast_has_to_wait(
    sender: Sender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp_source_spool, "MAX_FILE_BYTES", 1 << 16)
    source = reader(sender.port, tmp_path, maxSpoolBytes=1 << 18)
    line = b"x" * 1023 + b"\n"
    total = 16 << 10  # lines: 16 MiB, more than the system's own buffers hold
    sender.send(line * total)
    try:
        taken = seen = 0
        while seen < total:
            end, lines = receive(source, taken, 1)
            held = sum(map(file_bytes, tmp_path.iterdir()))
            assert held < (1 << 18) + (1 << 18)
            source.commit({"file": end})
            taken, seen = end, seen + len(lines)
        assert seen == total
    finally:
        source.stop()


def test_a_trigger_takes_no_more_files_than_its_bytes_allow(tmp_path: Path, sender: Sender) -> None:
    spool = Spool(tmp_path, after=0)
    for text in (b"aaaa\n", b"bbbb\n", b"cccccccccccc\n"):
        spool.append(text)
        spool.seal()
    spool.close()
    source = reader(sender.port, tmp_path)
    try:
        ends = [source.latestOffset({"file": n}, ReadMaxBytes(10))["file"] for n in (0, 2, 3)]
        assert ends == [2, 3, 3]
    finally:
        source.stop()


def test_a_line_without_an_end_is_cut(sender: Sender, tmp_path: Path) -> None:
    source = reader(sender.port, tmp_path)
    try:
        sender.send(b"x" * (2 * MAX_LINE_BYTES) + b"\nnext\n")
        eventually(lambda: b"next" in receive(source, 0, 1)[1])
        lines = receive(source, 0, 1)[1]
        assert len(lines) > 2 and sum(map(len, lines[:-1])) == 2 * MAX_LINE_BYTES
    finally:
        source.stop()


def test_two_processes_do_not_receive_into_one_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp_source_spool, "_LOCK_PATIENCE_S", 0.0)
    spool = Spool(tmp_path, after=0)
    with pytest.raises(SlicemillError, match="another process receives into"):
        Spool(tmp_path, after=0)
    spool.close()


def test_numbers_go_on_after_files_that_are_gone(tmp_path: Path) -> None:
    spool = Spool(tmp_path, after=41)
    spool.append(b"x\n")
    assert spool.seal() == 42
    spool.close()


def test_a_line_torn_by_a_crash_ends_where_it_was_torn(tmp_path: Path) -> None:
    (tmp_path / "incoming").write_bytes(b"whole\nto")
    spool = Spool(tmp_path, after=0)
    spool.append(b"new\n")
    spool.seal()
    spool.close()
    assert sealed_files(tmp_path)[1].read_bytes() == b"whole\nto\nnew\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"host": "h", "spool": "s"}, "needs the option port"),
        ({"host": "h", "port": "99999", "spool": "s"}, "a number from 1 to 65535, not '99999'"),
        ({"host": "h", "port": "1", "spool": "s", "patience": "long"}, "patience is a number of 0 or more"),
    ],
)
def test_options_are_checked(options: dict[str, str], message: str) -> None:
    with pytest.raises(SlicemillError, match=message):
        tcp_options(options)


def started(
    spark: SparkSession, sender: Sender, home: Path, received: dict[int, list[bytes]], now: bool = False
) -> StreamingQuery:
    def keep(batch: DataFrame, number: int) -> None:
        table: pa.Table = batch.toArrow()
        lines = table["value"].to_pylist()
        # Spark may run a batch again that it did not see end; then it must be the same one.
        assert received.setdefault(number, lines) == lines

    frame = (
        spark.readStream.format(FORMAT)
        .options(host="127.0.0.1", port=sender.port, spool=str(home / "spool"), pause=0.2)
        .load()
    )
    writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(home / "checkpoint"))
    return (writer.trigger(availableNow=True) if now else writer).start()


def test_a_query_stopped_and_started_again_gets_every_line_once(
    spark: SparkSession, sender: Sender, tmp_path: Path
) -> None:
    spark.dataSource.register(TcpSource)
    received: dict[int, list[bytes]] = {}
    query = started(spark, sender, tmp_path, received)
    sender.send(b"1\n2\n")
    eventually(lambda: sum(map(len, received.values())) == 2)
    query.stop()
    sender.hang_up()
    sender.send(b"3\n4\n")  # to the next run's connection
    again = started(spark, sender, tmp_path, received, now=True)
    again.awaitTermination()
    assert [line for lines in received.values() for line in lines] == [b"1", b"2", b"3", b"4"]


def test_a_declared_socket_gives_checked_rows_of_either_form(
    spark: SparkSession, sender: Sender, tmp_path: Path
) -> None:
    schema = Schema((Column("item", t.INT), Column("price", t.DOUBLE)))
    source = SourceSpec(url=f"tcp://127.0.0.1:{sender.port}?pause=0.2")
    frame = streaming_frame(
        spark, Stream("Bid", schema, TimestampKind.LATENT, None, 0, None, source), tmp_path
    )
    sender.send(b'7,1.5\n{"price": 2}\nx,1\n\xff\n')
    rows: list[Row] = []
    query = (
        frame.writeStream.foreachBatch(lambda batch, number: rows.extend(batch.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert [tuple(row) for row in rows] == [
        (7, 1.5, None, None),
        (None, 2.0, None, None),
        (None, 1.0, "x,1", "column item: 'x' is no INT"),
        (None, None, "\ufffd", "this is no UTF-8 text"),
    ]
    assert tcp_status(tmp_path / "spool" / "bid") is not None
