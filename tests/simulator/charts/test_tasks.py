from __future__ import annotations

from slicemill_lab.charts.charts import Objective, Path, Piece, Stage, merged, slope
from slicemill_lab.charts.forks import ForkNode, fork_partitions
from slicemill_lab.charts.tasks import Span, cut

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


def test_query_level_has_one_task_for_each_path() -> None:
    tasks = cut([PATH, OTHER], "query", Objective.OUTPUT_RESPONSE)
    assert tasks.spans == (Span(0, 0, 3), Span(1, 0, 1))
    assert [task.name for task in tasks.tasks] == ["q:a+b+c", "r:d"]
    assert [task.piece for task in tasks.tasks] == [Piece(3.0, 2), Piece(4.0, 0.5)]


def test_operator_level_has_one_task_for_each_operator_with_its_segment_to_the_root() -> None:
    tasks = cut([PATH, OTHER], "operator", Objective.OUTPUT_RESPONSE)
    assert tasks.spans == (Span(0, 0, 1), Span(0, 1, 2), Span(0, 2, 3), Span(1, 0, 1))
    assert [task.segment.cost for task in tasks.tasks] == [3.0, 2.0, 1.0, 4.0]


def test_chain_level_has_the_tasks_and_slopes_of_the_memory_chart() -> None:
    tasks = cut([PATH], "chain", Objective.MEMORY)
    assert tasks.spans == (Span(0, 0, 2), Span(0, 2, 3))
    assert [round(float(slope(task.piece)), 9) for task in tasks.tasks] == [0.35, 0.3]


def test_a_path_and_a_fork_with_one_branch_have_the_same_slope() -> None:
    path = Path("p", (Stage("a", 2, 0.5), Stage("b", 1, 3)), weight=4)
    (task,) = cut([path], "query", Objective.OUTPUT_RESPONSE).tasks
    (partition,) = fork_partitions(ForkNode("a", 2, 0.5, consumers=(ForkNode("b", 1, 3, sinks=(4,)),)))
    assert task.piece == merged([partition])
