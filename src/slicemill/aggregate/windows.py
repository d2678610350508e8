"""Evaluation strategies of window calls: the dispatch table of M37.

| window | aggregate | strategy |
|---|---|---|
| without a beginning | any | UNBOUNDED |
| without slide | any | FINITE |
| slide as long as the window, or longer | any | TUMBLE |
| shorter slide | ALGEBRAIC | PANES |
| shorter slide | any other | SLIDING |
| ACTIVE EXPIRATION | any | ACTIVE |
"""

from __future__ import annotations

from enum import Enum

from slicemill.aggregate.definition import RowAggregate
from slicemill.aggregate.frame import WindowFrame


class Strategy(Enum):
    """Entries of the dispatch table; the values describe the evaluation."""

    UNBOUNDED = "base, TERMINATE after each tuple"
    FINITE = "window version"
    TUMBLE = "base restarted in each slot"
    PANES = "base per pane, then window version"
    SLIDING = "window version, output on yield tuples only"
    ACTIVE = "window version and negative tuples"


def strategy_of(definition: RowAggregate, frame: WindowFrame) -> Strategy:
    if frame.active:
        return Strategy.ACTIVE
    if frame.length is None:
        return Strategy.UNBOUNDED
    if frame.slide is None:
        return Strategy.FINITE
    if frame.slide >= frame.length:
        return Strategy.TUMBLE
    return Strategy.PANES if definition.algebraic else Strategy.SLIDING
