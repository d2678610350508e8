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


@pytest.mark.slow_cpu
@settings(max_examples=20)
@given(scenes(cells=st.integers(1, 8)))
@example(SILENT)
@example(SILENT_ENDLESS)
def test_joins_give_what_sql_gives(scene: Scene) -> None:
    event(f"a key was heavy: {check(scene) > 0}")


def test_joins_give_what_sql_gives_while_keys_are_heavy() -> None:
    """Placed by key in three cells: rows of one key come on both sides, while cells die and move."""
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
