"""Kills a process again and again while it runs statements of every kind, and checks what is left.

As a program it reads the number of kills, a seed and a folder, and prints one line per kill. Every run is a
process of its own, forked from this one, which has loaded all that a mill needs. A run is killed with
SIGKILL: from outside at a random moment, or by itself before, in the middle of or after a random file
operation. Then another process opens the home: what was acknowledged must be there, the statement under way
wholly or not at all, and in a copy of the home every name must be usable.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from recovery.dying import AFTER, BEFORE, TORN, Death, dying
from recovery.mixed_statements import (
    DECLARED_FIRST,
    Change,
    Declared,
    check_usable,
    feed,
    found_in,
    new_home,
    next_change,
    reopened,
)

_STATEMENTS_IN_RUN, _KILLS_IN_HOME = 10, 25
_LONGEST_S, _MOST_STEPS = 1.2, 120
_WRONG, _ABSENT, _PRESENT = 1, 10, 11


@dataclass
class _Kill(Death):
    """Kills this process in a step of its files."""

    def step(self, operation: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        try:
            return super().step(operation, arguments, named)
        finally:
            if self.dead:
                os.kill(os.getpid(), signal.SIGKILL)


def changes(declared: Declared, seed: str) -> list[Change]:
    """The statements of a run."""
    dice, found = random.Random(seed), list[Change]()
    for _ in range(_STATEMENTS_IN_RUN):
        found.append(next_change(declared, dice))
        declared = found[-1].after
    return found


def run(home: Path, statements: list[Change], said: int, number: int, death: Death | None) -> None:
    """Open a home and run statements in it; one byte is written when each begins, and one when it is done."""
    with dying(death if death is not None else Death()):
        mill = reopened(home)
        for index, change in enumerate(statements):
            if index % 3 == 0:
                feed(mill, number * 1_000 + index * 10)
            os.write(said, b"b")
            mill.execute(change.text)
            os.write(said, b"d")
    signal.pause()


def check(home: Path, scratch: Path, before: Declared, after: Declared | None) -> int:
    """Open a home after a kill; say whether it has the statement that was under way."""
    mill = reopened(home)
    found = found_in(mill)
    mill.close()
    if found not in (before, after):
        expected = dict(before)
        differs = {one for one in {*found, *expected} if found.get(one) != expected.get(one)}
        print({one: (found.get(one), expected.get(one)) for one in differs}, file=sys.stderr)
        return _WRONG
    check_usable(home, scratch)
    return _ABSENT if found == before else _PRESENT


def forked(work: Callable[[], int | None]) -> int:
    """Do work in a process of its own; return its id."""
    child = os.fork()
    if child == 0:
        _end(work)
    return child


def _end(work: Callable[[], int | None]) -> NoReturn:
    status = _WRONG
    try:
        status = work() or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def kill_once(home: Path, declared: Declared, seed: str, number: int) -> tuple[Declared, str]:
    """Run statements until a kill; return what is declared then, and what happened."""
    dice, statements = random.Random(seed), changes(declared, seed)
    by_step = dice.random() < 0.5
    death = _Kill(dice.randrange(_MOST_STEPS), dice.choice((BEFORE, TORN, AFTER))) if by_step else None
    read, written = os.pipe()
    child = forked(lambda: run(home, statements, written, number, death))
    os.close(written)
    told = b""
    while b"b" not in told and (part := os.read(read, 1)):  # until the first statement begins, or it has died
        told += part
    ends = time.monotonic() + dice.random() * _LONGEST_S
    while (
        time.monotonic() < ends and os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    ):
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    while part := os.read(read, 4_096):
        told += part
    os.close(read)
    done, begun = told.count(b"d"), told.count(b"b")
    if status != -signal.SIGKILL:
        raise AssertionError(f"{seed}: a run ended by itself, with status {status}")
    before = statements[done - 1].after if done else declared
    under_way = statements[begun - 1] if begun > done else None
    with tempfile.TemporaryDirectory(dir=home.parent) as scratch:
        after = None if under_way is None else under_way.after
        checker = forked(lambda: check(home, Path(scratch) / "copy", before, after))
        status = os.waitstatus_to_exitcode(os.waitpid(checker, 0)[1])
    what = "between statements" if under_way is None else under_way.kind
    where = "at a moment" if death is None else f"{death.when} file step {death.at}"
    if status not in (_ABSENT, _PRESENT):
        text = "" if under_way is None else under_way.text
        raise AssertionError(f"{seed}: killed {where} in {what} {text!r} after {done} statements")
    if after is not None and status == _PRESENT:
        return after, f"{where}, {done} done, {what}: present"
    return before, f"{where}, {done} done, {what}: absent" if after is not None else f"{where}, {done} done"


def main(kills: int, seed: int, folder: Path) -> None:
    new_home(folder / "warm")  # so that what is compiled or loaded late is there before the first fork
    check_usable(folder / "warm", folder / "warm copy")
    for number in range(kills):
        home = folder / f"home-{number // _KILLS_IN_HOME}"
        if number % _KILLS_IN_HOME == 0:
            new_home(home)
            declared = DECLARED_FIRST
        declared, what = kill_once(home, declared, f"{seed}/{number}", number + 1)
        print(f"{number + 1} killed {what}", flush=True)
        if number % _KILLS_IN_HOME == _KILLS_IN_HOME - 1:
            shutil.rmtree(home)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
