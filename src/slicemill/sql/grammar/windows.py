"""Parser of windows in FROM and OVER, and of durations (M37, S2, L6)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from slicemill.errors import did_you_mean, one_of
from slicemill.sql import nodes
from slicemill.sql.cursor import Cursor
from slicemill.sql.errors import StatementError, TextSpan
from slicemill.sql.grammar import expressions
from slicemill.sql.lexer import RESERVED
from slicemill.sql.nodes import at, child, span_of
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
    """Parse `CLOSE WHEN condition` after GROUP BY.

    The condition sets the window of the stream in FROM.
    """
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
        raise StatementError(
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
    """Parse `SESSION 30 SECONDS` or `SESSION UNTIL expires`.

    `CLOSE WHEN condition` may follow, or replace the length.
    """
    start = c.span()
    c.expect("SESSION")
    if c.take("WITH"):  # the longer spelling is SESSION WITH GAP 30 SECONDS
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
    """Return the window `[NOW]`, which has the tuples of a single timestamp."""
    length = at(nodes.Duration(expressions=[_duration_part("1", "MICROSECOND")]), span)
    return at(nodes.FrameClause(kind="RANGE", this=length), span)


def trailing(c: Cursor) -> nodes.FrameClause:
    """Parse `WINDOW 60 MINUTES` or `WINDOW 100 ROWS` after WHERE.

    The window applies to all streams without a window of their own.
    """
    start = c.span()
    c.expect("WINDOW")
    if c.word() in ("ROWS", "RANGE"):
        return frame(c, preceding=False)
    kind, extent = _extent_with_unit(c)
    return at(nodes.FrameClause(kind=kind, this=extent, slide=_slide(c, kind)), c.span_from(start))


def temporal(c: Cursor) -> nodes.FrameClause:
    """Parse the window of a temporal query (L6).

    The forms are `RANGE 15 MINUTE SLIDES 1 MINUTE`, `RANGE 500 ROWS SLIDES 1 ROWS`, which counts rows, and
    `RANGE UNBOUNDED SLIDES 1 MINUTE`.
    """
    start = c.span()
    c.expect("RANGE")
    kind, extent = ("RANGE", None) if c.accept("UNBOUNDED") else _extent_with_unit(c)
    slide = _slide(c, kind)
    if slide is None:
        c.fail("a temporal query says how often it reports: SLIDES 1 MINUTE")
    return at(nodes.FrameClause(kind=kind, this=extent, slide=slide), c.span_from(start))


def lateness(c: Cursor) -> exp.Expression | None:
    """Parse `LATE 5 MINUTES`, the maximum lateness in a temporal query (L5).

    A late tuple within this bound corrects emitted results.
    """
    if not c.accept("LATE"):
        return None
    within = _extent(c)
    if not isinstance(within, nodes.Duration):
        raise StatementError("LATE needs a length of time", nodes.span_of(within), "as in LATE 5 MINUTES")
    return within


def _extent_with_unit(c: Cursor) -> tuple[str, exp.Expression | None]:
    """Parse `15 MINUTES` or `500 ROWS`.

    The unit determines whether the window is RANGE or ROWS.
    """
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
    """Parse the frame `ROWS | RANGE …`.

    The length is followed by PRECEDING in OVER, but not in brackets.
    """
    start = c.span()
    kind = c.advance().text.upper()
    between = preceding and c.accept("BETWEEN")
    extent = None if c.accept("UNBOUNDED") else _length(c, kind)
    if c.looking_at("FOLLOWING"):
        raise StatementError(
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
        raise StatementError(
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
    """Parse the length of a window: a count for ROWS, or a duration for RANGE."""
    extent = _extent(c)
    written = c.text[nodes.span_of(extent).start : nodes.span_of(extent).end]
    if kind == "RANGE" and isinstance(extent, exp.Literal):
        _reject_unknown_unit(c)
        hint = f"write a unit, as in {written} SECONDS; to count tuples, use ROWS"
        raise StatementError("RANGE needs a length of time", nodes.span_of(extent), hint)
    if kind == "ROWS" and isinstance(extent, nodes.Duration):
        raise StatementError(
            "ROWS counts tuples", nodes.span_of(extent), f"for a length of time, use RANGE {written}"
        )
    return extent


def _reject_unknown_unit(c: Cursor) -> None:
    if hint := did_you_mean(c.word(), [f"{unit}S" for unit in UNITS_US]):
        raise StatementError(f"{c.word()} is no unit of time", c.span(), hint)


def _extent(c: Cursor) -> exp.Expression:
    """Parse an integer or a duration."""
    if c.looking_at("INTERVAL") or unit_name(c.word(1)):
        return duration(c)
    return c.count()


def duration(c: Cursor) -> nodes.Duration:
    """Parse a duration.

    The forms are `10 MINUTES`, `1 HOUR 30 MINUTES`, `INTERVAL '5' MINUTE` and `INTERVAL '1 hour 30 minutes'`.
    """
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
                raise StatementError(
                    f"'{text}' is not a duration", span, "write it as in '1 hour 30 minutes'"
                )
            parts = [_duration_part(number, unit) for number, unit in pairs]
    while (token := c.token()) is not None and token.token_type is TokenType.NUMBER and unit_name(c.word(1)):
        span = c.span()
        parts.append(_part(c.advance().text, span, c))
    if not parts:
        if (number := c.number()) is not None:
            _reject_unknown_unit(c)
            raise StatementError(
                "a length of time needs a unit", start, f"write {number} SECONDS, for instance"
            )
        c.note("a length of time such as 5 SECONDS")
        c.fail()
    return at(nodes.Duration(expressions=parts), c.span_from(start))


def _part(number: str, span: TextSpan, c: Cursor) -> nodes.DurationPart:
    if not _is_quantity(number):
        raise StatementError(
            f"{number or 'an empty string'} is not a duration", span, "write a number, as in 5 MINUTES"
        )
    return _duration_part(number, c.advance().text)


def _duration_part(number: str, unit: str) -> nodes.DurationPart:
    name = unit_name(unit)
    assert name is not None, "callers look before they take a unit"
    return nodes.DurationPart(this=exp.Literal.number(number), unit=exp.Var(this=name))


def duration_of(us: int) -> nodes.Duration:
    """Return the syntax node of a duration, in the largest unit that divides the duration."""
    unit = max((name for name, length in UNITS_US.items() if us % length == 0), key=UNITS_US.__getitem__)
    return nodes.Duration(expressions=[_duration_part(str(us // UNITS_US[unit]), unit)])


def _is_quantity(text: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d+)?", text, re.ASCII) is not None


def interval_literal(c: Cursor) -> exp.Interval:
    """Parse an interval in a scalar expression, after the word INTERVAL."""
    return exp.Interval(this=duration(c))


# OVER: the window of a call, in place or named
#
#     sum(price) OVER (PARTITION BY item ROWS 9 PRECEDING)
#     sum(price) OVER w, min(price) OVER (w ROWS 9 PRECEDING) … WINDOW w AS (PARTITION BY item ORDER BY ts)
#
# Window names are resolved at the end of the SELECT.


RANKS = ("row_number", "rank", "dense_rank")
# Words that begin a clause of a window, and so cannot be the name of a window.
_BARRED = RESERVED | {"PARTITION", "ROWS", "RANGE"}


def over(c: Cursor, call: exp.Expression) -> nodes.Over:
    """Parse the window after OVER."""
    if not c.at_name(barred=_BARRED):
        return _over(call, _window(c))
    name = c.name("a window")
    return _over(call, at(nodes.NamedWindow(base=name), span_of(name)))


def names_windows(c: Cursor) -> bool:
    """Return True if a WINDOW clause defines named windows.

    A WINDOW clause without names applies to all streams.
    """
    return c.looking_at("WINDOW") and c.at_name(1) and c.word(2) == "AS"


def named_windows(c: Cursor) -> list[nodes.NamedWindow]:
    """Parse `WINDOW w AS (PARTITION BY …), v AS (w ROWS 2 PRECEDING)`."""
    c.expect("WINDOW")
    return c.listing(lambda: _named_window(c))


def _named_window(c: Cursor) -> nodes.NamedWindow:
    name = c.name("a name for the window")
    c.expect("AS")
    window = _window(c)
    window.set("this", name)
    return window


def put_windows(select: exp.Select, named: list[nodes.NamedWindow]) -> None:
    """Replace the window names in a SELECT by the definitions of the windows."""
    known: dict[str, nodes.NamedWindow] = {}
    for window in named:
        if window.name.lower() in known:
            raise StatementError(
                f"there are two windows {window.name}", span_of(window.this), "give each its own name"
            )
        known[window.name.lower()] = _whole(window, known)
    for call in list(select.find_all(nodes.Over)):
        window = child(call, "named")
        if window is not None:
            call.replace(at(_over(call.this, _whole(window, known)), span_of(call)))


def _whole(window: nodes.NamedWindow, known: dict[str, nodes.NamedWindow]) -> nodes.NamedWindow:
    """Return a named window with the clauses of its base window added."""
    base = child(window, "base")
    if base is None:
        return window
    if base.name.lower() not in known:
        near = did_you_mean(base.name, [one.name for one in known.values()])
        hint = (
            near
            or f"define it behind FROM and WHERE: WINDOW {base.name} AS (PARTITION BY k ROWS 9 PRECEDING)"
        )
        raise StatementError(f"there is no window {base.name}", span_of(base), hint)
    whole = known[base.name.lower()].copy()
    for key, words in (("partition_by", "PARTITION BY"), ("order", "ORDER BY"), ("frame", "ROWS or RANGE")):
        own = child(window, key)
        if own is None:
            continue
        if child(whole, key) is not None or key == "partition_by":
            raise StatementError(
                f"the window {base.name} says its {words} itself",
                span_of(window),
                "write the whole window in place of its name",
            )
        whole.set(key, own)
    return whole


def _window(c: Cursor) -> nodes.NamedWindow:
    """Parse `([name] [PARTITION BY …] [ORDER BY …] [ROWS | RANGE …])`."""
    start = c.span()
    c.expect("(")
    window = nodes.NamedWindow(base=c.name("a window") if c.at_name(barred=_BARRED) else None)
    window.set("partition_by", partition_by(c))
    if c.accept("ORDER", "BY"):
        window.set("order", c.listing(lambda: expressions.sort_key(c)))
    if c.word() in ("ROWS", "RANGE"):
        window.set("frame", frame(c, preceding=True))
    else:
        c.note("ROWS")
        c.note("RANGE")
    if not c.accept(")"):
        c.fail(
            "the order is PARTITION BY, ORDER BY, then ROWS or RANGE"
            if c.word() in ("PARTITION", "ORDER")
            else ""
        )
    return at(window, c.span_from(start))


def _over(call: exp.Expression, window: nodes.NamedWindow) -> nodes.Over:
    """Return the syntax node of a call over a window.

    Ranking calls may have any ORDER BY. All other calls must be ordered by time.
    """
    if child(window, "base") is not None:
        return nodes.Over(this=call, named=window)
    node = nodes.Over(this=call)
    for key in ("partition_by", "frame"):
        node.set(key, child(window, key))
    order = child(window, "order")
    if order is None:
        return node
    if call.name.lower() in RANKS:
        node.set("ranked", order)
        return node
    if len(order) > 1:
        raise StatementError(
            "a window over a stream follows its timestamp",
            span_of(order[1]),
            f"order by {order[0].this.name} alone: tuples of one time keep the order of their arrival",
        )
    if child(order[0], "desc"):
        raise StatementError(
            "a window follows time upwards",
            span_of(order[0]),
            "leave DESC out; the newest value is last(x), and the largest first is what ranks are for: "
            "row_number() OVER (ORDER BY x DESC)",
        )
    node.set("order", order[0].this)
    return node


# Window syntax of other systems: window functions in FROM, WINDOW of ksqlDB, and WATERMARK of Flink
#
# TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' MINUTES))
# HOP(bid, ts, INTERVAL '1' MINUTE, INTERVAL '10' MINUTES)
# SESSION(DATA => TABLE bid PARTITION BY bidder, TIMECOL => DESCRIPTOR(ts), GAP => INTERVAL '30' SECONDS)
# FROM bid WINDOW HOPPING (SIZE 10 MINUTES, ADVANCE BY 1 MINUTE)


# Names of the length arguments of each window function, in the order of positional arguments.
LENGTHS: dict[str, tuple[str, ...]] = {
    "TUMBLE": ("SIZE",),
    "HOP": ("SLIDE", "SIZE"),
    "CUMULATE": ("STEP", "SIZE"),
    "SESSION": ("GAP",),
}
_USAGE = {
    "TUMBLE": "TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' MINUTES)",
    "HOP": "HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '10' MINUTES)",
    "CUMULATE": "CUMULATE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '1' DAY)",
    "SESSION": "SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL '30' SECONDS)",
}


def at_window_function(c: Cursor) -> bool:
    """Return True if the current FROM entry is a window function.

    A stream with the same name may be coalesced instead: `session(page) AS s RANGE …`.
    """
    if c.looking_at("TABLE", "("):
        return c.word(2) in LENGTHS and c.word(3) == "("
    return c.word() in LENGTHS and c.word(1) == "(" and not _coalesces(c)


def _coalesces(c: Cursor) -> bool:
    ahead = 2
    while c.word(ahead) == "," or c.at_name(ahead):
        ahead += 1
    if c.word(ahead) != ")":
        return False
    ahead += 1 + (c.word(ahead + 1) == "AS")
    return c.word(ahead) == "RANGE" or c.word(ahead + 1) == "RANGE"


def window_function(c: Cursor) -> nodes.WindowFunction:
    start = c.span()
    wrapped = c.looking_at("TABLE", "(")
    if wrapped:
        c.expect("TABLE", "(")
    kind = c.advance().text.upper()
    c.expect("(")
    node = nodes.WindowFunction(kind=kind)
    places = ["DATA", "TIMECOL", *LENGTHS[kind]]
    while True:
        name = _argument_name(c, kind, places)
        if name in node.args:
            raise StatementError(f"{name} is given twice", c.span(), f"as in {_USAGE[kind]}")
        if name == "DATA":
            node.set("this", _data(c))
            node.set("partition_by", _partition(c))
        elif name == "TIMECOL":
            node.set("column", _descriptor(c))
        else:
            node.set(name.lower(), duration(c))
        places.remove(name)
        if not places or not c.comma():
            break
    if places:
        raise StatementError(f"{kind} lacks its {places[0]}", c.span(), f"as in {_USAGE[kind]}")
    if c.looking_at(","):
        raise StatementError(
            "windows begin at multiples of their slide", c.span(), "leave the offset out, or shift the column"
        )
    c.expect(")")
    if wrapped:
        c.expect(")")
    return at(node, c.span_from(start))


def at_window_clause(c: Cursor) -> bool:
    """Return True if a WINDOW clause in the syntax of ksqlDB is at the cursor."""
    return c.looking_at("WINDOW") and c.word(1) in ("TUMBLING", "HOPPING", "SESSION") and c.word(2) == "("


def window_clause(c: Cursor) -> nodes.FrameClause:
    """Parse `WINDOW TUMBLING (SIZE d)`, `HOPPING (SIZE d, ADVANCE BY d)` and `SESSION (d)`."""
    start = c.span()
    c.expect("WINDOW")
    kind = c.advance().text.upper()
    c.expect("(")
    if kind != "SESSION":
        c.expect("SIZE")
    frame = nodes.FrameClause(kind="SESSION" if kind == "SESSION" else "RANGE", this=duration(c))
    if kind == "TUMBLING":
        frame.set("slide", frame.this.copy())
    elif kind == "HOPPING":
        c.expect(",")
        c.expect("ADVANCE", "BY")
        frame.set("slide", duration(c))
    if c.looking_at(",") and c.word(1) in ("GRACE", "RETENTION"):
        c.advance()
        raise StatementError(
            f"a window has no {c.word()} of its own",
            c.span(),
            "leave it out; tuples that come late count if the SELECT ends with EMIT LATE 10 MINUTES",
        )
    c.expect(")")
    return at(frame, c.span_from(start))


def _argument_name(c: Cursor, kind: str, places: list[str]) -> str:
    if c.word(1) != "=" or c.word(2) != ">":
        return places[0]
    name, span = c.word(), c.span()
    if name not in places:
        hint = did_you_mean(name, places) or f"they are {one_of(places)}"
        raise StatementError(f"{kind} takes no {name}", span, hint)
    for _ in range(3):
        c.advance()
    return name


def _data(c: Cursor) -> exp.Expression:
    c.take("TABLE")
    return c.name("a stream")


def _partition(c: Cursor) -> list[exp.Expression] | None:
    if c.looking_at("PARTITION", "BY", "("):
        c.expect("PARTITION", "BY", "(")
        keys: list[exp.Expression] = [_column(c)]
        while c.comma():
            keys.append(_column(c))
        c.expect(")")
        return keys
    if not c.accept("PARTITION", "BY"):
        return None
    keys = [_column(c)]
    while c.looking_at(",") and _at_another_key(c):
        c.advance()
        keys.append(_column(c))
    return keys


def _at_another_key(c: Cursor) -> bool:
    """Return True if the name after this comma is a partition key.

    A partition key is followed by another argument, before the length.
    """
    if not c.at_name(1) or c.word(1) == "DESCRIPTOR" or c.word(2) != ",":
        return False
    return c.at_name(3) and c.word(3) != "INTERVAL"


def _column(c: Cursor) -> exp.Expression:
    name = c.name("a column")
    return at(exp.Column(this=name), span_of(name))


def _descriptor(c: Cursor) -> exp.Identifier:
    described = c.looking_at("DESCRIPTOR", "(")
    if described:
        c.expect("DESCRIPTOR", "(")
    name = c.name("the timestamp column")
    if described:
        c.expect(")")
    return name


def watermark(c: Cursor) -> tuple[exp.Identifier, nodes.Duration | None]:
    """Parse `WATERMARK FOR ts AS ts [- INTERVAL …]`.

    Return the timestamp column and the slack.
    """
    c.expect("WATERMARK", "FOR")
    column = c.name("the timestamp column")
    c.expect("AS")
    place = c.span()
    named = c.name("the same column")
    if named.name.lower() != column.name.lower():
        raise StatementError(
            f"the watermark for {column.name} is made of that column",
            place,
            f"write WATERMARK FOR {column.name} AS {column.name} - INTERVAL '5' SECONDS",
        )
    return column, duration(c) if c.accept("-") else None
