from __future__ import annotations

from slicemill_lab.charts.charts import Objective, Path, Piece, Stage, merged, slope
from slicemill_lab.charts.forks import ForkNode, fork_partitions
from slicemill_lab.charts.units import Span, cut

PATH = Path(
    "q",
    (
        Stage("a", 1.0, size_in=1.0, size_out=0.9),
        Stage("b", 1.0, size_in=0.9, size_out=0.3),
        Stage("c", 1.0, size_in=0.3),
    ),
    weight=2,
)
OTHER = Path("r", (Stage("d", 4.0, 0.5),))


def test_query_level_has_a_unit_per_path() -> None:
    units = cut([PATH, OTHER], "query", Objective.OUTPUT_RESPONSE)
    assert units.spans == (Span(0, 0, 3), Span(1, 0, 1))
    assert [unit.name for unit in units.units] == ["q:a+b+c", "r:d"]
    assert [unit.piece for unit in units.units] == [Piece(3.0, 2), Piece(4.0, 0.5)]


def test_operator_level_has_a_unit_per_operator_with_the_segment_to_the_root() -> None:
    units = cut([PATH, OTHER], "operator", Objective.OUTPUT_RESPONSE)
    assert units.spans == (Span(0, 0, 1), Span(0, 1, 2), Span(0, 2, 3), Span(1, 0, 1))
    assert [unit.segment.cost for unit in units.units] == [3.0, 2.0, 1.0, 4.0]


def test_chain_level_has_the_units_of_the_memory_chart_with_its_slopes() -> None:
    units = cut([PATH], "chain", Objective.MEMORY)
    assert units.spans == (Span(0, 0, 2), Span(0, 2, 3))
    assert [round(float(slope(unit.piece)), 9) for unit in units.units] == [0.35, 0.3]


def test_a_path_seen_as_a_fork_with_one_branch_has_the_same_slope() -> None:
    path = Path("p", (Stage("a", 2, 0.5), Stage("b", 1, 3)), weight=4)
    (unit,) = cut([path], "query", Objective.OUTPUT_RESPONSE).units
    (partition,) = fork_partitions(ForkNode("a", 2, 0.5, consumers=(ForkNode("b", 1, 3, sinks=(4,)),)))
    assert unit.piece == merged([partition])
