"""Random sets of joins against DuckDB, placed in every way; more in `slow_joins_against_sql.py`."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from joins.drawn import DrawnInput, DrawnJoin, DrawnWindow
from joins.playing import Life, Scene, check, scenes


def _on_one_key(names: str, seconds: int) -> DrawnJoin:
    inputs = tuple(DrawnInput(name, f"{name}0", DrawnWindow("seconds", seconds)) for name in names)
    return DrawnJoin(inputs, tuple(f"{names[0]}0.k = {name}0.k" for name in names[1:]))


# Units run after each row, and d is silent at first: rows of others that wait for it were let go of.
SILENT = Scene(
    joins=[_on_one_key("abc", 9), _on_one_key("abd", 9), _on_one_key("ab", 3)],
    lives=[Life(), Life(), Life(8)],
    rows=[
        ("abc"[number % 3] if number < 18 else "d", number, (1, number % 2, number)) for number in range(21)
    ],
    actions=[(place, ("crash" if place == 11 else "run", 0)) for place in range(21)],
)


@settings(max_examples=20)
@given(scenes(cells=st.integers(1, 8)))
@example(SILENT)
def test_joins_give_what_sql_gives(scene: Scene) -> None:
    check(scene)
