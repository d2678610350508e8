"""What holds of joins of several streams however they run: state, orders, blocks, who is there (S45-S50)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.multijoin.running import NAMES, SECOND, Event, arrivals, as_multi, catalog_of
from slicemill.columns.rows import to_table
from slicemill.operators.join import search as search_module
from slicemill.operators.join.form import forms_from_measures
from slicemill.operators.join.orders import StateProbe
from slicemill.operators.join.partials import PartialResults
from slicemill.operators.join.slices.coverage import complete_from, covers
from slicemill.operators.join.spec import SharedJoin
from slicemill.operators.join.state import JoinState
from slicemill.operators.join.step import SharedJoinStep
from slicemill.types import Schema, Timed

# Of one query: the seconds of its windows, and what else it says.
Parts = tuple[tuple[int, int, int], str]
parts: st.SearchStrategy[Parts] = st.tuples(
    st.tuples(*[st.integers(1, 8)] * 3),
    st.sampled_from(["", " AND A.v > 0", " AND B.v > 1 AND A.v > 0", " AND A.v < C.v", " AND C.k > 0"]),
)


def text_of(windows: Sequence[int], where: str = "", keys: str = "A.k = B.k AND B.k = C.k") -> str:
    sources = ", ".join(
        f"{name} [RANGE {seconds} SECONDS]" for name, seconds in zip("ABC", windows, strict=True)
    )
    return f"SELECT A.v, B.v AS w, C.v AS x, A.t, B.t AS u, C.t AS y FROM {sources} WHERE {keys}{where}"


def planned(texts: Mapping[str, str]) -> tuple[SharedJoin, list[Schema]]:
    """The joins of some queries as one, and the schemas of their inputs."""
    graph = as_multi(catalog_of(texts))
    (node,) = (node for node in graph if isinstance(node.operator, SharedJoin))
    assert isinstance(node.operator, SharedJoin)
    return node.operator, [graph[source].schema for source in node.inputs]


def named(drawn: Sequence[Parts]) -> dict[str, str]:
    return {f"q{number}": text_of(windows, where) for number, (windows, where) in enumerate(drawn)}


def fed(join: SharedJoinStep, schemas: Sequence[Schema], run: Sequence[Event], until: int) -> list[pa.Table]:
    tables = []
    for name, schema in zip("ABC", schemas, strict=False):
        mine = [(number, Timed(ts * SECOND, row)) for number, (ts, of, row) in enumerate(run) if of == name]
        timed = [one for _, one in mine]
        # Numbers rise with time, whatever the runs.
        seqs = [one.ts + number for number, one in mine]
        tables.append(to_table(timed, schema, [one.ts for one in timed], seqs))
    answers = join.run(tables, [until * SECOND] * len(tables))
    assert all(isinstance(answer, tuple) for answer in answers)
    return [answer[0] for answer in answers if isinstance(answer, tuple)]


def rows_of(answers: Sequence[pa.Table]) -> list[list[dict[str, object]]]:
    return [answer.drop_columns(["_arr"]).to_pylist() for answer in answers]


def by_second(arriving: Sequence[Event], every: int) -> list[tuple[list[Event], int]]:
    """What comes in so many seconds, and up to when that is complete."""
    return [
        ([event for event in arriving if first <= event[0] < first + every], first + every)
        for first in range(0, 12, every)
    ]


def held(state: JoinState) -> dict[str, int]:
    return {name: sum(stored.rows for stored in side.slices) for name, side in state.sides.items()}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(*[st.integers(1, 8)] * 3), min_size=1, max_size=5), arrivals(), st.integers(1, 4))
def test_the_state_of_a_stream_is_that_of_one_join_with_the_longest_window(
    windows: list[tuple[int, int, int]], arriving: list[Event], every: int
) -> None:
    """Theorem 10."""
    many, schemas = planned({f"q{n}": text_of(own) for n, own in enumerate(windows)})
    longest, _ = planned({"q": text_of([max(one) for one in zip(*windows, strict=True)])})
    together, alone = (SharedJoinStep(join, schemas, JoinState()) for join in (many, longest))
    for run, until in by_second(arriving, every):
        fed(together, schemas, run, until)
        fed(alone, schemas, run, until)
        assert held(together.state) == held(alone.state)


@settings(max_examples=30, deadline=None)
@given(st.lists(parts, min_size=1, max_size=4), arrivals(), st.integers(1, 4))
def test_what_is_kept_is_wanted_by_a_query_and_so_is_every_partial_result(
    drawn: list[Parts], arriving: list[Event], every: int
) -> None:
    """Theorems 11 to 13: no row is stored that no selection lets pass, nothing is probed for nobody."""
    operator, schemas = planned(named(drawn))
    join = SharedJoinStep(operator, schemas, JoinState())
    seen: list[PartialResults] = []
    probed = join.search._probe_targets

    def noting(partials: PartialResults, *others: object) -> object:
        seen.append(partials)
        return probed(partials, *others)  # type: ignore[arg-type]

    with patch.object(join.search, "_probe_targets", noting):
        for run, until in by_second(arriving, every):
            fed(join, schemas, run, until)
    assert all(partials.words.any(axis=1).all() for partials in seen)
    for side in join.state.sides.values():
        for stored in side.slices:
            assert stored.block(1).words.any(axis=1).all() and stored.wanted


@settings(max_examples=30, deadline=None)
@given(st.lists(parts, min_size=1, max_size=3), arrivals(), st.integers(0, 99), st.integers(1, 5))
def test_results_depend_neither_on_orders_nor_on_how_many_are_found_at_once(
    drawn: list[Parts], arriving: list[Event], seed: int, block: int
) -> None:
    operator, schemas = planned(named(drawn))
    as_planned, otherwise = (SharedJoinStep(operator, schemas, JoinState()) for _ in range(2))
    chooser = random.Random(seed)

    def expected(_: StateProbe) -> float:
        return chooser.random()

    for run, until in by_second(arriving, 4):
        found = rows_of(fed(as_planned, schemas, run, until))
        with (
            patch.object(otherwise.search, "_expected", expected),
            patch.object(search_module, "PARTIALS_PER_BLOCK", block),
        ):
            otherwise.search.plan_orders()
            assert rows_of(fed(otherwise, schemas, run, until)) == found


def test_the_order_follows_what_is_measured() -> None:
    """B matches often and C hardly ever: rows of A look into C first, once that is known."""
    operator, schemas = planned({"q": text_of((9, 9, 9), keys="A.k = B.k AND A.v = C.v")})
    join = SharedJoinStep(operator, schemas, JoinState())
    assert [probe.target for probe in join.search.orders[0].next] == [1]
    join.state.measures.record_probe("1:0.0=0", 5000, 9000, 9000)
    join.state.measures.record_probe("2:0.1=0", 5000, 50, 50)
    join.search.plan_orders()
    assert [probe.target for probe in join.search.orders[0].next] == [2]


def test_rates_and_matches_are_measured_and_told() -> None:
    operator, schemas = planned({"q": text_of((60, 60, 60))})
    join = SharedJoinStep(operator, schemas, JoinState())
    chooser = random.Random(1)
    for second in range(10):
        run = [(second, of, (chooser.randrange(5), 1, "x")) for of in "A" * 40 + "B" * 20 + "C" * 10]
        fed(join, schemas, run, second + 1)
    known = join.state.statistics()
    assert known is not None and known.measured
    assert known.rates == pytest.approx((40, 20, 10))
    # One pair in five has the same key; rows met were fewer while the states grew.
    assert 0.05 < known.matching < 0.2
    forms = forms_from_measures(replace(operator, measured=known))
    assert forms is not None and forms.multi.memory == pytest.approx(60 * 70)


@settings(max_examples=25, deadline=None)
@given(st.lists(parts, min_size=1, max_size=3), parts, arrivals(), st.integers(0, 12), st.booleans())
def test_a_newcomer_is_complete_from_when_it_is_told(
    drawn: list[Parts], late: Parts, arriving: list[Event], cut: int, stay: bool
) -> None:
    before = named(drawn)
    old, schemas = planned(before)
    state = JoinState()
    fed(SharedJoinStep(old, schemas, state), schemas, [e for e in arriving if e[0] < cut], cut)
    joined, _ = planned({**(before if stay else {}), "late": text_of(*late)})
    newcomer = next(member for member in joined.members if member.name.startswith("late"))
    members = {member.name: member for member in old.members}
    covered = covers([newcomer], list(members.values()))
    rest = [event for event in arriving if event[0] >= cut]
    answers = fed(SharedJoinStep(joined, schemas, state, covered), schemas, rest, 99)
    found = _shown(answers[joined.members.index(newcomer)])
    alone, _ = planned({"late": text_of(*late)})
    always = _shown(fed(SharedJoinStep(alone, schemas, JoinState()), schemas, arriving, 99)[0])
    whole = complete_from(newcomer, members, covered, {}, cut * SECOND)
    assert whole is not None and whole >= cut * SECOND
    assert {row for row in always if row[0] >= max(whole, cut * SECOND)} <= found <= always


def _shown(answer: pa.Table) -> set[tuple[object, ...]]:
    columns = [name for name in answer.column_names if name not in ("_seq", "_arr")]
    return set(zip(*(answer.column(name).to_pylist() for name in columns), strict=True))


def test_masks_have_as_many_words_as_queries_need() -> None:
    texts = {f"q{number}": text_of((3 + number % 7,) * 3) for number in range(70)}
    arriving = [(n // 6, NAMES[n % 3], (n // 3 % 2, n % 4, "x")) for n in range(60)]
    operator, schemas = planned(texts)
    join = SharedJoinStep(operator, schemas, JoinState())
    assert join.state.query_bits.words == 2
    found = [rows_of(fed(join, schemas, run, until)) for run, until in by_second(arriving, 5)]
    for number in (0, 63, 64, 69):
        alone, _ = planned({"q": texts[f"q{number}"]})
        single = SharedJoinStep(alone, schemas, JoinState())
        expected = [rows_of(fed(single, schemas, run, until))[0] for run, until in by_second(arriving, 5)]
        assert [answers[number] for answers in found] == expected
        assert sum(map(len, expected)) > 0


@pytest.mark.parametrize("every", [1, 4])
def test_queries_over_other_sets_of_streams_share_the_states_of_those_in_common(every: int) -> None:
    """A query over A, B and C and one over A and B: one state of each, and one way from A to B."""
    operator, schemas = planned({"q": text_of((3, 4, 5)), "p": text_of((6, 2, 1))})
    whole, two = operator.members
    pair = replace(
        two,
        windows=two.windows[:2],
        selections=two.selections[:2],
        inputs=two.inputs[:2],
        equal=tuple(tuple(one for one in equal if one[0] < 2) for equal in two.equal),
        columns=tuple(column for column in two.columns if column[1] < 2),
    )
    mixed = SharedJoinStep(replace(operator, members=(whole, pair)), schemas, JoinState())
    assert len(mixed.search.orders[0].next) == 1 and len(mixed.search.orders[2].members()) == 1
    chooser = random.Random(3)
    arriving = sorted(
        (chooser.randrange(12), chooser.choice("ABC"), (chooser.randrange(2), chooser.randrange(4), "x"))
        for _ in range(60)
    )
    alone = [SharedJoinStep(replace(operator, members=(one,)), schemas, JoinState()) for one in (whole, pair)]
    total = 0
    for run, until in by_second(arriving, every):
        expected = [rows_of(fed(join, schemas, run, until))[0] for join in alone]
        assert rows_of(fed(mixed, schemas, run, until)) == expected
        total += len(expected[1])
    assert total > 20
