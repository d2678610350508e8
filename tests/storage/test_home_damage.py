"""Home directories damaged from outside: no file is deleted, no wrong row is returned, losses are named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from slicemill.cli import app
from slicemill.errors import SlicemillError
from slicemill.storage.backup import upgrade_home
from slicemill.storage.changes import Change, frame
from slicemill.storage.check import check_home, repair_home
from slicemill.storage.garbage import KEPT_US
from slicemill.storage.home import Home
from slicemill.storage.home_reader import HomeReader
from slicemill.storage.home_state import HomeError
from slicemill.storage.journal import JournalEnd, read_end
from slicemill.storage.segments import ExtentDamaged, SegmentWriters
from slicemill.testing import Clock, inline_pool, open_mill
from storage.flips import SCRIPT, SECOND, feed, make_home, results_after
from storage.homes import FOLDER, commit_rows, memory_files, view
from storage.tables import COLUMNS
from support.engine import fed_mill, feed_rows, finish

GOLDEN = Path(__file__).parent / "golden_home_5"


def filled(folder: Path, epochs: int = 4) -> Home:
    """Return a closed home directory with a log of two rows for each epoch."""
    home = Home(folder)
    home.open()
    home.commit(Change(created={"bid": COLUMNS}))
    writers = SegmentWriters("w")
    for n in range(epochs):
        commit_rows(home, writers, "bid", n, n, seq=2 * n)
    writers.close()
    home.close()
    return home


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "lock"
    }


def flip(path: Path, index: int = -9) -> None:
    data = bytearray(path.read_bytes())
    data[index] ^= 4
    path.write_bytes(data)


# -- Journal ------------------------------------------------------------------------------------------------


def test_a_home_directory_without_its_journal_is_rejected_and_nothing_is_deleted(tmp_path: Path) -> None:
    filled(tmp_path)
    for name in ("000000000000.records", "end"):
        (tmp_path / "journal" / name).unlink()
    before = contents(tmp_path)
    for read in (lambda: Home(tmp_path).open(), lambda: HomeReader(tmp_path), lambda: repair_home(tmp_path)):
        with pytest.raises(HomeError, match=r"the journal of .* is missing.*restore the folder from a copy"):
            read()
    (tmp_path / "journal").rmdir()
    with pytest.raises(HomeError, match="is missing"):
        Home(tmp_path).open()
    assert contents(tmp_path) == before


def test_a_home_directory_without_its_format_file_is_rejected(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "FORMAT").unlink()
    shutil.rmtree(tmp_path / "logs")
    before = contents(tmp_path)
    with pytest.raises(HomeError, match=r"FORMAT 0.*restore the file FORMAT"):
        Home(tmp_path).open()
    assert contents(tmp_path) == before


@pytest.mark.parametrize("cut", ["between records", "in a record", "a flipped bit in the last record"])
def test_a_truncated_journal_is_rejected_and_a_repair_continues_without_the_lost_commits(
    tmp_path: Path, cut: str
) -> None:
    filled(tmp_path)
    records = tmp_path / "journal" / "000000000000.records"
    lines = records.read_bytes().splitlines(keepends=True)
    if cut == "a flipped bit in the last record":
        flip(records)
        kept = len(lines) - 1
    else:
        kept = 3
        records.write_bytes(b"".join(lines[:kept]) + (lines[kept][:20] if cut == "in a record" else b""))
    before = contents(tmp_path)
    with pytest.raises(HomeError, match=rf"ends with epoch {kept - 1}.*epochs? {kept}.*home repair"):
        Home(tmp_path).open()
    assert contents(tmp_path) == before
    assert any("had been committed" in line for line in check_home(tmp_path).errors)
    assert repair_home(tmp_path) == [f"the commits of epochs {kept} and later are lost"]
    home = Home(tmp_path)
    home.open()
    assert home.epoch == kept - 1 and home.logs["bid"].rows == 2 * (kept - 1)
    home.close()
    assert repair_home(tmp_path) == []


def test_commits_lost_in_a_power_failure_are_reported_and_the_home_directory_opens() -> None:
    files = memory_files()
    home = Home(FOLDER, files=files)
    home.open()
    for n in range(3):
        home.commit(Change(tasks={"u": {"n": n}}))
    path = FOLDER / "journal" / "000000000000.records"
    files.write(path, b"".join(files.read(path).splitlines(keepends=True)[:2]))
    files.write(FOLDER / "journal" / "end", frame(b'{"e":2,"boot":"another"}') + b"torn")
    assert read_end(FOLDER / "journal", files) == JournalEnd(2, "another")
    told: list[str] = []
    again = Home(FOLDER, files=files)
    again.open(told.append)
    assert again.tasks == {"u": {"n": 1}}
    assert any("epoch 2 had been committed: the machine was started again" in line for line in told)
    told.clear()
    Home(FOLDER, files=files).open(told.append)
    assert told == [], "it is reported once"


def test_the_file_with_the_last_epoch_stays_small_and_is_optional(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.open()
    for n in range(2_000):
        home.commit(Change(tasks={"u": {"n": n}}))
    end = tmp_path / "journal" / "end"
    assert end.stat().st_size <= 1 << 16
    found = read_end(end.parent, home._files)
    assert found is not None and found.epoch == 1_999 and found.is_binding
    home.close()
    for content in (b"", b"12345678 {}", None):
        end.unlink() if content is None else end.write_bytes(content)
        home.open()
        home.close()


def test_a_valid_record_with_impossible_content_is_rejected_with_a_message() -> None:
    for record in (
        {"e": 1, "at": 0, "logs": {"q_all": [0, 0, 0, []]}},
        {"e": 1, "at": 0, "logs": {"bid": [0, 0, 0, [["w-0.arrows", "x", 1, 1]]]}},
        {"e": 1, "at": 0, "created": {"q": ["AAAA", "q"]}},
        {"e": 1, "logs": {}},
        {"e": 1, "at": 0, "units": 7},
    ):
        files = memory_files()
        home = Home(FOLDER, files=files)
        home.open()
        home.commit(Change(created={"bid": COLUMNS}))
        files.append(FOLDER / "journal" / "000000000000.records").write(frame(json.dumps(record).encode()))
        message = r"record of epoch 1 is whole, but cannot be applied"
        with pytest.raises(HomeError, match=message):
            Home(FOLDER, files=files).open()
        with pytest.raises(HomeError, match=message):
            HomeReader(FOLDER, files)


def test_a_damaged_snapshot_does_not_count_as_one_of_the_last_two(tmp_path: Path) -> None:
    def opened() -> Home:
        home = Home(tmp_path, snapshot_every=(600, 1_200), background=False)
        home.open()
        return home

    def snapshots() -> list[Path]:
        return sorted((tmp_path / "journal").glob("*.snapshot"))

    home = opened()
    for n in range(60):
        home.commit(Change(tasks={"u": {"n": n}}))
    home.close()
    flip(snapshots()[-1])
    assert any("snapshot is damaged" in line for line in check_home(tmp_path).errors)
    home = opened()
    assert home.tasks == {"u": {"n": 59}} and len(snapshots()) == 1
    assert check_home(tmp_path).errors == []
    home.close()


def test_unreferenced_files_stay_in_the_trash_for_a_day() -> None:
    files, now = memory_files(), 1_000

    def opened() -> Home:
        home = Home(FOLDER, files=files, clock=lambda: now)
        home.open()
        return home

    home = opened()
    home.commit(Change(created={"bid": COLUMNS}, tasks={"u": {"checkpoint": [["named", 1, 4]]}}))
    for folder in ("checkpoints", "checkpoints/u", "logs/gone", "tables"):
        files.make_folder(FOLDER / folder)
    orphans = ["checkpoints/u/other", "logs/bid/w-0.arrows", "logs/gone/w-0.arrows", "tables/t.arrow"]
    for name in ("checkpoints/u/named", *orphans):
        files.write(FOLDER / name, name.encode())
    home = opened()
    assert all(files.read(FOLDER / "trash" / "1000" / name) == name.encode() for name in orphans)
    assert files.read(FOLDER / "checkpoints" / "u" / "named")
    assert files.names(FOLDER / "tables") == []
    now += KEPT_US - 1
    home.free()
    opened()
    assert files.names(FOLDER / "trash") == ["1000"]
    now += 3_600_000_000
    home.free()
    assert files.names(FOLDER / "trash") == []


# -- Rows ---------------------------------------------------------------------------------------------------


def test_readers_name_damaged_rows_and_a_repair_drops_only_these_rows(tmp_path: Path) -> None:
    home = filled(tmp_path)
    whole = view(home)["logs"]["bid"]["tuples"]
    bad = home.logs["bid"].epochs()[1].extents[0]
    flip(tmp_path / "logs" / "bid" / bad.segment, bad.offset + bad.length - 3)
    reader = HomeReader(tmp_path)
    log = reader.logs["bid"]
    message = r"2 rows of bid, epochs? 2.*timestamps from 1970-01-01T00:00:00.000001 to .*home repair"
    with pytest.raises(ExtentDamaged, match=message):
        log.read(log.epochs()[1])
    with pytest.raises(ExtentDamaged, match=r"8 rows of bid, epochs 1 to 4"):
        log.scan(log.epochs(), ["n"])
    done = repair_home(tmp_path)
    assert len(done) == 1 and done[0].startswith("log bid: 2 rows of bid, epoch 2")
    reader = HomeReader(tmp_path)
    log = reader.logs["bid"]
    left = [row for row in whole if row[0] != 2]
    assert view(reader)["logs"]["bid"]["tuples"] == left
    assert log.scan(log.epochs(), ["n"]).column("n").to_pylist() == [row[-1] for row in left]
    assert log.rows == 6 and log.rows_after(2) == 4 and check_home(tmp_path).errors == []
    assert log.spans().rows.tolist() == [2, 2, 2]


def test_the_repair_command_repairs_a_home_directory_and_reports_it(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "logs" / "bid" / "w-0.arrows").unlink()
    runner = CliRunner()
    checked = runner.invoke(app, ["home", "check", str(tmp_path)])
    assert checked.exit_code == 1 and "home repair" in checked.output
    repaired = runner.invoke(app, ["home", "repair", str(tmp_path)])
    assert repaired.exit_code == 0 and "can be used again, without the lost parts" in repaired.output
    assert runner.invoke(app, ["home", "check", str(tmp_path)]).exit_code == 0
    assert "no damage found" in runner.invoke(app, ["home", "repair", str(tmp_path)]).output


# -- State --------------------------------------------------------------------------------------------------


def heads(home: Path, field: str) -> list[Path]:
    """Return the head files that the checkpoints of tasks name in a field."""
    reader = HomeReader(home)
    return [
        reader.checkpoint_folder(name) / subtask[0][0]
        for name, task in reader.tasks.items()
        for subtask in task.get(field, {}).get("files", ())
        if subtask
    ]


def test_a_damaged_checkpoint_is_replaced_by_the_previous_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_home(tmp_path / "home", collect=True)
    assert HomeReader(tmp_path / "home").logs["bid"].freed > 0, "what both checkpoints cover is freed"
    shutil.copytree(tmp_path / "home", tmp_path / "copy")
    expected, told = results_after(tmp_path / "home")
    assert not told
    last = heads(tmp_path / "copy", "checkpoint")
    assert len(last) == 2 and not set(last) & set(heads(tmp_path / "copy", "checkpoint_before"))
    for path in last:
        flip(path, 1_000)
    assert sum("is damaged" in line for line in check_home(tmp_path / "copy").errors) == 2
    assert results_after(tmp_path / "copy") == (expected, [])
    assert caplog.text.count("is restored from the checkpoint before its last one") == 2


def test_a_checkpoint_whose_replay_rows_are_freed_is_not_restored(tmp_path: Path) -> None:
    make_home(tmp_path / "home")
    for path in heads(tmp_path / "home", "checkpoint"):
        flip(path, 1_000)
    home = Home(tmp_path / "home")
    home.open()
    home.commit(Change(freed={"bid": home.epoch + 1}))
    home.close()
    shutil.copytree(tmp_path / "home", tmp_path / "copy")
    _, told = results_after(tmp_path / "copy")
    assert told and all("is damaged" in words for words in told)
    assert sum("has lost its state" in line for line in repair_home(tmp_path / "home")) == 2


def test_queries_without_a_valid_checkpoint_stop_and_start_empty_after_a_repair(tmp_path: Path) -> None:
    home = tmp_path / "home"
    make_home(home)
    for field in ("checkpoint", "checkpoint_before"):
        for path in heads(home, field):
            flip(path, 1_000)
    shutil.copytree(home, tmp_path / "copy")
    _, told = results_after(tmp_path / "copy")
    assert told and all("home repair" in words for words in told)
    done = repair_home(home)
    assert sum("has lost its state" in line for line in done) == 2
    assert check_home(home).errors == [] and repair_home(home) == []
    with fed_mill(home, clock := Clock(1), inline_pool(1)) as mill:
        mill.execute(SCRIPT)
        mill.open()
        for _ in range(3):
            mill.lifecycle.look()
            clock.now += 60 * SECOND
        feed(mill, 20)
        finish(mill)
        assert not any(task.failed for task in mill.dispatcher.tasks.values())
        sums = [row.row for row in mill.queries["total"].timed_rows() if row.ts > 59 * SECOND]
        assert len(sums) == 12


# -- Home directories of the previous version ---------------------------------------------------------------


def results_of_golden(home: Path) -> dict[str, Any]:
    with fed_mill(home, Clock(1), inline_pool(1)) as mill:
        mill.execute(SCRIPT)
        mill.open()
        for stream, price in (("bid", 40.0), ("ask", 0.0)):
            feed_rows(mill, stream, [(k % 3, price + k, 12 * SECOND + k * SECOND // 2) for k in range(4)])
        mill.dispatcher.run_all()
        finish(mill)
        return {n: sorted([t.ts, list(t.row)] for t in q.timed_rows()) for n, q in mill.queries.items()}


@pytest.mark.parametrize("upgrade", [lambda _: None, upgrade_home], ids=["opened", "upgraded"])
def test_a_home_directory_of_format_5_continues_and_is_reported_as_unverified(
    tmp_path: Path, upgrade: Callable[[Path], object]
) -> None:
    home = tmp_path / "home"
    shutil.copytree(GOLDEN / "home", home)
    report = check_home(home)
    assert report.format == 5 and report.errors == [] and report.unverified > 10
    done = CliRunner().invoke(app, ["home", "check", str(home)])
    assert done.exit_code == 0 and "have no checksum" in done.output
    upgrade(home)
    assert results_of_golden(home) == json.loads((GOLDEN / "expected.json").read_text())
    assert (home / "FORMAT").read_text() == "6\n"
    report = check_home(home)
    assert report.format == 6 and report.errors == []


def test_an_upgrade_reports_the_old_and_the_new_format(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "home", tmp_path / "home")
    assert "had FORMAT 5 and has FORMAT 6 now" in upgrade_home(tmp_path / "home")
    assert "nothing is to be done" in upgrade_home(tmp_path / "home")


def test_the_engine_reports_in_one_sentence_why_a_damaged_home_directory_does_not_open(
    tmp_path: Path,
) -> None:
    filled(tmp_path)
    flip(tmp_path / "journal" / "000000000000.records", 20)
    with pytest.raises(SlicemillError, match="is damaged at byte"):
        open_mill(home=tmp_path, pool=inline_pool(1))
