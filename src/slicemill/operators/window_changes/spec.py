"""Windows whose results are told before they end, and corrected after it: EMIT EARLY … LATE ….

    tuples of a group        x     x  x        x                       x, late
    window                [─────────────────────────)
    EARLY EVERY d            ·     ↑insert     ↑update   ↑update at the end
    LATE d                                                              ↑update, up to d after the end

It is a table with a row for each group of each window; what it gives is how that table changes. When it does
is said by the watermark, not by a clock: at multiples of d, and at the end of the window.
"""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.columns.sequence_bits import SEQ_BITS
from slicemill.esl.types.query import LateTuples
from slicemill.esl.types.relation import AggregateCall, SelectItem
from slicemill.operators.description import Description, Fact, grouped
from slicemill.operators.kind import OperatorKind, Role
from slicemill.operators.operator import Operator
from slicemill.time import format_us


@dataclass(frozen=True, slots=True)
class WindowChanges(Operator):
    """Aggregates of the groups of windows [e - extent, e), for each multiple e of the slide.

    `every_us` is how often windows that have not ended tell what has changed. With `late`, the input has late
    tuples as well, at the time of their arrival: they correct windows that have ended no longer ago. Windows
    that `grow` begin at the last multiple of the extent before their end (CUMULATE).
    """

    group_by: tuple[SelectItem, ...]
    calls: tuple[AggregateCall, ...]
    extent_us: int
    slide_us: int
    every_us: int | None
    late: LateTuples | None
    grow: bool = False

    def ends(self, ts: int) -> range:
        """The ends of the windows that hold a tuple: multiples of the slide above its time."""
        extent, slide = self.extent_us, self.slide_us
        last = (ts // extent + 1) * extent if self.grow else ts + extent
        return range((ts // slide + 1) * slide, last + 1, slide)

    def start(self, end: int) -> int:
        return (end - 1) // self.extent_us * self.extent_us if self.grow else end - self.extent_us


def _words(windows: WindowChanges) -> Description:
    facts: list[Fact] = [
        *grouped(windows.calls, windows.group_by),
        ("window", f"{format_us(windows.extent_us)}, every {format_us(windows.slide_us)}"),
    ]
    if windows.every_us is not None:
        facts.append(("early", f"every {format_us(windows.every_us)}"))
    if windows.late is not None:
        facts.append(("late", f"up to {format_us(windows.late.within_us)} after the end"))
    return Description("γ", "Aggregate of windows", (*facts, ("gives", "changes")))


KINDS = (
    OperatorKind(
        spec=WindowChanges,
        role=Role.STATEFUL,
        words=lambda windows, *_: _words(windows),
        label=lambda _: "windows",
        waits_for_time=lambda *_: True,
        history_us=lambda windows, *_: windows.extent_us + (windows.late.within_us if windows.late else 0),
        seq_bits=lambda *_: SEQ_BITS,
        step="slicemill.operators.window_changes.rows:window_changes",
    ),
)
