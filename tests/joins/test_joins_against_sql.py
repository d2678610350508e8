"""Random sets of joins against DuckDB, placed in every way; more in `slow_joins_against_sql.py`."""

from __future__ import annotations

from hypothesis import event, given, settings
from hypothesis import strategies as st

from joins.drawn import Arrival, DrawnInput, DrawnJoin, DrawnWindow
from joins.playing import Action, Life, Scene, check, scenes


@settings(max_examples=20)
@given(scenes(cells=st.integers(1, 8)))
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
