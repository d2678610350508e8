"""Placements in a mill: asked for, kept over a restart, told by explain; rows are the same in all."""

from __future__ import annotations

from pathlib import Path

import pytest

from slicemill.api.mill import Mill
from slicemill.errors import SlicemillError
from slicemill.runtime import skew
from slicemill.testing import Clock, inline_pool, open_mill
from slicemill.types import Timed
from support.engine import feed_rows

SECOND = 1_000_000
EAGER = skew.SkewLimits(uneven=1.1, light=0.1, enough_work=0.5, enough_ahead=0.5, row_work=0.01)
STREAMS = "".join(f"CREATE STREAM {name} (k int, v int, ts timestamp) ORDER BY ts;" for name in "abc")
WINDOWS = ", ".join(f"{name} [RANGE 4 SECONDS]" for name in "abc")
TWO_KEYS = f"SELECT a.v, b.v AS w, c.v AS z FROM {WINDOWS} WHERE a.k = b.k AND b.v = c.v"
THETA = "SELECT a.v, b.v AS w FROM a [RANGE 4 SECONDS], b [RANGE 4 SECONDS] WHERE a.v < b.v"
PAIR = "SELECT a.v, b.v AS w FROM a [RANGE 4 SECONDS], b [RANGE 4 SECONDS] WHERE a.k = b.k"


def mill_in(folder: Path, clock: Clock, placement: str = "auto") -> Mill:
    return open_mill(
        home=folder, pool=inline_pool(2), clock=clock, subtasks=4, placement=placement, read_sources=False
    )


def feed(mill: Mill, clock: Clock, first: int, last: int) -> None:
    for number in range(first, last):
        clock.now += SECOND // 4
        for index, name in enumerate("abc"):
            if name in mill.running.streams:
                ts = number * SECOND // 4
                feed_rows(mill, name, [((number + index + n) % 3, (number + n) % 4, ts) for n in (0, 1)])
        if number % 4 == 3:
            mill.dispatcher.run_all()


def results(
    folder: Path, query: str, placement: str, subtasks: int = 4
) -> tuple[list[Timed], dict[str, object]]:
    """All rows, with a restart in between that asks for nothing, and the placement of the task."""
    clock = Clock()
    with mill_in(folder, clock, placement) as mill:
        mill.execute(f"{STREAMS} CREATE QUERY q AS {query};")
        mill.open()
        feed(mill, clock, 0, 10)
    with mill_in(folder, clock) as mill:
        mill.execute(f"{STREAMS} CREATE QUERY q AS {query};")
        mill.open()
        feed(mill, clock, 10, 20)
        mill.drain()
        ((_, fields),) = mill.home.tasks.items()
        return list(mill.queries["q"].timed_rows()), fields["placement"]


@pytest.mark.parametrize(
    ("query", "placements"),
    [
        (TWO_KEYS, ("hypercube", "cube", "auto")),
        (THETA, ("time", "auto")),
        (PAIR, ("key", "time", "auto")),
    ],
)
def test_rows_are_those_of_one_subtask_and_the_placement_outlives_the_mill(
    tmp_path: Path, query: str, placements: tuple[str, ...]
) -> None:
    alone, kept = results(tmp_path / "one", query, "one")
    assert kept == {"kind": "one", "shape": [1], "by": {}}
    assert len(alone) > 50
    for placement in placements:
        rows, kept = results(tmp_path / placement, query, placement)
        assert rows == alone
        assert kept["kind"] == placement or (placement == "auto" and kept["kind"] != "one")


def test_a_placement_that_is_none_is_told_before_anything_is_opened(tmp_path: Path) -> None:
    with pytest.raises(SlicemillError, match="there is no placement 'ring'; use one of auto, one, key"):
        Mill(home=tmp_path / "home", placement="ring")
    assert not (tmp_path / "home").exists()


def test_a_task_that_cannot_be_placed_so_is_told_and_registers_nothing(tmp_path: Path) -> None:
    with mill_in(tmp_path, Clock(), "key") as mill:
        mill.open()
        with pytest.raises(SlicemillError, match="joins of a and b cannot be placed as key in 4 subtasks"):
            mill.execute(f"{STREAMS} CREATE QUERY q AS {THETA};")
        assert not mill.queries and not mill.home.tasks
        mill.execute(f"{STREAMS} CREATE QUERY q AS {PAIR};")
        assert list(mill.queries) == ["q"]


