"""Binder of durations and window frames, which checks the rules for windows (M34-M37)."""

from __future__ import annotations

from decimal import Decimal

from sqlglot import exp

from slicemill.catalog.queries import FrameUnit, Window
from slicemill.sql import nodes
from slicemill.sql.errors import StatementError
from slicemill.sql.nodes import child, span_of
from slicemill.time import CALENDAR_UNITS_MONTHS, UNITS_US


def duration_us(node: nodes.Duration) -> int:
    """Return a duration in microseconds.

    Raise StatementError for months.
    """
    months, us = months_and_us(node)
    if months:
        raise StatementError("a month has no fixed length", span_of(node), "give it in days")
    return us


def months_and_us(node: nodes.Duration) -> tuple[int, int]:
    months, us = Decimal(0), Decimal(0)
    for part in node.expressions:
        number, unit = Decimal(part.this.sql()), part.args["unit"].name  # a minus sign is a syntax node
        if unit in CALENDAR_UNITS_MONTHS:
            months += number * CALENDAR_UNITS_MONTHS[unit]
        else:
            us += number * UNITS_US[unit]
    if us != us.to_integral_value() or months != months.to_integral_value():
        raise StatementError("this is finer than a microsecond", span_of(node))
    if abs(us) >= 2**63 or abs(months) >= 2**31:
        raise StatementError("this duration exceeds 64 bits of microseconds", span_of(node), "shorten it")
    return int(months), int(us)


def over_window(node: nodes.FrameClause) -> Window:
    """Bind the frame of an OVER clause."""
    frame = FrameUnit(child(node, "kind"))
    extent = None if node.this is None else _length(node.this, frame, "a window")
    slide = _slide(node, frame)
    active = bool(child(node, "active"))
    if active and frame is FrameUnit.ROWS:
        raise StatementError(
            "ACTIVE EXPIRATION needs a RANGE: a tuple leaves a ROWS window only when another arrives",
            span_of(node),
            "use RANGE … PRECEDING ACTIVE EXPIRATION",
        )
    if extent is None and active:
        raise StatementError(
            "tuples never expire from an unbounded window", span_of(node), "give the window a length"
        )
    return Window(frame, extent, slide, active)


def from_window(node: nodes.FrameClause, reports: bool = False) -> Window:
    """Bind the window of a FROM entry, whose length must be positive.

    In temporal queries (`reports`), an unbounded window may have a slide. The window then emits its whole
    content at each slide.
    """
    frame = FrameUnit(child(node, "kind"))
    extent = None if node.this is None else _length(node.this, frame, "a window")
    if extent == 0:
        raise StatementError("this window holds nothing", span_of(node.this), "make it longer than 0")
    slide = _slide(node, frame, reports)
    if child(node, "from_start") and extent is not None and slide is not None and extent % slide:
        raise StatementError(
            "the size of a CUMULATE window must be a multiple of its step",
            span_of(node),
            "let the size be a multiple of the step",
        )
    return Window(frame, extent, slide, grows=bool(child(node, "from_start")))


def _slide(node: nodes.FrameClause, frame: FrameUnit, reports: bool = False) -> int | None:
    slide = child(node, "slide")
    if slide is None:
        return None
    if node.this is None and not reports:
        raise StatementError("an unbounded window does not slide", span_of(slide), "give the window a length")
    length = _length(slide, frame, "a slide")
    if length == 0:
        raise StatementError("a slide must be longer than 0", span_of(slide), "make it longer than 0")
    return length


def _length(node: exp.Expression, frame: FrameUnit, what: str) -> int:
    if frame is FrameUnit.RANGE:
        if not isinstance(node, nodes.Duration):
            raise StatementError(
                f"{what} by RANGE needs a unit of time", span_of(node), "write 10 SECONDS, or use ROWS"
            )
        length = duration_us(node)
    else:
        if isinstance(node, nodes.Duration):
            raise StatementError(
                f"{what} by ROWS counts tuples", span_of(node), "use RANGE for a length of time"
            )
        if not node.name.isdigit():
            raise StatementError(f"{what} by ROWS is an integer", span_of(node))
        length = int(node.name)
        if length >= 2**63:
            raise StatementError("this duration exceeds 64 bits of microseconds", span_of(node), "shorten it")
    if length < 0:
        raise StatementError(f"{what} cannot be negative", span_of(node))
    return length
