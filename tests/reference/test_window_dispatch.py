"""The dispatch table of window calls (M37)."""

from __future__ import annotations

import pytest

from slicemill.aggregate.builtins import BUILTINS
from slicemill.aggregate.count import Count
from slicemill.aggregate.definition import Aggregate, RowCall
from slicemill.aggregate.frame import Frame
from slicemill.aggregate.statistic import StatisticWindow
from slicemill.aggregate.windows import Strategy, strategy_of
from slicemill.errors import SlicemillError
from slicemill.reference.window_dispatch import running_call


@pytest.mark.parametrize(
    ("name", "frame", "box"),
    [
        ("sum", Frame("RANGE", None), Strategy.UNBOUNDED),
        ("sum", Frame("ROWS", None, slide=5), Strategy.UNBOUNDED),
        ("sum", Frame("ROWS", 9), Strategy.FINITE),
        ("sum", Frame("ROWS", 9, slide=10), Strategy.TUMBLE),
        ("sum", Frame("ROWS", 9, slide=9), Strategy.PANES),
        ("sum", Frame("RANGE", 9, slide=9), Strategy.TUMBLE),
        ("sum", Frame("RANGE", 10, slide=9), Strategy.PANES),
        ("count_distinct", Frame("ROWS", 9, slide=11), Strategy.TUMBLE),
        ("count_distinct", Frame("ROWS", 9, slide=5), Strategy.SLIDING),
        ("sum", Frame("RANGE", 9, active=True), Strategy.ACTIVE),
    ],
)
def test_the_frame_and_the_aggregate_choose_the_box(name: str, frame: Frame, box: Strategy) -> None:
    assert strategy_of(BUILTINS[name], frame) is box


WINDOW_ONLY = Aggregate("only", None, lambda inwindow: StatisticWindow(Count(), inwindow), algebraic=True)


@pytest.mark.parametrize("frame", [Frame("ROWS", None), Frame("ROWS", 4, slide=5), Frame("ROWS", 4, slide=2)])
def test_boxes_that_run_the_base_version_refuse_an_aggregate_without_one(frame: Frame) -> None:
    with pytest.raises(SlicemillError, match="only has only a WINDOW version"):
        running_call(RowCall(WINDOW_ONLY, lambda row: row), frame)


@pytest.mark.parametrize("frame", [Frame("ROWS", 4), Frame("RANGE", 4, active=True)])
def test_the_other_boxes_accept_it(frame: Frame) -> None:
    running_call(RowCall(WINDOW_ONLY, lambda row: row), frame)
