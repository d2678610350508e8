"""Random sets of joins against DuckDB, placed in every way; more in `slow_joins_against_sql.py`."""

from __future__ import annotations

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from joins.drawn import Arrival, DrawnInput, DrawnJoin, DrawnWindow
from joins.playing import Action, Life, Scene, check, scenes


def _on_one_key(names: str, seconds: int | None) -> DrawnJoin:
    inputs = tuple(DrawnInput(name, f"{name}0", DrawnWindow("seconds", seconds)) for name in names)
    return DrawnJoin(inputs, tuple(f"{names[0]}0.k = {name}0.k" for name in names[1:]))


def _silent(long: int | None, short: int | None) -> Scene:
    """Units run after each row, and d is silent at first: rows of others wait for it."""
    return Scene(
        joins=[_on_one_key("abc", long), _on_one_key("abd", long), _on_one_key("ab", short)],
        lives=[Life(), Life(), Life(8)],
        rows=[
            ("abc"[number % 3] if number < 18 else "d", number, (1, number % 2, number))
            for number in range(21)
        ],
        actions=[(place, ("crash" if place == 11 else "run", 0)) for place in range(21)],
    )


# Rows that waited were let go of: ages are differences to the beginning of time, and windows may be endless.
SILENT = _silent(9, 3)
SILENT_ENDLESS = _silent(None, 3)


def _of_inputs(sizes: dict[str, int | None], *conditions: str) -> DrawnJoin:
    """A join of relations whose aliases have a number at the end."""
    inputs = (DrawnInput(alias[:-1], alias, DrawnWindow("seconds", size)) for alias, size in sizes.items())
    return DrawnJoin(tuple(inputs), conditions)


# A join comes to a task whose subtasks divide rows by keys on which it does not agree.
OTHER_KEYS = Scene(
    joins=[
        _of_inputs({"a0": 5, "b0": 5, "c0": 5}, "a0.k = b0.k", "b0.v = c0.v"),
        _of_inputs({"a0": 5, "b0": 5, "c0": 5}, "a0.k = c0.k", "b0.v = c0.v"),
    ],
    lives=[Life(), Life(12, 24)],
    rows=[("abc"[n % 3], n // 3, (n % 4 % 3, n % 5 % 2, n)) for n in range(30)],
    actions=[(place, ("crash" if place == 18 else "run", 0)) for place in range(0, 30, 6)],
    subtasks=4,
)
_EQUAL = (
    "a0.k = e1.k",
    "coalesce(a0.k, 0) = coalesce(e2.k, 0)",
    "a0.k = merged3.k",
    "a0.k = b4.k AND a0.v = b4.v",
)
# The second join names the copies of e in the other order, so its keys are of other inputs.
SELF_JOINED = Scene(
    joins=[
        _of_inputs({"a0": 3, "e1": 3, "e2": 3, "merged3": None, "b4": None}, *_EQUAL),
        _of_inputs({"e2": 3, "e1": 3, "a0": 2, "merged3": 9, "b4": 5}, *_EQUAL),
    ],
    lives=[Life(), Life(0, 7)],
    rows=[
        ("e", 1, (1, 2, 0)), ("b", 2, (1, 3, 1)), ("e", 3, (1, 3, 2)), ("e", 4, (None, 2, 3)),
        ("a", 4, (2, None, 4)), ("a", 5, (1, 1, 5)), ("b", 6, (1, 3, 6)), ("e", 6, (2, None, 7)),
        ("b", 7, (1, 1, 8)), ("a", 8, (None, 2, 9)), ("a", 8, (1, 2, 10)), ("b", 9, (None, 2, 11)),
        ("a", 9, (2, 1, 12)), ("c", 10, (None, 2, 13)), ("c", 10, (2, 3, 14)), ("a", 10, (1, 2, 15)),
        ("c", 10, (2, 1, 16)), ("c", 11, (2, 1, 17)),
    ],
    actions=[
        (0, ("run", 1)), (17, ("place", 2)), (16, ("lose", 1)), (4, ("move", 0)), (1, ("place", 0)),
        (18, ("workers", 2)),
    ],
    subtasks=6,
    placing=85,
)  # fmt: skip


@pytest.mark.slow_cpu
@settings(max_examples=20)
@given(scenes(subtasks=st.integers(1, 8)))
@example(SILENT)
@example(SILENT_ENDLESS)
@example(OTHER_KEYS)
@example(SELF_JOINED)
def test_joins_give_what_sql_gives(scene: Scene) -> None:
    event(f"a key was heavy: {check(scene) > 0}")


def test_joins_give_what_sql_gives_while_keys_are_heavy() -> None:
    """Placed by key in three subtasks: rows of one key come on both sides, while subtasks die and move."""
    inputs = tuple(
        DrawnInput(name, f"{name}{place}", DrawnWindow("seconds", 5)) for place, name in enumerate("ab")
    )
    join = DrawnJoin(inputs, ("a0.k = b1.k", "a0.v <= b1.v"))
    keys = [1, 1, 1, 2, 1, 3, None, 1]
    rows: list[Arrival] = [
        ("ab"[n % 2], n // 3, (keys[n // 2 % len(keys)] if n < 100 else n % 5, n * 7 % 5, n))
        for n in range(160)
    ]
    disturbing: list[tuple[int, Action]] = [
        (40, ("crash", 0)), (60, ("lose", 1)), (70, ("move", 1)), (90, ("restart", 0))
    ]  # fmt: skip
    assert check(Scene([join], [Life()], rows, disturbing, 3, eager=True)) > 10
