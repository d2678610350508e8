"""TSM registers and the `more` test (M17, M21, golden G11)."""

from __future__ import annotations

from random import Random

import pytest

from slicemill.types import Timed
from slicemill_oracle.buffers import Buffer, Occupancy
from slicemill_oracle.engine import Engine
from slicemill_oracle.ets import NoEts
from slicemill_oracle.graph import OperatorSpec, SinkSpec
from slicemill_oracle.operators.stateless import Union
from slicemill_oracle.punctuation import BEGINNING
from slicemill_oracle.sources import Arrival, ScheduledSource
from slicemill_oracle.tsm import NONE, BasicGate, More, Registers, RelaxedGate, UnorderedGate


def union(more: More) -> Engine:
    sources = [ScheduledSource("A", "external"), ScheduledSource("B", "external")]
    nodes = [*sources, OperatorSpec("U", Union(), ("A", "B")), SinkSpec("out", "U")]
    return Engine(nodes, more=more, ets=NoEts())


def give(engine: Engine, source: str, *timestamps: int) -> list[int]:
    """Feed tuples with these timestamps, and return the timestamps emitted so far."""
    engine.feed(source, [Arrival(engine.now, (source,), ts) for ts in timestamps])
    engine.run_until_idle()
    return [tuple_.ts for tuple_ in engine.results("out")]


def test_g11_registers_release_simultaneous_tuples_at_once() -> None:
    engine = union("relaxed")
    assert give(engine, "A", 1, 3, 3) == []
    assert give(engine, "B", 2) == [1, 2]
    engine.promise("B", 3)
    assert give(engine, "B") == [1, 2, 3, 3]
    assert give(engine, "B", 3) == [1, 2, 3, 3, 3]


def test_g11_the_basic_rule_stops_until_the_other_input_gets_a_tuple() -> None:
    engine = union("basic")
    assert give(engine, "A", 1, 3, 3) == []
    # Every input must have a tuple: 1 is emitted, 2 is emitted, and then B is empty.
    assert give(engine, "B", 2) == [1, 2]
    assert give(engine, "B") == [1, 2]
    # The first of the tuples at 3 is emitted as before; the last tuple waits for another one on B.
    assert give(engine, "B", 3) == [1, 2, 3, 3]


def test_registers_begin_before_all_timestamps_and_never_decrease() -> None:
    registers = Registers(2)
    assert registers.low() == BEGINNING
    registers.write(0, 5)
    registers.write(0, 3)
    registers.raise_to(1, 4)
    assert registers.values == [5, 4]
    assert registers.low() == 4
    assert registers.active == [True, False]


def test_a_register_stays_active_until_its_own_value_has_been_forwarded() -> None:
    registers = Registers(2)
    registers.write(0, 10)
    assert not registers.must_pass()
    registers.write(1, 4)
    assert registers.must_pass()
    registers.passed(4)
    assert registers.active == [True, False]
    assert not registers.must_pass()
    registers.raise_to(1, 22)
    assert registers.must_pass()
    registers.passed(10)
    assert registers.active == [False, False]


def test_backtracking_chooses_an_empty_input_with_the_least_register() -> None:
    buffers = [Buffer(Occupancy()) for _ in range(3)]
    readers = [buffer.reader() for buffer in buffers]
    gate = RelaxedGate(readers, Random(0))
    buffers[0].append((Timed(7, ()), 0))
    gate.registers.raise_to(1, 5)
    gate.registers.raise_to(2, 6)
    assert gate.port() == NONE
    assert gate.blocked() == 1


@pytest.mark.parametrize("gate_class", [RelaxedGate, BasicGate, UnorderedGate])
def test_one_of_several_empty_inputs_is_chosen_at_random_from_the_seed(
    gate_class: type[RelaxedGate] | type[BasicGate] | type[UnorderedGate],
) -> None:
    readers = [Buffer(Occupancy()).reader() for _ in range(3)]

    def picks(seed: int) -> list[int]:
        gate = gate_class(readers, Random(seed))
        return [gate.blocked() for _ in range(20)]

    assert picks(1) == picks(1)
    assert set(picks(1)) == {0, 1, 2}


def test_a_gate_for_latent_streams_never_waits_and_takes_the_oldest_head() -> None:
    buffers = [Buffer(Occupancy()) for _ in range(2)]
    gate = UnorderedGate([buffer.reader() for buffer in buffers], Random(0))
    assert gate.port() == NONE
    buffers[0].append((Timed(7, ()), 7))
    assert gate.port() == 0
    buffers[1].append((Timed(6, ()), 6))
    assert gate.port() == 1
