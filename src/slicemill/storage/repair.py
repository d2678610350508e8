"""Repair of a home: continue without the parts that cannot be read.

One record drops damaged extents, and selects the newest whole checkpoint of each unit. Files are not changed,
and all losses are reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from slicemill.storage.changes import Change
from slicemill.storage.check import check_home
from slicemill.storage.files import LOCAL
from slicemill.storage.home import Home
from slicemill.storage.home_format import require_home
from slicemill.storage.journal import JOURNAL, Progress, missing_commits
from slicemill.storage.journal_end import read_end
from slicemill.storage.unit_fields import BEFORE, CHECKPOINT, SINCE_CHECKPOINT, gone_back_to

_OF_STATE = ("due", "latest", "heavy", *SINCE_CHECKPOINT, "resumable", BEFORE)


def repair_home(folder: Path, progress: Progress = lambda _: None) -> list[str]:
    """Drop damaged parts of a home; return what was lost and done.

    The list is empty if the home is undamaged. Raises JournalDamaged if records in the middle of the journal
    cannot be read.
    """
    require_home(folder)
    home = Home(folder, durability="machine")
    done: list[str] = []

    home.lock()
    try:
        end = read_end(folder / JOURNAL, LOCAL)
        home.open(progress, without_lost=True)
        missing = missing_commits(folder, home.epoch, 0, end)
        if missing is not None:
            done.append(f"the commits of epochs {home.epoch + 1} and later are lost")
        report = check_home(folder, progress=progress)
        done += report.mistakes
        change = Change(tables=dict.fromkeys(report.damage.tables))
        change.lost = {
            log: [(extent.segment, extent.offset) for extent in extents]
            for log, extents in report.damage.extents.items()
        }
        done += (
            f"table {name} has no rows until they are given or read again" for name in report.damage.tables
        )
        for name, damaged in report.damage.checkpoints.items():
            done += _with_whole_checkpoint(name, home, damaged, change)
        if done:
            _resume(home.units, change)
        home.commit(change)
    finally:
        home.close()
    return done


def _with_whole_checkpoint(name: str, home: Home, damaged: set[str], change: Change) -> Iterator[str]:
    """Restore a unit from a whole checkpoint, or restart it without state."""
    unit, fields = home.units[name], change.units.setdefault(name, {})
    before = unit.get(BEFORE)
    if CHECKPOINT not in damaged:
        fields[BEFORE] = None
        yield f"unit {name} loses the checkpoint before its last one, and nothing else"
    elif before is not None and BEFORE not in damaged and _can_replay(home, before):
        fields |= gone_back_to(before)
        yield f"unit {name} is restored from the checkpoint before its last one, and loses nothing"
    else:
        outputs = unit.get("outputs", [])
        why = "its state was damaged and could not be restored"
        fields |= dict.fromkeys(_OF_STATE)
        fields["failed"] = dict.fromkeys(outputs, why) or None
        fields[CHECKPOINT] = {
            "cursors": unit.get("cursors", {}),
            "input_watermarks": unit.get("input_watermarks", {}),
            "files": [],
        }
        yield f"unit {name} has lost its state: {', '.join(outputs)} begin anew"


def _can_replay(home: Home, checkpoint: Mapping[str, Any]) -> bool:
    return all(log in home.logs and home.logs[log].covers(at) for log, at in checkpoint["cursors"].items())


def _resume(units: Mapping[str, dict[str, Any]], change: Change) -> None:
    """Resume queries that stopped with their whole unit, on damage."""
    for name, unit in units.items():
        stopped = unit.get("resumable", ())
        if stopped and "failed" not in change.units.get(name, {}):
            left = {log: why for log, why in unit.get("failed", {}).items() if log not in stopped}
            change.units.setdefault(name, {}).update(failed=left or None, resumable=None)
            change.lives |= {log: {"tries": None} for log in stopped}
