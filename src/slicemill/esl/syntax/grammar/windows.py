"""Parse windows: frames (M37), windows of FROM entries (S2, L6), and durations."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from slicemill.errors import did_you_mean
from slicemill.esl.syntax import nodes
from slicemill.esl.syntax.cursor import Cursor
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.grammar import expressions
from slicemill.esl.syntax.nodes import at, child
from slicemill.esl.syntax.source import TextSpan
from slicemill.time import UNITS_US, unit_name


def bracket(c: Cursor) -> nodes.FrameClause:
    """Parse the window after a stream in FROM, in brackets.

    The forms are `[RANGE 10 MINUTES]`, `[ROWS 100]`, `[RANGE 30 MIN SLIDE 1 MIN]`, `[SESSION 30 SECONDS]`,
    `[NOW]`, `[EXPIRES AT column]` and `[CLOSE WHEN condition]`.
    """
    start = c.span()
    c.expect("[")
    if c.take("NOW"):
        found = now(c.span_from(start))
    elif c.looking_at("SESSION"):
        found = _session(c)
    elif c.word() in ("ROWS", "RANGE"):
        found = frame(c, preceding=False)
    elif c.word() in ("EXPIRES", "CLOSE"):
        found = at(nodes.FrameClause(kind="RANGE"), start)
    else:
        for word in ("RANGE", "ROWS", "SESSION", "EXPIRES", "CLOSE"):
            c.note(word)
        c.fail()
    if child(found, "kind") != "SESSION":
        for word, name in (("EXPIRES", "expires"), ("CLOSE", "close")):
            if c.accept(word, "AT" if word == "EXPIRES" else "WHEN"):
                found.set(name, expressions.expression(c))
                at(found, c.span_from(start))
    c.expect("]")
    return found


def closing(c: Cursor, entries: Sequence[exp.Expression]) -> None:
    """Parse `GROUP BY k CLOSE WHEN condition`, which sets the window of the stream in FROM."""
    start = c.span()
    if not c.looking_at("CLOSE"):
        return
    c.expect("CLOSE", "WHEN")
    condition = expressions.expression(c)
    entry = entries[0]
    known = child(entry, "frame") if isinstance(entry, nodes.StreamInput) else None
    if len(entries) > 1 or (
        known is not None and (child(known, "kind") != "SESSION" or child(known, "close"))
    ):
        raise Mistake(
            "CLOSE WHEN ends the groups of one stream, and says by itself how long its windows are",
            c.span_from(start),
            "write it beside the stream: FROM stream [CLOSE WHEN …] GROUP BY …; "
            "of a join, make a stream first: CREATE STREAM ab AS SELECT …",
        )
    if known is None:
        known = at(nodes.FrameClause(kind="RANGE"), c.span_from(start))
        entry.set("frame", known)
    known.set("close", condition)


def _session(c: Cursor) -> nodes.FrameClause:
    """Parse `SESSION 30 SECONDS` or `SESSION UNTIL expires`, with `CLOSE WHEN condition` added or instead."""
    start = c.span()
    c.expect("SESSION")
    if c.take("WITH"):  # SESSION WITH GAP 30 SECONDS
        c.expect("GAP")
    node = nodes.FrameClause(kind="SESSION")
    if c.accept("UNTIL"):
        node.set("until", expressions.expression(c))
    elif not c.looking_at("CLOSE"):
        node.set("this", duration(c))
    if c.accept("CLOSE", "WHEN"):
        node.set("close", expressions.expression(c))
    return at(node, c.span_from(start))


def now(span: TextSpan) -> nodes.FrameClause:
    """Return `[NOW]`, the shortest window: the tuples of a single timestamp."""
    length = at(nodes.Duration(expressions=[_duration_part("1", "MICROSECOND")]), span)
    return at(nodes.FrameClause(kind="RANGE", this=length), span)


def trailing(c: Cursor) -> nodes.FrameClause:
    """Parse `WINDOW 60 MINUTES` or `WINDOW 100 ROWS` after WHERE.

    This is the window of all streams without their own.
    """
    start = c.span()
    c.expect("WINDOW")
    if c.word() in ("ROWS", "RANGE"):
        return frame(c, preceding=False)
    kind, extent = _counted(c)
    return at(nodes.FrameClause(kind=kind, this=extent, slide=_slide(c, kind)), c.span_from(start))


def temporal(c: Cursor) -> nodes.FrameClause:
    """Parse `RANGE 15 MINUTE SLIDES 1 MINUTE` of a temporal query (L6); `RANGE 500 ROWS SLIDES 1 ROWS`
    counts.

    `RANGE UNBOUNDED SLIDES 1 MINUTE` is an unbounded time window.
    """
    start = c.span()
    c.expect("RANGE")
    kind, extent = ("RANGE", None) if c.accept("UNBOUNDED") else _counted(c)
    slide = _slide(c, kind)
    if slide is None:
        c.fail("a temporal query says how often it reports: SLIDES 1 MINUTE")
    return at(nodes.FrameClause(kind=kind, this=extent, slide=slide), c.span_from(start))


def lateness(c: Cursor) -> exp.Expression | None:
    """Parse `LATE 5 MINUTES`: the maximum lateness in a temporal query (L5).

    Tuples up to this lateness correct runs.
    """
    if not c.accept("LATE"):
        return None
    within = _extent(c)
    if not isinstance(within, nodes.Duration):
        raise Mistake("LATE needs a length of time", nodes.span_of(within), "as in LATE 5 MINUTES")
    return within


def _counted(c: Cursor) -> tuple[str, exp.Expression | None]:
    """Parse `15 MINUTES` or `500 ROWS`, whose unit determines the kind of window."""
    extent = _extent(c)
    if isinstance(extent, nodes.Duration):
        return "RANGE", extent
    if not c.accept("ROWS") and not c.take("ROW"):
        _reject_unknown_unit(c)
        c.note("a unit of time")
        c.fail()
    return "ROWS", extent


def partition_by(c: Cursor) -> list[exp.Expression] | None:
    if not c.accept("PARTITION", "BY"):
        return None
    return c.listing(lambda: expressions.expression(c))


def frame(c: Cursor, preceding: bool) -> nodes.FrameClause:
    """Parse `ROWS | RANGE …`: with PRECEDING in OVER, without it in brackets."""
    start = c.span()
    kind = c.advance().text.upper()
    between = preceding and c.accept("BETWEEN")
    extent = None if c.accept("UNBOUNDED") else _length(c, kind)
    if c.looking_at("FOLLOWING"):
        raise Mistake(
            "a window over a stream looks back only",
            c.span(),
            "use PRECEDING; lead(x) waits for the next row",
        )
    if preceding:
        c.expect("PRECEDING")
    if between:
        c.expect("AND")
        if not c.accept("CURRENT", "ROW"):
            c.fail(
                "a window over a stream ends with the current row: BETWEEN 5 PRECEDING AND CURRENT ROW; "
                "lead(x) waits for the next one"
            )
    slide = _slide(c, kind)
    if slide is not None and c.looking_at("ACTIVE"):
        raise Mistake(
            "a window either slides or expires actively", c.span(), "keep SLIDE or ACTIVE EXPIRATION"
        )
    active = slide is None and preceding and c.accept("ACTIVE", "EXPIRATION")
    return at(
        nodes.FrameClause(kind=kind, this=extent, slide=slide, active=active or None), c.span_from(start)
    )


def _slide(c: Cursor, kind: str) -> exp.Expression | None:
    if not c.accept("SLIDE") and not c.take("SLIDES"):
        return None
    slide = _length(c, kind)
    if kind == "ROWS" and not c.take("ROWS"):
        c.take("ROW")
    return slide


def _length(c: Cursor, kind: str) -> exp.Expression:
    """Parse a window's extent: a count (ROWS) or duration (RANGE)."""
    extent = _extent(c)
    written = c.text[nodes.span_of(extent).start : nodes.span_of(extent).end]
    if kind == "RANGE" and isinstance(extent, exp.Literal):
        _reject_unknown_unit(c)
        hint = f"write a unit, as in {written} SECONDS; to count tuples, use ROWS"
        raise Mistake("RANGE needs a length of time", nodes.span_of(extent), hint)
    if kind == "ROWS" and isinstance(extent, nodes.Duration):
        raise Mistake(
            "ROWS counts tuples", nodes.span_of(extent), f"for a length of time, use RANGE {written}"
        )
    return extent