def test_explain_tells_the_placement_that_a_task_has(tmp_path: Path) -> None:
    clock = Clock()
    with mill_in(tmp_path, clock, "time") as mill:
        mill.execute(f"{STREAMS} CREATE QUERY q AS {PAIR};")
        mill.open()
        feed(mill, clock, 0, 4)
        text = mill.queries["q"].explain()
    assert "placement    by time, 4 subtasks: a to all subtasks, b to all subtasks" in text
    assert "alternative  by key, 4 subtasks:" in text


def with_left_join(folder: Path, placement: str) -> tuple[list[list[Timed]], dict[str, object]]:
    """Rows of a join, and of a LEFT JOIN that comes to its task later; and the placement in the end."""
    left = PAIR.replace("], b", "] LEFT JOIN b").replace("WHERE", "ON")
    clock = Clock()
    with mill_in(folder, clock, placement) as mill:
        mill.execute(f"{STREAMS} CREATE QUERY q AS {PAIR};")
        mill.open()
        feed(mill, clock, 0, 10)
        mill.execute(f"CREATE QUERY l AS {left} AND a.v - b.v > 2;")
        feed(mill, clock, 10, 14)
    with mill_in(folder, clock, placement) as mill:
        mill.execute(f"{STREAMS} CREATE QUERY q AS {PAIR}; CREATE QUERY l AS {left} AND a.v - b.v > 2;")
        mill.open()
        feed(mill, clock, 14, 20)
        mill.drain()
        ((_, fields),) = mill.home.tasks.items()
        return [list(mill.queries[name].timed_rows()) for name in ("q", "l")], fields["placement"]


def test_a_join_that_tells_unmatched_rows_comes_to_one_that_is_spread_by_time(tmp_path: Path) -> None:
    """All that can match a row must come to its subtask then: the task is placed by key from now on."""
    alone, _ = with_left_join(tmp_path / "one", "one")
    assert any(row.row[1] is None for row in alone[1]) and len(alone[0]) > 50
    rows, kept = with_left_join(tmp_path / "time", "time")
    assert rows == alone
    assert kept["kind"] in ("key", "one")


