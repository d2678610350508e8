"""Placements of tasks: each finds every result exactly once, and the cheapest placement is chosen."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.columns.keys import stripes_of
from slicemill.errors import SlicemillError
from slicemill.functions.render import render
from slicemill.operators.graph import QueryGraph
from slicemill.plan.build import build_graph
from slicemill.plan.join_inputs import join_inputs_of
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.partitioning import Along, Exchange
from slicemill.plan.placement import (
    ONE_SUBTASK,
    Placement,
    PlacementKind,
    best_by_time,
    candidates,
    choose_placement,
    former_subtasks,
    kept_placement,
    parse_placement_kind,
    placements_of,
    replacement,
    restore_placement,
)
from slicemill.plan.placement_cost import PlacementStatistics, SubtasksByTime
from slicemill.plan.tasks import Task, split_into_tasks
from slicemill.runtime.shuffle import PartitionedRows

COLUMNS = ("x", "y", "z")
STREAMS = "".join(
    f"CREATE STREAM {name} (x INT, y INT, z INT, ts TIMESTAMP) ORDER BY ts;\n" for name in "abcd"
)


def from_clause(names: str) -> str:
    return ", ".join(f"{name} [RANGE 10 SECONDS]" for name in names)


PAIR = f"SELECT a.z FROM {from_clause('ab')} WHERE a.x = b.x"
THETA = f"SELECT a.z FROM {from_clause('ab')} WHERE a.x < b.x"
ONE_KEY = f"SELECT a.z FROM {from_clause('abc')} WHERE a.x = b.x AND b.x = c.x"
TWO_KEYS = f"SELECT a.z FROM {from_clause('abc')} WHERE a.x = b.x AND b.y = c.y"
THREE_THETA = f"SELECT a.z FROM {from_clause('abc')} WHERE a.x < b.x AND b.y < c.y"


def planned(query: str) -> tuple[Task, QueryGraph]:
    catalog = bind(f"{STREAMS} CREATE QUERY q AS {query};").catalog
    graph = share(optimize(build_graph(catalog)), catalog)
    (task,) = split_into_tasks(graph)
    return task, graph


def kinds(query: str, subtasks: int) -> set[str]:
    return {placement.kind.value for placement in placements_of(*planned(query), subtasks)}


# -- Correctness ----------------------------------------------------------------------------------------


Equality = tuple[str, str, str, str]


@st.composite
def joins(draw: st.DrawFn) -> tuple[str, dict[str, str], list[Equality]]:
    """Draw a join of two to four inputs, some of which may be the same stream, on any equalities."""
    number = draw(st.integers(2, 4))
    logs = {f"i{n}": draw(st.sampled_from("abcd")) for n in range(number)}
    names = st.sampled_from(sorted(logs))
    columns = st.sampled_from(COLUMNS)
    drawn = draw(st.lists(st.tuples(names, columns, names, columns), max_size=4))
    equal = [one for one in drawn if one[0] != one[2]]
    conditions = [f"{left}.{own} = {right}.{its}" for left, own, right, its in equal]
    conditions += draw(st.lists(st.just("i0.z <= i1.z"), max_size=1))
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    windows = ", ".join(f"{log} {name} [RANGE 5 SECONDS]" for name, log in logs.items())
    return f"SELECT i0.z FROM {windows}{where}", logs, equal


rows_of_logs = st.fixed_dictionaries(
    {name: st.lists(st.tuples(*[st.integers(0, 2)] * 3), min_size=1, max_size=5) for name in "abcd"}
)


def subtasks_by_row(rows: Sequence[tuple[int, ...]], by: Exchange) -> list[set[int]]:
    """Return for each row the subtasks that read it."""
    schema = pa.schema([pa.field(name, pa.int32()) for name in COLUMNS])
    columns = [pa.array([row[n] for row in rows], pa.int32()) for n in range(len(COLUMNS))]
    numbers = pa.array(range(len(rows)), pa.int64())
    table = pa.table([numbers, numbers, numbers, *columns], names=["_ts", "_seq", "_arr", *COLUMNS])
    spread = PartitionedRows(by, schema, [(table, 0)])
    found: list[set[int]] = [set() for _ in rows]
    for subtask in range(by.subtasks):
        for number in spread.part(subtask)["_seq"].to_pylist():
            found[number].add(subtask)
    return found


def results(
    logs: Mapping[str, str], equal: Sequence[Equality], rows: Mapping[str, Sequence[tuple[int, ...]]]
) -> Iterator[dict[str, int]]:
    """Yield every matching combination of rows, by the numbers of its rows."""
    for numbers in product(*(range(len(rows[log])) for log in logs.values())):
        found = dict(zip(logs, numbers, strict=True))

        def value(name: str, column: str, found: Mapping[str, int] = found) -> int:
            return rows[logs[name]][found[name]][COLUMNS.index(column)]

        if all(value(left, own) == value(right, its) for left, own, right, its in equal):
            yield found


@given(joins(), rows_of_logs, st.sampled_from([2, 3, 4, 5, 6, 8]))
@settings(max_examples=60, deadline=None)
def test_every_placement_finds_each_result_exactly_once(
    join: tuple[str, dict[str, str], list[Equality]],
    rows: dict[str, list[tuple[int, ...]]],
    subtasks: int,
) -> None:
    query, logs, equal = join
    for placement in placements_of(*planned(query), subtasks):
        if placement.kind is PlacementKind.ONE:
            continue
        assert subtasks / 2 < placement.subtasks <= subtasks
        assert placement.exchanges.keys() == set(logs.values())
        reading = {log: subtasks_by_row(rows[log], by) for log, by in placement.exchanges.items()}
        for found in results(logs, equal, rows):
            meeting = set.intersection(*(reading[logs[name]][row] for name, row in found.items()))
            if placement.kind is PlacementKind.TIME:
                # All subtasks read all rows; the subtask that has stored the older row finds the pair.
                assert meeting == set(range(placement.subtasks))
                stored = stripes_of(np.array(list(found.values())), subtasks)
                meeting = {int(stored[0])}
            assert len(meeting) == 1, placement.plain()


def test_each_kind_of_query_has_its_possible_placements() -> None:
    assert kinds(PAIR, 8) == {"one", "key", "time", "hybrid"}
    assert kinds(THETA, 8) == {"one", "time"}
    assert kinds(ONE_KEY, 8) == {"one", "key", "hypercube", "cube"}
    assert kinds(TWO_KEYS, 8) == {"one", "hypercube", "cube"}
    assert kinds(THREE_THETA, 8) == {"one", "cube"}
    assert kinds("SELECT sum(z) OVER (PARTITION BY x ROWS 5 PRECEDING) AS s FROM a", 8) == {"one", "key"}
    assert kinds("SELECT sum(z) OVER (ROWS 5 PRECEDING) AS s FROM a", 8) == {"one"}
    assert kinds("SELECT z FROM a WHERE x > 1", 8) == {"one"}
    by_rows = "SELECT a.z FROM a [ROWS 5], b [RANGE 5 SECONDS] WHERE a.x = b.x"
    assert kinds(by_rows, 8) == {"one", "time"}


def test_a_join_before_a_stateful_operator_is_split_by_its_key_or_not_at_all() -> None:
    grouped = f"SELECT a.{{}}, count(*) AS n FROM {from_clause('ab')} WHERE a.x = b.x GROUP BY a.{{}}"
    assert kinds(grouped.format("x", "x"), 8) == {"one", "key"}
    assert kinds(grouped.format("y", "y"), 8) == {"one"}


def test_join_keys_are_traced_through_projections_to_the_logs() -> None:
    inner = "SELECT x AS p, y AS q FROM b WHERE z > 0"
    task, graph = planned(
        f"SELECT t.p FROM a [RANGE 5 SECONDS], ({inner}) t [RANGE 5 SECONDS], c [RANGE 5 SECONDS] "
        "WHERE t.p = a.x AND t.q = c.y"
    )
    joined = join_inputs_of(task, graph)
    assert joined is not None
    assert sorted(one.logs for one in joined.inputs) == [("a",), ("b",), ("c",)]
    found = [one.of_logs(joined.inputs) for one in joined.classes]
    found.sort(key=lambda one: sorted(one))
    assert [{log: [render(key) for key in keys] for log, keys in one.items()} for one in found] == [
        {"a": ["x"], "b": ["x"]},
        {"b": ["y"], "c": ["y"]},
    ]


def test_an_input_computed_before_the_join_is_replicated() -> None:
    """All subtasks with all rows compute the same values; rows of other inputs may be divided."""
    union = "(SELECT x, y FROM a UNION ALL SELECT x, y FROM d) t [RANGE 5 SECONDS]"
    query = f"SELECT t.x FROM {union}, b [RANGE 5 SECONDS], c [RANGE 5 SECONDS] WHERE t.x = b.x AND b.y = c.y"
    found = placements_of(*planned(query), 8)[1:]
    assert found
    for placement in found:
        for log in "ad":
            assert set(placement.exchanges[log].by) == {Along.EVERY}


def test_a_stream_joined_with_itself_on_different_columns_is_replicated() -> None:
    """A row of such a log occurs twice in a result, with different keys."""
    query = "SELECT p.z FROM a p [RANGE 5 SECONDS], a q [RANGE 5 SECONDS], b [RANGE 5 SECONDS] "
    for placement in placements_of(*planned(f"{query} WHERE p.x = q.y AND q.z = b.z"), 8)[1:]:
        assert set(placement.exchanges["a"].by) == {Along.EVERY}


# -- Choice ---------------------------------------------------------------------------------------------


def heavy(query: str, share: float, subtasks: int) -> PlacementStatistics:
    """Return statistics with one key that has this share of the rows of all streams."""
    (by_key,) = [one for one in placements_of(*planned(query), subtasks) if one.kind is PlacementKind.KEY]
    shares = {}
    for log, exchange in by_key.exchanges.items():
        (keys,) = exchange.by
        assert not isinstance(keys, Along)
        shares[log, keys] = (share,)
    return PlacementStatistics(rates=dict.fromkeys(by_key.exchanges, 50_000.0), heavy=shares)


def test_uniform_keys_are_placed_by_key_because_placement_by_time_reads_more_rows() -> None:
    found = {one.placement.kind: one.cost for one in candidates(*planned(PAIR), 8)}
    assert choose_placement(*planned(PAIR), 8).kind is PlacementKind.KEY
    assert found[PlacementKind.TIME].rows_read == 8 * found[PlacementKind.KEY].rows_read
    assert found[PlacementKind.TIME].rows_kept == found[PlacementKind.KEY].rows_kept


def test_a_heavy_key_is_spread_by_time_and_other_keys_by_key() -> None:
    statistics = heavy(PAIR, 0.3, 8)
    found = {one.placement.kind: one.cost for one in candidates(*planned(PAIR), 8, statistics)}
    assert choose_placement(*planned(PAIR), 8, statistics).kind is PlacementKind.HYBRID
    one = found[PlacementKind.ONE].slowest_s
    assert found[PlacementKind.KEY].slowest_s > 0.9 * one
    assert found[PlacementKind.HYBRID].slowest_s < one / 5


def test_a_three_way_join_on_one_key_is_placed_by_key() -> None:
    assert choose_placement(*planned(ONE_KEY), 8).kind is PlacementKind.KEY


def test_a_three_way_join_on_a_heavy_key_is_also_striped() -> None:
    statistics = heavy(ONE_KEY, 0.3, 8)
    placement = choose_placement(*planned(ONE_KEY), 8, statistics)
    assert placement.kind in (PlacementKind.HYPERCUBE, PlacementKind.CUBE)
    assert any(Along.STRIPE in exchange.by for exchange in placement.exchanges.values())


def test_a_three_way_join_on_two_keys_is_placed_in_a_square() -> None:
    placement = choose_placement(*planned(TWO_KEYS), 16)
    assert placement.kind is PlacementKind.HYPERCUBE
    assert placement.plain()["by"] == {"a": ["x", "every"], "b": ["x", "y"], "c": ["every", "y"]}
    assert placement.shape == (4, 4)


def test_subtasks_that_do_not_divide_evenly_among_dimensions_are_not_used() -> None:
    assert choose_placement(*planned(TWO_KEYS), 5).shape == (2, 2)
    assert choose_placement(*planned(TWO_KEYS), 17).shape == (4, 4)
    assert choose_placement(*planned(PAIR), 5).shape == (5,)


def test_dimensions_of_a_hypercube_follow_rates_and_windows() -> None:
    """The largest window is divided most, because its replicas are expensive."""
    rates = PlacementStatistics(rates={"a": 40_000.0, "b": 10_000.0, "c": 2_500.0})
    placement = choose_placement(*planned(TWO_KEYS), 16, rates)
    assert placement.shape == (16,)
    assert placement.plain()["by"] == {"a": ["x"], "b": ["x"], "c": ["every"]}


def test_a_join_without_equalities_is_placed_by_time() -> None:
    assert choose_placement(*planned(THETA), 16).kind is PlacementKind.TIME
    assert choose_placement(*planned(THREE_THETA), 16).kind is PlacementKind.CUBE


@pytest.mark.parametrize("query", [PAIR, ONE_KEY, TWO_KEYS])
def test_a_task_with_little_work_stays_in_one_subtask(query: str) -> None:
    assert (
        choose_placement(*planned(query), 8, PlacementStatistics(rates=dict.fromkeys("abc", 50.0)))
        == ONE_SUBTASK
    )


@given(joins(), st.sampled_from([2, 4, 8]), st.lists(st.floats(1, 1e6), min_size=4, max_size=4))
@settings(max_examples=30, deadline=None)
def test_the_cheapest_placement_is_chosen(
    join: tuple[str, dict[str, str], list[Equality]], subtasks: int, rates: list[float]
) -> None:
    task, graph = planned(join[0])
    statistics = PlacementStatistics(rates=dict(zip("abcd", rates, strict=True)))
    found = candidates(task, graph, subtasks, statistics)
    prices = [one.cost.price(subtasks) for one in found]
    assert prices[0] == min(prices)
    assert choose_placement(task, graph, subtasks, statistics) == found[0].placement
    for one in found:
        cost = one.cost
        assert 0 < cost.slowest_s <= cost.cpu_s * (1 + 1e-9)
        assert cost.most_kept <= cost.rows_kept * (1 + 1e-9)
        # Without skew all subtasks are equally slow.
        assert cost.slowest_s * one.placement.subtasks == pytest.approx(cost.cpu_s)


@given(st.floats(1e-6, 100), st.floats(1e-6, 100), st.integers(1, 64))
def test_the_best_number_of_subtasks_by_time_has_the_lowest_price(
    divided_s: float, repeated_s: float, cores: int
) -> None:
    model = SubtasksByTime(divided_s, repeated_s, cores)
    least = min(map(model.price, range(1, cores + 1)))
    assert model.price(model.best()) == pytest.approx(least)


@pytest.mark.parametrize(("rate", "subtasks"), [(50.0, 1), (200.0, 4), (1_000.0, 8)])
def test_short_windows_placed_by_time_get_fewer_subtasks(rate: float, subtasks: int) -> None:
    task, graph = planned(THETA)
    statistics = PlacementStatistics(rates=dict.fromkeys("ab", rate))
    model = best_by_time(task, graph, 8, statistics)
    for count in (2, 8):
        by_time = choose_placement(task, graph, count, statistics, PlacementKind.TIME)
        cost = next(c.cost for c in candidates(task, graph, count, statistics) if c.placement == by_time)
        assert cost.slowest_s == pytest.approx(model.divided_s / count + model.repeated_s)
    assert choose_placement(task, graph, 8, statistics).subtasks == model.best() == subtasks


# -- Requested and stored placements --------------------------------------------------------------------


def test_an_impossible_placement_is_reported_with_the_possible_placements() -> None:
    task, graph = planned(THETA)
    with pytest.raises(SlicemillError, match=r"cannot be placed as key in 8 subtasks.* time, one"):
        choose_placement(task, graph, 8, kind=PlacementKind.KEY)
    assert choose_placement(task, graph, 8, kind=PlacementKind.TIME).kind is PlacementKind.TIME
    assert choose_placement(task, graph, 8, kind=PlacementKind.ONE) == ONE_SUBTASK
    assert choose_placement(*planned("SELECT z FROM a"), 8, kind=PlacementKind.KEY) == ONE_SUBTASK


def test_placements_have_names() -> None:
    assert parse_placement_kind("auto") is None
    assert parse_placement_kind("cube") is PlacementKind.CUBE
    with pytest.raises(SlicemillError, match="use one of auto, one, key, time, hybrid, hypercube, cube"):
        parse_placement_kind("ring")


@pytest.mark.parametrize("query", [PAIR, THETA, ONE_KEY, TWO_KEYS, THREE_THETA])
def test_a_placement_survives_a_round_trip_through_the_journal(query: str) -> None:
    task, graph = planned(query)
    plains = []
    for placement in placements_of(task, graph, 8):
        plain = json.loads(json.dumps(placement.plain()))
        plains.append(json.dumps(plain, sort_keys=True))
        assert restore_placement(task, graph, plain) == placement
        assert Placement.of(placement.exchanges).kind in (placement.kind, PlacementKind.KEY)
    assert len(set(plains)) == len(plains)


def test_a_stored_placement_that_the_queries_do_not_allow_is_not_restored() -> None:
    task, graph = planned(THETA)
    plain = {"kind": "key", "shape": [4], "by": {"a": ["x"], "b": ["x"]}}
    assert restore_placement(task, graph, plain) is None
    assert kept_placement(task, graph, plain) is None
    assert replacement(task, graph, 4, lambda _: True).subtasks == 4
    assert replacement(task, graph, 4, lambda _: False) == ONE_SUBTASK


@pytest.mark.parametrize("query", [PAIR, THETA, ONE_KEY, TWO_KEYS, THREE_THETA])
def test_each_row_is_in_one_of_the_former_subtasks_that_are_read(query: str) -> None:
    """The keys of the placement are not used, because they may belong to dropped queries."""
    task, graph = planned(query)
    for placement in placements_of(task, graph, 8):
        former = former_subtasks(json.loads(json.dumps(placement.plain())))
        assert former.by_time is (placement.kind is PlacementKind.TIME)
        for log, by in placement.exchanges.items():
            subtasks = former.having_each_row([log])
            assert sorted(by.part_of(subtask) for subtask in subtasks) == list(range(by.parts))


def test_columns_can_have_the_names_of_distribution_rules() -> None:
    """A home directory of an earlier version stores column names without quotes."""
    query = TWO_KEYS.replace("y", "stripe").replace("x", "every")
    streams = STREAMS.replace("x INT, y INT", "every INT, stripe INT")
    catalog = bind(f"{streams} CREATE QUERY q AS {query};").catalog
    graph = share(optimize(build_graph(catalog)), catalog)
    (task,) = split_into_tasks(graph)
    for placement in placements_of(task, graph, 8):
        plain = json.loads(json.dumps(placement.plain()))
        for log, along in former_subtasks(plain).spread.items():
            assert list(along) == [by is not Along.EVERY for by in placement.exchanges[log].by]
        old = {log: [words.strip('"') for words in along] for log, along in plain["by"].items()}
        assert restore_placement(task, graph, plain) == placement
        assert restore_placement(task, graph, {**plain, "by": old}) is not None


def test_a_joined_row_is_in_the_subtasks_that_have_all_of_its_input_rows() -> None:
    by = {"a": ["x", "every"], "b": ["every", "stripe"], "c": ["every", "every"]}
    former = former_subtasks({"kind": "hypercube", "shape": [2, 3], "by": by})
    assert former.having_each_row("a") == (0, 3)
    assert former.having_each_row("b") == (0, 1, 2)
    assert former.having_each_row("c") == (0,)
    assert former.having_each_row("ab") == (0, 1, 2, 3, 4, 5)
