"""`home check` and `home backup`: missing and damaged files are named."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from slicemill.cli import app
from slicemill.storage.backup import backup_home, upgrade_home
from slicemill.storage.changes import Change
from slicemill.storage.check import check_home
from slicemill.storage.home import CURRENT, FormatError, Home, HomeLocked
from slicemill.storage.home_state import HomeError
from slicemill.storage.segments import SegmentWriters
from storage.homes import commit_rows, view
from storage.tables import COLUMNS


def filled(folder: Path) -> Home:
    """Create a home directory with two epochs of rows, a checkpoint, a spool, and files of a dead writer."""
    home = Home(folder)
    home.open()
    home.commit(Change(created={"bid": COLUMNS}, catalog=[{"text": "CREATE STREAM bid (n BIGINT)"}]))
    writers = SegmentWriters("w")
    for n in range(2):
        commit_rows(home, writers, "bid", n, n + 1, seq=2 * n)
    checkpoint = home.checkpoint_folder("u")
    checkpoint.mkdir()
    (checkpoint / "state").write_bytes(b"12345")
    home.commit(Change(tasks={"u": {"checkpoint": {"0": [["state", 5]]}}}))
    spool = home.source_folder("bid")
    spool.mkdir(parents=True)
    (spool / "spool").write_bytes(b"rows")
    (folder / "journal" / "left.tmp").write_bytes(b"")
    writers.close()
    return home


def test_the_check_of_an_undamaged_home_directory_reports_its_content_and_no_errors(tmp_path: Path) -> None:
    home = filled(tmp_path)
    report = check_home(tmp_path)
    assert report.errors == []
    assert (report.epoch, report.logs, report.rows, report.tasks, report.statements) == (3, 1, 4, 1, 1)
    assert report.bytes > 100 and report.torn == 0 and report.format == CURRENT
    home.close()


def test_the_check_names_every_missing_or_damaged_file(tmp_path: Path) -> None:
    home = filled(tmp_path)
    home.close()
    (tmp_path / "checkpoints" / "u" / "state").write_bytes(b"123")
    segment = tmp_path / "logs" / "bid" / "w-0.arrows"
    whole = segment.read_bytes()
    extent = home.logs["bid"].epochs()[1].extents[0]
    segment.write_bytes(whole[: extent.offset] + bytes(extent.length))
    records = tmp_path / "journal" / "000000000000.records"
    records.write_bytes(records.read_bytes() + b"torn")
    report = check_home(tmp_path)
    assert report.torn == 4
    log, task = report.errors
    assert log.startswith(
        "log bid: 2 rows of bid, epoch 2, with timestamps from 1970-01-01T00:00:00.000001 to "
    )
    assert "home repair" in log
    assert task == "task u: checkpoint file state has 3 bytes instead of 5"
    segment.unlink()
    (tmp_path / "checkpoints" / "u" / "state").unlink()
    assert check_home(tmp_path).errors == [
        "log bid: segment w-0.arrows is missing, with 2 rows of epoch 1",
        "log bid: segment w-0.arrows is missing, with 2 rows of epoch 2",
        "task u: checkpoint file state is missing",
    ]


def test_files_that_are_freed_during_the_check_are_not_reported(tmp_path: Path) -> None:
    home = filled(tmp_path)

    def free(_: str) -> None:
        home.commit(Change(freed={"bid": home.epoch + 1}, tasks={"u": {"checkpoint": None}}))
        home.free()

    assert check_home(tmp_path, progress=free).errors == []
    home.close()


def test_a_backup_can_be_opened_as_a_home_directory(tmp_path: Path) -> None:
    home = filled(tmp_path / "home")
    with pytest.raises(HomeLocked, match="stop it before the backup"):
        backup_home(tmp_path / "home", tmp_path / "copy")
    home.close()
    report = backup_home(tmp_path / "home", tmp_path / "copy")
    assert report.folder == tmp_path / "copy" and report.errors == []
    copy = Home(tmp_path / "copy")
    copy.open()
    assert view(copy) == view(home)
    assert (copy.source_folder("bid") / "spool").read_bytes() == b"rows"
    assert not list(tmp_path.rglob("copy/**/*.tmp"))
    copy.close()
    with pytest.raises(HomeError, match="is there already"):
        backup_home(tmp_path / "home", tmp_path / "copy")
    with pytest.raises(HomeError, match="lies in the home itself"):
        backup_home(tmp_path / "home", tmp_path / "home" / "copy")


def test_a_backup_contains_logs_of_every_name_and_no_trash(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.open()
    writers, names = SegmentWriters("w"), ("lock", "trash", "a.tmp")
    home.commit(Change(created=dict.fromkeys(names, COLUMNS)))
    for name in names:
        commit_rows(home, writers, name, 1)
    writers.close()
    (tmp_path / "home" / "trash").mkdir()
    home.close()
    backup_home(tmp_path / "home", tmp_path / "copy")
    copy = Home(tmp_path / "copy")
    copy.open()
    assert view(copy) == view(home)
    copy.close()
    assert not (tmp_path / "copy" / "trash").exists()


def test_a_damaged_home_directory_is_not_backed_up(tmp_path: Path) -> None:
    filled(tmp_path / "home").close()
    (tmp_path / "home" / "logs" / "bid" / "w-0.arrows").unlink()
    with pytest.raises(HomeError, match=r"not whole: log bid: segment .*slicemill home check"):
        backup_home(tmp_path / "home", tmp_path / "copy")
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_check_upgrade_and_backup_reject_a_folder_without_a_journal(tmp_path: Path) -> None:
    for action in (check_home, upgrade_home, lambda folder: backup_home(folder, tmp_path / "copy")):
        with pytest.raises(FormatError, match="there is no home in"):
            action(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_upgrade_reports_what_has_to_be_done(tmp_path: Path) -> None:
    filled(tmp_path / "home").close()
    assert "nothing is to be done" in upgrade_home(tmp_path / "home")
    (tmp_path / "home" / "FORMAT").write_text("7\n")
    with pytest.raises(FormatError, match="a newer one made it"):
        upgrade_home(tmp_path / "home")
    (tmp_path / "home" / "FORMAT").write_text("1\n")
    with pytest.raises(FormatError, match="has FORMAT 1: only the slicemill that wrote its state"):
        upgrade_home(tmp_path / "home")
    (tmp_path / "home" / "FORMAT").unlink()
    with pytest.raises(FormatError, match="made before there was a FORMAT"):
        upgrade_home(tmp_path / "home")


def test_the_home_commands_print_their_findings_and_exit_with_1_on_damage(tmp_path: Path) -> None:
    filled(tmp_path / "home").close()
    runner = CliRunner()
    done = runner.invoke(app, ["home", "check", str(tmp_path / "home")])
    assert done.exit_code == 0, done.output
    assert "4 rows" in done.output and "commit 3" in done.output and "no damage found" in done.output
    assert (
        runner.invoke(app, ["home", "backup", str(tmp_path / "home"), str(tmp_path / "copy")]).exit_code == 0
    )
    done = runner.invoke(app, ["home", "upgrade", str(tmp_path / "copy")])
    assert done.exit_code == 0 and "nothing is to be done" in done.output
    (tmp_path / "copy" / "checkpoints" / "u" / "state").unlink()
    done = runner.invoke(app, ["home", "check", str(tmp_path / "copy")])
    assert done.exit_code == 1 and "task u: checkpoint file state is missing" in done.output
