"""What every consumer has read goes, nothing else does, and disk use stays bounded."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.esl.types import INT, Column, Schema
from slicemill.storage import gc
from slicemill.storage.cursors import Retention, slowest
from slicemill.storage.log import StreamLog
from slicemill.storage.state import Output, SliceInfo, StateError, StateStore, UnitVersion, commit_run
from storage.faulty_files import MemoryFiles

SCHEMA = Schema((Column("n", INT),))
HOME = Path("/home")


def table_of(*values: int) -> pa.Table:
    return pa.table({"_ts": pa.array(values, pa.int64()), "n": pa.array(values, pa.int32())})


def filled_log(epochs: int) -> StreamLog:
    """Epoch n arrived at time n."""
    log = StreamLog(HOME / "log", SCHEMA, files=MemoryFiles())
    for number in range(epochs):
        log.append(f"ingest:{number}", [log.write(table_of(number))], arrival_us=number)
    return log


def first_after_gc(
    log: StreamLog, *cursors: int, retention: Retention | None = None, now_us: int = 10**6
) -> int:
    rules = {} if retention is None else {"log": retention}
    gc.collect({"log": log}, [{"log": cursor} for cursor in cursors], now_us, rules)
    return log.first


def test_an_epoch_stays_until_the_slowest_consumer_has_read_it() -> None:
    log = filled_log(10)
    assert first_after_gc(log, 7, -1, 9) == 0
    assert first_after_gc(log, 7, 3, 9) == 4
    assert first_after_gc(log, 7, 8, 9) == 8
    assert first_after_gc(log, 9, 9, 9) == 10


def test_without_consumers_only_retention_counts() -> None:
    log = filled_log(10)
    assert first_after_gc(log, retention=Retention(epochs=10)) == 0
    assert first_after_gc(log, retention=Retention(epochs=4)) == 6
    assert first_after_gc(log, retention=Retention(age_us=5), now_us=12) == 8
    assert first_after_gc(log) == 10


def test_a_consumer_of_another_log_holds_nothing_back() -> None:
    assert slowest([{"a": 3, "b": 9}, {"b": 2}, {}], "a") == 3
    assert slowest([{"b": 2}], "a") is None


@given(
    st.lists(st.integers(-1, 12), max_size=3),
    st.builds(Retention, st.integers(0, 12), st.integers(0, 12)),
    st.integers(0, 20),
)
@settings(max_examples=60)
def test_exactly_the_epochs_that_are_read_and_outlived_go(
    cursors: list[int], retention: Retention, now_us: int
) -> None:
    def may_go(number: int) -> bool:
        read = all(cursor >= number for cursor in cursors)
        return read and number + retention.age_us <= now_us and number < 10 - retention.epochs

    log = filled_log(10)
    assert first_after_gc(log, *cursors, retention=retention, now_us=now_us) == sum(map(may_go, range(10)))


def test_collecting_reports_the_bytes_it_freed() -> None:
    log = filled_log(4)
    sizes = [epoch.bytes for epoch in log.epochs()]
    assert gc.collect({"log": log}, [{"log": 2}], now_us=10**6) == {"log": sum(sizes[:3])}
    assert gc.collect({"log": log}, [{"log": 2}], now_us=10**6) == {"log": 0}


def test_a_sweep_keeps_results_that_are_promised_but_not_yet_in_their_log() -> None:
    files = MemoryFiles()
    logs = {"r": StreamLog(HOME / "r", SCHEMA, files=files)}
    store = StateStore(HOME / "unit", files=files)
    orphan = logs["r"].write(table_of(1))
    store.commit(0, UnitVersion({}, (), {"r": Output((logs["r"].write(table_of(2)),), 0)}))
    removed = gc.sweep(logs, [store], grace_us=0)
    assert removed == {str(HOME / "r"): [orphan.path], str(HOME / "unit"): []}
    assert logs["r"].read(0)["n"].to_pylist() == [2]


def disk_use(files: MemoryFiles, folder: Path) -> tuple[int, int]:
    parts = [folder, *(folder / part for part in ("chunks", "epochs", "slices", "versions"))]
    paths = [part / name for part in parts for name in files.names(part) if part / name not in parts]
    return len(paths), sum(files.stat(path).bytes for path in paths)


def test_a_unit_without_a_version_stops_the_collection_of_its_input() -> None:
    store = StateStore(HOME / "unit", files=MemoryFiles())
    with pytest.raises(StateError, match="keeps versions"):
        gc.committed_cursors([store])


def test_disk_use_is_bounded_over_thousands_of_epochs() -> None:
    files = MemoryFiles()
    logs = {name: StreamLog(HOME / name, SCHEMA, files=files) for name in ("input", "result")}
    store = StateStore(HOME / "unit", files=files)
    table = table_of(*range(100))
    retention = {"result": Retention(epochs=5)}
    peaks = []
    for number in range(3_000):
        logs["input"].append(f"ingest:{number}", [logs["input"].write(table)], arrival_us=number)
        if number % 4 == 3:
            logs["result"].write(table)  # a failed run's
            outputs = {"result": Output((logs["result"].write(table),), number)}
            part = SliceInfo("sum", 0, store.write(table))
            commit_run(store, UnitVersion({"input": number}, (part,), outputs), logs)
        if number % 100 == 99:
            gc.collect(logs, gc.committed_cursors([store]), number, retention)
            gc.sweep(logs, [store], grace_us=0)
            peaks.append(
                [disk_use(files, folder) for folder in (HOME / "input", HOME / "result", HOME / "unit")]
            )
    assert all(count <= 20 and size <= 20_000 for peak in peaks for count, size in peak)
    assert logs["input"].head == 2_999
    assert StreamLog(HOME / "result", files=files).first == 745
