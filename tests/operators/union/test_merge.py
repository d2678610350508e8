"""The sort-merge of whole tables gives what the reference's union gives tuple by tuple (M21-M25, G11)."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.operators.union import MergeOutput, merge_tables
from slicemill.time import BEGINNING, END
from slicemill_oracle.engine import Engine
from slicemill_oracle.ets import NoEts
from slicemill_oracle.graph import OperatorSpec, SinkSpec
from slicemill_oracle.operators.stateless import Union
from slicemill_oracle.sources import Arrival, ScheduledSource

Batch = tuple[int, list[int], int | None]
"""An input, the steps between its timestamps, and how far beyond them an enabling timestamp goes."""

batches = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.lists(st.integers(0, 3), max_size=4),
        st.none() | st.integers(0, 4),
    ),
    max_size=12,
)


def tuples(*rows: tuple[int, str]) -> pa.Table:
    ts, names = [row[0] for row in rows], [row[1] for row in rows]
    return pa.table({"_ts": pa.array(ts, pa.int64()), "name": pa.array(names, pa.string())})


def rows_of(table: pa.Table) -> list[tuple[int, str]]:
    return list(zip(table["_ts"].to_pylist(), table["name"].to_pylist(), strict=True))


class Merging:
    """A union fed batch by batch."""

    def __init__(self, inputs: int, in_order: bool = False) -> None:
        self.state = MergeOutput(tuples(), (tuples(),) * inputs, (BEGINNING,) * inputs)
        self.in_order = in_order
        self.out: list[tuple[int, str]] = []

    def give(self, port: int, rows: list[tuple[int, str]], ets: int = BEGINNING) -> list[tuple[int, str]]:
        inputs, registers = list(self.state.waiting), list(self.state.registers)
        inputs[port] = pa.concat_tables([inputs[port], tuples(*rows)])
        registers[port] = max(registers[port], ets)
        self.state = merge_tables(inputs, registers, in_order=self.in_order)
        self.out += rows_of(self.state.table)
        return self.out


def test_g11_registers_let_simultaneous_tuples_out_at_once() -> None:
    union = Merging(2)
    assert union.give(0, [(1, "a"), (3, "b"), (3, "c")]) == []
    assert union.give(1, [(2, "d")]) == [(1, "a"), (2, "d")]
    assert union.state.enabling_ts == 2
    assert union.give(1, [], ets=3)[2:] == [(3, "b"), (3, "c")]
    assert union.give(1, [(3, "e")])[4:] == [(3, "e")]


def test_equal_timestamps_are_ordered_by_input_and_position() -> None:
    first, second = tuples((1, "a"), (1, "b"), (2, "c")), tuples((1, "d"), (2, "e"), (2, "f"))
    assert [name for _, name in rows_of(merge_tables([first, second], [END, END]).table)] == list("abdcef")


def test_inputs_that_follow_each_other_are_not_copied() -> None:
    first, second = tuples((1, "a")), tuples((1, "b"))
    merged = merge_tables([first, second], [END, END]).table
    addresses = [chunk.buffers()[1].address for chunk in merged["_ts"].chunks]
    assert addresses == [table["_ts"].chunk(0).buffers()[1].address for table in (first, second)]


def schedule(given_batches: list[Batch]) -> list[tuple[int, list[tuple[int, str]], int | None]]:
    """The batches with timestamps that respect each input's order and its enabling timestamps."""
    least = [0, 0, 0]
    plan = []
    for number, (port, steps, ahead) in enumerate(given_batches):
        rows = []
        for step in steps:
            least[port] += step
            rows.append((least[port], f"{number}.{len(rows)}"))
        if ahead is not None:
            least[port] += ahead
        plan.append((port, rows, None if ahead is None else least[port]))
    return plan


@settings(max_examples=150)
@given(batches)
def test_every_batch_releases_what_the_reference_union_releases(given_batches: list[Batch]) -> None:
    names = ("A", "B", "C")
    sources = [ScheduledSource(name, "external") for name in names]
    union = OperatorSpec("U", Union(3), names)
    engine = Engine([*sources, union, SinkSpec("out", "U")], ets=NoEts())
    merging = Merging(3)
    for port, rows, ets in schedule(given_batches):
        engine.feed(names[port], [Arrival(engine.now, (name,), ts) for ts, name in rows])
        engine.run_until_idle()
        if ets is not None:
            engine.promise(names[port], ets)
            engine.run_until_idle()
        out = merging.give(port, rows)
        out = merging.give(port, [], BEGINNING if ets is None else ets)
        assert out == [(tuple_.ts, tuple_.row[0]) for tuple_ in engine.results("out")]


@settings(max_examples=150)
@given(batches)
def test_in_order_the_result_does_not_depend_on_what_came_together(given_batches: list[Batch]) -> None:
    plan = schedule(given_batches)
    merging = Merging(3, in_order=True)
    for port, rows, ets in plan:
        merging.give(port, rows, BEGINNING if ets is None else ets)
    for port in range(3):
        merging.give(port, [], END)
    everything = [(ts, port, at, name) for at, (port, rows, _) in enumerate(plan) for ts, name in rows]
    by_input = sorted(everything, key=lambda row: row[:3])
    assert merging.out == [(ts, name) for ts, _, _, name in by_input]
