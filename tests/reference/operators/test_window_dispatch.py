"""Evaluation strategy of a window call by frame and aggregate (M37)."""

from __future__ import annotations

import pytest

from slicemill.aggregates.count import Count
from slicemill.aggregates.definition import RowAggregate, RowCall, Strategy, strategy_of
from slicemill.aggregates.frames import WindowFrame
from slicemill.aggregates.registry import BUILTINS
from slicemill.aggregates.statistic import StatisticWindow
from slicemill.errors import SlicemillError
from slicemill_oracle.operators.window_dispatch import running_call


@pytest.mark.parametrize(
    ("name", "frame", "strategy"),
    [
        ("sum", WindowFrame("RANGE", None), Strategy.UNBOUNDED),
        ("sum", WindowFrame("ROWS", None, slide=5), Strategy.UNBOUNDED),
        ("sum", WindowFrame("ROWS", 9), Strategy.FINITE),
        ("sum", WindowFrame("ROWS", 9, slide=10), Strategy.TUMBLE),
        ("sum", WindowFrame("ROWS", 9, slide=9), Strategy.PANES),
        ("sum", WindowFrame("RANGE", 9, slide=9), Strategy.TUMBLE),
        ("sum", WindowFrame("RANGE", 10, slide=9), Strategy.PANES),
        ("count_distinct", WindowFrame("ROWS", 9, slide=11), Strategy.TUMBLE),
        ("count_distinct", WindowFrame("ROWS", 9, slide=5), Strategy.SLIDING),
        ("sum", WindowFrame("RANGE", 9, active=True), Strategy.ACTIVE),
    ],
)
def test_frame_and_aggregate_determine_the_strategy(
    name: str, frame: WindowFrame, strategy: Strategy
) -> None:
    assert strategy_of(BUILTINS[name], frame) is strategy


WINDOW_ONLY = RowAggregate("only", None, lambda inwindow: StatisticWindow(Count(), inwindow), algebraic=True)


@pytest.mark.parametrize(
    "frame", [WindowFrame("ROWS", None), WindowFrame("ROWS", 4, slide=5), WindowFrame("ROWS", 4, slide=2)]
)
def test_strategies_with_the_base_version_reject_an_aggregate_without_one(frame: WindowFrame) -> None:
    with pytest.raises(SlicemillError, match="only has only a WINDOW version"):
        running_call(RowCall(WINDOW_ONLY, lambda row: row), frame)


@pytest.mark.parametrize("frame", [WindowFrame("ROWS", 4), WindowFrame("RANGE", 4, active=True)])
def test_other_strategies_accept_an_aggregate_with_only_a_window_version(frame: WindowFrame) -> None:
    running_call(RowCall(WINDOW_ONLY, lambda row: row), frame)
