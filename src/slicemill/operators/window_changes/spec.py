"""Windows with early and late emissions: EMIT EARLY … LATE ….

    rows of a group          x     x  x        x                       x, late
    window                [─────────────────────────)
    EARLY EVERY d            ·     ↑insert     ↑update   ↑update at the end
    LATE d                                                              ↑update, up to d after the end

The result is the changelog of a table with a row per group and window. The watermark triggers emissions, not
a clock: at multiples of d, and at the end of the window.
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
    """Aggregates of groups over windows [e - extent, e).

    The ends e are multiples of the slide. `every_us` is the interval of early emissions. With `late`, the
    input also has late rows, at the time of their arrival. They update windows that ended at most
    `late.within_us` ago. Windows that `grow` begin at the last multiple of the extent before their end
    (CUMULATE).
    """

    group_by: tuple[SelectItem, ...]
    calls: tuple[AggregateCall, ...]
    extent_us: int
    slide_us: int
    every_us: int | None
    late: LateTuples | None
    grow: bool = False

    def ends(self, ts: int) -> range:
        """Return the ends of the windows that contain a row."""
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
