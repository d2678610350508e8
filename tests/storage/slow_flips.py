"""Two thousand bit flips in all files of a home directory (`make test-slow`): no wrong rows, no crash.

    PYTHONPATH=src:tests python tests/storage/slow_flips.py [flips] [seed]

prints the table. Child processes try the flips, so that a flip which ends its process counts, too.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from storage.flips import Flip, Outcome, expected_results, flips, make_home, outcome_of_flip

FLIPS, SEED = 2_000, 33
_PER_CHILD = 100
_COLUMNS = ("flips", "found", "refused", "stopped", "recovered", "harmless", "wrong", "crashed")


def tried(folder: Path, count: int, seed: int) -> list[tuple[Flip, Outcome]]:
    """Create a home directory, try flips in it, and return each flip with its effect."""
    home = folder / "home"
    make_home(home)
    expected = expected_results(home, folder)
    assert all(expected.values()), "every query has results"
    todo = list(flips(home, count, seed))
    found: list[tuple[Flip, Outcome]] = []
    while todo:
        outcomes = _in_a_child(home, todo[:_PER_CHILD], folder, expected)
        found += zip(todo, outcomes, strict=False)
        del todo[: len(outcomes)]
    return found


def _in_a_child(home: Path, some: Sequence[Flip], folder: Path, expected: dict[str, Any]) -> list[Outcome]:
    """Return the effects of flips, up to a flip that ends the process."""
    told = folder / "outcomes"
    told.write_text("")
    child = os.fork()
    if not child:
        try:
            with told.open("a") as file:
                for flip in some:
                    file.write(json.dumps(asdict(outcome_of_flip(home, flip, folder, expected))) + "\n")
                    file.flush()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    outcomes = [Outcome(**json.loads(line)) for line in told.read_text().splitlines()]
    if len(outcomes) < len(some):
        outcomes.append(Outcome("crashed", False, f"the process ended with status {status}"))
    return outcomes


def table(found: Sequence[tuple[Flip, Outcome]]) -> str:
    """Format one line for each kind of file."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for flip, outcome in found:
        for kind in (flip.kind, "all"):
            counts[kind].update(["flips", outcome.what, *(["found"] if outcome.found else [])])
    lines = [f"{'':20}" + "".join(f"{name:>10}" for name in _COLUMNS)]
    for kind in sorted(counts, key=lambda kind: (kind == "all", kind)):
        lines.append(f"{kind:20}" + "".join(f"{counts[kind][name]:>10}" for name in _COLUMNS))
    return "\n".join(lines)


def bad(found: Sequence[tuple[Flip, Outcome]]) -> list[tuple[Flip, Outcome]]:
    """Return flips that caused wrong rows or a crash, and harmful flips that `home check` missed."""
    return [
        (flip, outcome)
        for flip, outcome in found
        if outcome.what in ("wrong", "crashed")
        or not (outcome.found or outcome.what in ("refused", "harmless"))
    ]


def test_two_thousand_bit_flips_cause_no_wrong_rows_and_no_crash(tmp_path: Path) -> None:
    found = tried(tmp_path, FLIPS, SEED)
    print(table(found))
    assert len(found) == FLIPS
    assert bad(found) == []


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        said = tried(Path(made), *map(int, (*sys.argv[1:], *(FLIPS, SEED)[len(sys.argv) - 1 :])))
        print(table(said))
        for one in bad(said):
            print(*one)