def _reject_unknown_unit(c: Cursor) -> None:
    if hint := did_you_mean(c.word(), [f"{unit}S" for unit in UNITS_US]):
        raise Mistake(f"{c.word()} is no unit of time", c.span(), hint)


def _extent(c: Cursor) -> exp.Expression:
    """Parse an integer or a duration."""
    if c.looking_at("INTERVAL") or unit_name(c.word(1)):
        return duration(c)
    return c.count()


def duration(c: Cursor) -> nodes.Duration:
    """Parse `10 MINUTES`, `1 HOUR 30 MINUTES`, `INTERVAL '5' MINUTE`, `INTERVAL '1 hour 30 minutes'`."""
    start = c.span()
    c.take("INTERVAL")
    parts: list[nodes.DurationPart] = []
    token = c.token()
    if token is not None and token.token_type is TokenType.STRING:
        span = c.span()
        text = c.advance().text
        if unit_name(c.word()):
            parts.append(_part(text.strip(), span, c))
        else:
            words = text.split()
            pairs = list(zip(words[::2], words[1::2], strict=False))
            if len(words) % 2 or not pairs or not all(_is_quantity(n) and unit_name(u) for n, u in pairs):
                raise Mistake(f"'{text}' is no length of time", span, "write it as in '1 hour 30 minutes'")
            parts = [_duration_part(number, unit) for number, unit in pairs]
    while (token := c.token()) is not None and token.token_type is TokenType.NUMBER and unit_name(c.word(1)):
        span = c.span()
        parts.append(_part(c.advance().text, span, c))
    if not parts:
        if (number := c.number()) is not None:
            _reject_unknown_unit(c)
            raise Mistake("a length of time needs a unit", start, f"write {number} SECONDS, for instance")
        c.note("a length of time such as 5 SECONDS")
        c.fail()
    return at(nodes.Duration(expressions=parts), c.span_from(start))


def _part(number: str, span: TextSpan, c: Cursor) -> nodes.DurationPart:
    if not _is_quantity(number):
        raise Mistake(
            f"{number or 'an empty string'} is no length of time", span, "write a number, as in 5 MINUTES"
        )
    return _duration_part(number, c.advance().text)


def _duration_part(number: str, unit: str) -> nodes.DurationPart:
    name = unit_name(unit)
    assert name is not None, "callers look before they take a unit"
    return nodes.DurationPart(this=exp.Literal.number(number), unit=exp.Var(this=name))


def duration_of(us: int) -> nodes.Duration:
    """Return a duration in the largest unit that divides it."""
    unit = max((name for name, length in UNITS_US.items() if us % length == 0), key=UNITS_US.__getitem__)
    return nodes.Duration(expressions=[_duration_part(str(us // UNITS_US[unit]), unit)])


def _is_quantity(text: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d+)?", text, re.ASCII) is not None


def interval_literal(c: Cursor) -> exp.Interval:
    """Parse an interval in a scalar expression, after the word INTERVAL."""
    return exp.Interval(this=duration(c))
