"""A tuple meets the rows that a table had when it arrived, whatever is killed in between."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slicemill.api.mill import Mill
from slicemill.storage.changes import Change
from slicemill.testing import inline_pool, open_mill
from support.engine import feed_rows, finish

_SCRIPT = """
CREATE STREAM s (id bigint, ts timestamp) ORDER BY ts;
CREATE TABLE item (id bigint PRIMARY KEY, price bigint);
CREATE VIEW dear AS SELECT id, price FROM item WHERE price > 5;
CREATE AGGREGATE worth(x bigint) : bigint {
  TABLE state(total bigint);
  INITIALIZE: { INSERT INTO state SELECT 0 FROM item WHERE id = 0;
                INSERT INTO RETURN SELECT sum(price) FROM item; }
  ITERATE: { INSERT INTO RETURN SELECT sum(price) FROM item; } };
CREATE QUERY direct AS SELECT s.id, i.price FROM s, item AS i WHERE s.id = i.id;
CREATE STREAM odd AS SELECT id, ts FROM s WHERE id % 2 = 1;
CREATE QUERY behind AS SELECT o.id, d.price FROM odd AS o LEFT JOIN dear AS d ON o.id = d.id;
CREATE QUERY summed AS SELECT id, worth(id) AS total FROM s GROUP BY id;
"""

Rows = dict[int, int]


class Killed(BaseException):
    """The process ends here."""


@dataclass
class Expected:
    """What all queries give, worked out tuple by tuple."""

    item: Rows = field(default_factory=dict)
    direct: list[tuple[object, ...]] = field(default_factory=list)
    behind: list[tuple[object, ...]] = field(default_factory=list)
    summed: list[tuple[object, ...]] = field(default_factory=list)

    def arrives(self, id_: int) -> None:
        if id_ in self.item:
            self.direct.append((id_, self.item[id_]))
        if id_ % 2:
            price = self.item.get(id_)
            self.behind.append((id_, price if price is not None and price > 5 else None))
        self.summed.append((id_, sum(self.item.values()) if self.item else None))


_Step = tuple[str, int, int]
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("tuple"), st.integers(0, 4), st.just(0)),
        st.tuples(st.just("put"), st.integers(0, 4), st.integers(0, 12)),
        st.tuples(st.just("delete"), st.integers(0, 4), st.just(0)),
        st.tuples(st.just("run"), st.just(0), st.just(0)),
        st.tuples(st.just("restart"), st.just(0), st.just(0)),
    ),
    min_size=2,
    max_size=16,
)


class Machine:
    """A mill that may be killed at a commit, and goes on from what its home has."""

    def __init__(self, home: Path, kills: list[tuple[int, bool]]) -> None:
        self._home = home
        self._kills = kills
        self._commits = 0
        self.mill = self._opened()

    def _opened(self) -> Mill:
        while True:
            mill = open_mill(home=self._home, pool=inline_pool(2), subtasks=2)
            commit = mill.home.commit
            mill.home.commit = self._killing(commit)  # type: ignore[method-assign]
            try:
                mill.execute(_SCRIPT)
                mill.open()
                return mill
            except Killed:
                mill.home.close()

    def _killing(self, commit: Callable[[Change], int]) -> Callable[[Change], int]:
        def counted(change: Change) -> int:
            if not change:
                return commit(change)
            self._commits += 1
            if self._kills and self._commits >= self._kills[0][0]:
                _, after = self._kills.pop(0)
                if after:
                    commit(change)
                raise Killed
            return commit(change)

        return counted

    def do(self, step: Callable[[Mill], None], is_done: Callable[[Mill], bool]) -> None:
        """Do it until it is done: a step that was killed may have been done, or not."""
        while not is_done(self.mill):
            try:
                step(self.mill)
            except Killed:
                self.mill.home.close()
                self.mill = self._opened()

    def feed(self, row: tuple[int, int], arrived: int) -> None:
        self.do(lambda mill: feed_rows(mill, "s", [row]), lambda mill: _arrived(mill) >= arrived)

    def change(self, change: str, after: Rows) -> None:
        def made(mill: Mill) -> None:
            mill.statements.change_rows(change)

        self.do(made, lambda mill: _content(mill) == after)

    def until_done(self, step: Callable[[Mill], None]) -> None:
        done: list[bool] = []

        def noted(mill: Mill) -> None:
            step(mill)
            done.append(True)

        self.do(noted, lambda _: bool(done))

    def restart(self) -> None:
        try:
            self.mill.close()
        except Killed:
            self.mill.home.close()
        self.mill = self._opened()


def _content(mill: Mill) -> Rows:
    return {int(str(id_)): int(str(price)) for id_, price in mill.tables.rows("item")}


def _arrived(mill: Mill) -> int:
    return int(mill.home.streams.get("s", {}).get("next_seq") or 0)


def _results(mill: Mill, query: str) -> list[tuple[object, ...]]:
    return [timed.row for timed in mill.queries[query].timed_rows()]


@pytest.mark.slow_cpu
@settings(max_examples=25, deadline=None)
@given(_STEPS, st.lists(st.tuples(st.integers(1, 60), st.booleans()), max_size=4))
@example(
    [("put", 1, 9), ("tuple", 1, 0), ("put", 1, 7), ("tuple", 1, 0), ("restart", 0, 0)],
    [(14, True), (18, False)],
)
@example(
    [("tuple", 1, 0), ("put", 1, 9), ("run", 0, 0), ("tuple", 1, 0), ("delete", 1, 0), ("tuple", 3, 0)], []
)
def test_a_tuple_meets_the_rows_of_its_arrival(steps: list[_Step], kills: list[tuple[int, bool]]) -> None:
    expected = Expected()
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder) / "home", sorted(kills))
        arrived = 0
        for kind, id_, price in steps:
            if kind == "tuple":
                arrived += 1
                machine.feed((id_, arrived), arrived)
                expected.arrives(id_)
            elif kind == "put":
                expected.item = {**expected.item, id_: price}
                machine.change(f"INSERT OR REPLACE INTO item VALUES ({id_}, {price})", expected.item)
            elif kind == "delete":
                expected.item = {other: worth for other, worth in expected.item.items() if other != id_}
                machine.change(f"DELETE FROM item WHERE id = {id_}", expected.item)
            elif kind == "run":
                machine.until_done(lambda mill: mill.dispatcher.run_all())
            else:
                machine.restart()
        machine.until_done(finish)
        for query in ("direct", "behind", "summed"):
            found = _results(machine.mill, query)
            assert sorted(found, key=repr) == sorted(getattr(expected, query), key=repr), query
        machine.restart()
        assert _content(machine.mill) == expected.item
        machine.mill.close()
