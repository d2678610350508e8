from __future__ import annotations

from slicemill_lab.charts.charts import Objective, Path, Stage
from slicemill_lab.charts.tasks import Span
from slicemill_lab.simulator.foresight import true_drops, true_times
from slicemill_lab.simulator.workload import Load, draw

PATH = Path("q", (Stage("a", 1.0, size_in=8, size_out=3), Stage("b", 10.0, size_in=3)), weight=2)
WORK = draw([Load(PATH, [0, 0, 0], outputs=[[1, 0, 2], [1, 0, 1]])], 1)
WHOLE, FIRST, SECOND = Span(0, 0, 2), Span(0, 0, 1), Span(0, 1, 2)


def test_the_true_time_of_a_tuple_includes_all_its_descendants() -> None:
    assert true_times(WORK, WHOLE).tolist() == [11, 1, 21]
    assert true_times(WORK, FIRST).tolist() == [1, 1, 1]


def test_true_outputs_are_weighted_and_counted_at_the_root() -> None:
    assert true_drops(WORK, WHOLE, Objective.OUTPUT_RESPONSE).tolist() == [2, 0, 2]
    assert true_drops(WORK, FIRST, Objective.OUTPUT_RESPONSE).tolist() == [0, 0, 0]
    assert true_drops(WORK, SECOND, Objective.OUTPUT_RESPONSE).tolist() == [2, 0, 2]


def test_the_true_memory_drop_counts_output_in_the_next_buffer() -> None:
    assert true_drops(WORK, FIRST, Objective.MEMORY).tolist() == [8 - 3, 8, 8 - 6]
    assert true_drops(WORK, WHOLE, Objective.MEMORY).tolist() == [8, 8, 8]


def test_only_a_task_that_ends_at_the_root_completes_inputs() -> None:
    assert true_drops(WORK, WHOLE, Objective.INPUT_COMPLETION).tolist() == [2, 2, 2]
    assert true_drops(WORK, FIRST, Objective.INPUT_COMPLETION).tolist() == [0, 0, 0]