def with_a_heavy_key(folder: Path, placement: str) -> list[list[Timed]]:
    """One key has nearly all rows; a LEFT JOIN comes when it is spread over all subtasks."""
    clock = Clock()

    def rows_of(mill: Mill, first: int, last: int) -> None:
        for number in range(first, last):
            clock.now += SECOND // 4
            for name in "ab":
                feed_rows(mill, name, [(7, n % 5, number * SECOND // 4) for n in range(8)])
                feed_rows(mill, name, [(number % 6 + 8, 1, number * SECOND // 4)])
            mill.dispatcher.run_all()

    left = PAIR.replace("], b", "] LEFT JOIN b").replace("WHERE", "ON")
    with mill_in(folder, clock, placement) as mill:
        mill.execute(f"{STREAMS} CREATE QUERY q AS {PAIR};")
        mill.open()
        rows_of(mill, 0, 7)
        ((_, fields),) = mill.home.tasks.items()
        assert bool(fields.get("heavy")) == (placement != "one")
        mill.execute(f"CREATE QUERY l AS {left} AND a.v - b.v > 3;")
        rows_of(mill, 7, 11)
        ((_, fields),) = mill.home.tasks.items()
        assert not fields.get("heavy")
        mill.drain()
        return [list(mill.queries[name].timed_rows()) for name in ("q", "l")]


def test_a_join_that_tells_unmatched_rows_comes_to_one_with_heavy_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of heavy keys go home to their subtasks."""
    monkeypatch.setattr(skew, "LIMITS", EAGER)
    alone = with_a_heavy_key(tmp_path / "one", "one")
    assert any(row.row[1] is None for row in alone[1])
    assert with_a_heavy_key(tmp_path / "hybrid", "hybrid") == alone


OTHER_KEYS = TWO_KEYS.replace("a.k = b.k", "a.k = c.k")  # the same task, but no common placement by keys


def played(
    folder: Path, placement: str, *steps: str, length: int = 6
) -> tuple[dict[str, list[Timed]], list[object]]:
    """Return all rows, and the placements of the task after each step.

    A step is a statement, or `restart with:` and the declarations after a restart.
    """
    clock = Clock()
    mill = mill_in(folder, clock, placement)
    mill.open()
    kinds: list[object] = []
    rows: dict[str, list[Timed]] = {}
    try:
        for number, step in enumerate(steps):
            if step.startswith("restart with:"):
                mill.close(checkpoint=False)
                mill = mill_in(folder, clock, placement)
                mill.execute(STREAMS + step.removeprefix("restart with:"))
                mill.open()
            else:
                mill.execute(step)
            feed(mill, clock, number * length, (number + 1) * length)
            kinds.append([fields["placement"]["kind"] for fields in mill.home.tasks.values()])
            rows |= {name: list(query.timed_rows()) for name, query in mill.queries.items()}
        mill.drain()
        rows |= {name: list(query.timed_rows()) for name, query in mill.queries.items()}
        assert not any(query.error for query in mill.queries.values())
        return rows, kinds
    finally:
        mill.close()


@pytest.mark.parametrize("placement", ["hypercube", "cube"])
def test_a_query_joins_a_task_whose_placement_it_does_not_allow(tmp_path: Path, placement: str) -> None:
    """The second join agrees on other keys, so the state moves to subtasks that both queries allow."""
    steps = [f"{STREAMS} CREATE QUERY q AS {TWO_KEYS};", f"CREATE QUERY p AS {OTHER_KEYS}", "DROP QUERY q"]
    alone, _ = played(tmp_path / "one", "one", *steps)
    rows, kinds = played(tmp_path / "many", placement, *steps)
    assert kinds == [[placement], ["one"], ["one"]]
    assert rows == alone and all(len(rows[name]) > 50 for name in "qp")


def test_a_start_declares_a_query_that_does_not_allow_the_stored_placement(tmp_path: Path) -> None:
    """The other query of the task is left out and declared again later."""
    q, p = f"CREATE QUERY q AS {TWO_KEYS};", f"CREATE QUERY p AS {OTHER_KEYS};"
    steps = [STREAMS + q, f"restart with:{p}", f"restart with:{q} {p}"]
    alone, _ = played(tmp_path / "one", "one", *steps)
    rows, kinds = played(tmp_path / "many", "hypercube", *steps)
    assert kinds[0] == ["hypercube"] and kinds[-1] == ["one"]
    assert rows == alone and all(len(rows[name]) > 20 for name in "qp")


GROUPS = (
    "SELECT a.k, count(*) AS n FROM a [RANGE 4 SECONDS SLIDE 1 SECOND], b [RANGE 4 SECONDS] "
    "WHERE a.k = b.k AND a.v = b.v GROUP BY a.k"
)


def test_a_replaced_query_groups_by_another_key(tmp_path: Path) -> None:
    """Its join keeps its rows, which are now in subtasks by the other key."""
    by_v = GROUPS.replace("a.k, count", "a.v, count").replace("GROUP BY a.k", "GROUP BY a.v")
    steps = [f"{STREAMS} CREATE QUERY q AS {GROUPS};", f"CREATE OR REPLACE QUERY q AS {by_v};"]
    alone, _ = played(tmp_path / "one", "one", *steps, length=30)
    rows, kinds = played(tmp_path / "many", "key", *steps, length=30)
    assert kinds == [["key"], ["key"]]
    assert rows == alone and len(rows["q"]) > 5


def test_a_replaced_query_keeps_no_state_in_subtasks_of_other_keys(tmp_path: Path) -> None:
    """State of DISTINCT cannot move, so the statement is refused and the query runs as before."""
    distinct = (
        "SELECT {0}, sum(v) OVER (PARTITION BY {0} ROWS 5 PRECEDING) AS s FROM (SELECT DISTINCT k, v FROM a)"
    )
    clock = Clock()
    with mill_in(tmp_path, clock, "key") as mill:
        mill.execute(f"{STREAMS} CREATE QUERY q AS {distinct.format('k')};")
        mill.open()
        feed(mill, clock, 0, 4)
        with pytest.raises(SlicemillError, match="run DROP QUERY q and create it anew"):
            mill.execute(f"CREATE OR REPLACE QUERY q AS {distinct.format('v')}")
        feed(mill, clock, 4, 8)
        assert len(mill.queries["q"].timed_rows()) == 9
        mill.execute(f"DROP QUERY q; CREATE QUERY q AS {distinct.format('v')}")
        feed(mill, clock, 8, 12)
        assert len(mill.queries["q"].timed_rows()) > 0
