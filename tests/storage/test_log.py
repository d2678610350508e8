"""A log gives back what was appended, once, in order, and is opened by few reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from slicemill.esl.types import INT, VARCHAR, Column, Schema
from slicemill.storage.chunk import ChunkError
from slicemill.storage.log import StreamLog
from slicemill.storage.log_epoch import LogError
from slicemill.storage.log_manifest import list_spans
from storage.faulty_files import Crashed, MemoryFiles, crashes_of

SCHEMA = Schema((Column("n", INT),))
FOLDER = Path("/home/log")


@dataclass
class CountingFiles(MemoryFiles):
    reads: int = 0

    def read(self, path: Path) -> bytes:
        self.reads += 1
        return super().read(path)

    def map(self, path: Path) -> pa.Buffer:
        self.reads += 1
        return super().map(path)


def rows(*ts: int, first: int = 0) -> pa.Table:
    values = pa.array(range(first, first + len(ts)), pa.int32())
    return pa.table({"_ts": pa.array(ts, pa.int64()), "n": values})


def unstamped(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int32())})


def new_log(files: MemoryFiles | None = None) -> StreamLog:
    return StreamLog(FOLDER, SCHEMA, files=files or MemoryFiles())


def test_an_epoch_has_its_totals_and_its_rows_in_order_of_time() -> None:
    log = new_log()
    chunks = [log.write(rows(1, 5, 5)), log.write(rows(2, 5, first=10)), log.write(rows())]
    epoch = log.append("ingest:0", chunks, arrival_us=7, enabling_ts=4)
    assert epoch is not None
    assert (epoch.number, epoch.rows, epoch.min_ts, epoch.max_ts, epoch.frontier) == (0, 5, 1, 5, 5)
    assert epoch.bytes == sum(chunk.bytes for chunk in chunks)
    table = log.read(0)
    assert table.column_names == ["_ts", "_seq", "_arr", "n"]
    assert table.column("_ts").to_pylist() == [1, 2, 5, 5, 5]
    assert table.column("n").to_pylist() == [0, 10, 1, 2, 11]
    assert set(table.column("_arr").to_pylist()) == {7}


def test_rows_without_a_timestamp_take_that_of_their_epoch() -> None:
    log = new_log()
    epoch = log.append("ingest:0", [log.write(unstamped(3)), log.write(unstamped(1))], 7, stamped_ts=99)
    assert epoch is not None
    assert (epoch.min_ts, epoch.max_ts, epoch.frontier) == (99, 99, 99)
    assert log.read(0).select(["_ts", "n"]).to_pylist() == [{"_ts": 99, "n": 3}, {"_ts": 99, "n": 1}]


def test_an_empty_epoch_moves_the_frontier() -> None:
    log = new_log()
    assert (log.head, log.frontier) == (-1, None)
    log.append("ingest:0", [], 0)
    assert (log.head, log.frontier) == (0, None)
    log.append("ingest:1", [log.write(rows(10))], 0)
    log.append("ingest:2", [], 0, enabling_ts=30)
    log.append("ingest:3", [log.write(rows(20))], 0)
    assert [epoch.frontier for epoch in log.epochs()] == [None, 10, 30, 30]
    assert log.frontier == 30
    assert log.read(0).num_rows == 0
    assert log.read(0).schema == log.read(1).schema


def test_a_replay_changes_nothing_even_after_its_epoch_was_freed() -> None:
    files = MemoryFiles()
    log = new_log(files)
    for number in range(3):
        log.append(f"ingest:{number}", [log.write(rows(number))], 0)
    log.append("unit:0", [], 0)
    log.truncate_before(99)
    for again in (log, StreamLog(FOLDER, files=files)):
        assert (again.head, again.first, again.frontier) == (3, 4, 2)
        for key in ("ingest:0", "ingest:2", "unit:0"):
            assert again.has(key)
            assert again.append(key, [again.write(rows(50))], 0) is None
        assert (again.head, again.frontier) == (3, 2)
    assert log.append("ingest:3", [], 0) is not None


def test_cursors_are_the_last_epoch_read() -> None:
    log = new_log()
    for number in range(5):
        log.append(f"ingest:{number}", [], 0)
    assert [epoch.number for epoch in log.epochs(after=2)] == [3, 4]
    assert log.epochs(after=log.head) == []
    log.truncate_before(4)
    assert [epoch.number for epoch in log.epochs(after=1)] == [4]
    with pytest.raises(LogError, match="has epochs 4 to 4, not 3"):
        log.epoch(3)
    with pytest.raises(LogError, match="not 5"):
        log.epoch(5)


def test_mistakes_are_refused_before_anything_is_written() -> None:
    log = new_log()
    chunk = log.write(rows(1))
    for key in ("ingest", "ingest:", ":1", "ingest:-1", "ingest:x"):
        with pytest.raises(LogError, match="growing number"):
            log.append(key, [chunk], 0)
    with pytest.raises(LogError, match="if, and only if"):
        log.append("ingest:0", [chunk], 0, stamped_ts=5)
    with pytest.raises(LogError, match="if, and only if"):
        log.append("ingest:0", [log.write(unstamped(1))], 0)
    with pytest.raises(ChunkError, match="gone"):
        log.append("ingest:0", [chunk, new_log().write(rows(1))], 0)
    assert log.head == -1


def test_a_log_keeps_its_schema() -> None:
    files = MemoryFiles()
    new_log(files)
    assert StreamLog(FOLDER, files=files).schema == SCHEMA
    with pytest.raises(LogError, match=r"holds \(n INT\), not \(n VARCHAR\)"):
        StreamLog(FOLDER, Schema((Column("n", VARCHAR),)), files=files)
    with pytest.raises(LogError, match="no log in"):
        StreamLog(Path("/elsewhere"), files=files)


def test_a_second_writer_is_found_out() -> None:
    files = MemoryFiles()
    one, other = new_log(files), new_log(files)
    one.append("one:0", [], 0)
    with pytest.raises(LogError, match="another writer"):
        other.append("other:0", [], 0)
    assert other.append("other:0", [], 0) is not None
    assert [epoch.key for epoch in new_log(files).epochs()] == ["one:0", "other:0"]


def test_an_append_that_failed_after_its_commit_can_be_repeated() -> None:
    files = MemoryFiles()
    for crashing in crashes_of(files):
        log = StreamLog(FOLDER, SCHEMA, files=files)
        key = f"ingest:{log.head + 1}"
        log._files = crashing
        try:
            log.append(key, [], 0)
        except Crashed:
            crashing.dead, crashing.steps = False, None
            log.append(key, [], 0)
        assert log.epochs()[-1].key == key
        assert log.epochs() == StreamLog(FOLDER, files=files).epochs()


def test_a_damaged_manifest_says_which_file_and_why() -> None:
    files = MemoryFiles()
    log = new_log(files)
    log.append("ingest:0", [], 0)
    path = FOLDER / "epochs" / list_spans(files, FOLDER)[0].name
    whole = files.read(path)
    for cut in (0, 5, whole.index(b"\n")):
        files.write(path, whole[:cut])
        with pytest.raises(LogError, match=r"000000000000-000000000001\.json is damaged.*durable=True"):
            new_log(files)
    files.write(path, whole[:-9])
    with pytest.raises(LogError, match="damaged"):
        new_log(files).epochs()
    files.remove(path)
    files.write(FOLDER / "epochs" / "000000000001-000000000002.json", whole)
    with pytest.raises(LogError, match="missing"):
        new_log(files)


def test_manifest_files_stay_few_and_old_ones_go() -> None:
    files = MemoryFiles()
    log = new_log(files)
    for number in range(4096 + 64 + 3):
        log.append(f"ingest:{number}", [], 0)
    assert [(span.start, span.end) for span in list_spans(files, FOLDER)][:2] == [(0, 4096), (4096, 4160)]
    assert len(list_spans(files, FOLDER)) == 5
    assert [epoch.number for epoch in new_log(files).epochs()] == list(range(4163))
    log.truncate_before(4161)
    assert len(list_spans(files, FOLDER)) == 2


def test_to_open_a_log_of_ten_thousand_epochs_few_files_are_read() -> None:
    files = CountingFiles()
    log = new_log(files)
    for number in range(10_000):
        log.append(f"ingest:{number}", [], number, number)
    files.reads = 0
    opened = new_log(files)
    assert (opened.head, opened.frontier) == (9_999, 9_999)
    assert files.reads < 100


def test_a_sweep_spares_the_files_of_a_writer_at_work() -> None:
    now_us = 0
    files = MemoryFiles(clock=lambda: now_us)
    log = StreamLog(FOLDER, SCHEMA, files=files, clock=lambda: now_us)
    committed, orphan = log.write(rows(1)), log.write(rows(2))
    log.append("ingest:0", [committed], 0)
    files.write(FOLDER / "epochs" / "x.tmp", b"")
    now_us = 100
    fresh = log.write(rows(3))
    assert sorted(log.sweep(grace_us=50)) == [orphan.path, "epochs/x.tmp"]
    assert log.append("ingest:1", [fresh], 0) is not None
    now_us = 1_000
    assert log.sweep(grace_us=50) == []
    assert [log.read(number).num_rows for number in (0, 1)] == [1, 1]


def test_a_sweep_knows_what_another_process_has_committed() -> None:
    files = MemoryFiles()
    writer = new_log(files)
    sweeper = new_log(files)
    writer.append("ingest:0", [writer.write(rows(1))], 0)
    assert sweeper.sweep(grace_us=0) == []
    assert writer.read(0).num_rows == 1
