"""Parse window syntax of other systems: TVFs, ksqlDB's WINDOW, Flink's WATERMARK.

TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' MINUTES))
HOP(bid, ts, INTERVAL '1' MINUTE, INTERVAL '10' MINUTES)
SESSION(DATA => TABLE bid PARTITION BY bidder, TIMECOL => DESCRIPTOR(ts), GAP => INTERVAL '30' SECONDS)
FROM bid WINDOW HOPPING (SIZE 10 MINUTES, ADVANCE BY 1 MINUTE)
"""

from __future__ import annotations

from sqlglot import exp

from slicemill.errors import did_you_mean, one_of
from slicemill.esl.syntax import nodes
from slicemill.esl.syntax.cursor import Cursor
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.grammar import windows
from slicemill.esl.syntax.nodes import at, span_of

# Length arguments of each function, in the order of positional arguments.
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


def stands_here(c: Cursor) -> bool:
    """Return True if this FROM entry is a window function.

    A stream of such a name may also be coalesced: `session(page) AS s RANGE …`.
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
            raise Mistake(f"{name} is given twice", c.span(), f"as in {_USAGE[kind]}")
        if name == "DATA":
            node.set("this", _data(c))
            node.set("partition_by", _partition(c))
        elif name == "TIMECOL":
            node.set("column", _descriptor(c))
        else:
            node.set(name.lower(), windows.duration(c))
        places.remove(name)
        if not places or not c.comma():
            break
    if places:
        raise Mistake(f"{kind} lacks its {places[0]}", c.span(), f"as in {_USAGE[kind]}")
    if c.looking_at(","):
        raise Mistake(
            "windows begin at multiples of their slide", c.span(), "leave the offset out, or shift the column"
        )
    c.expect(")")
    if wrapped:
        c.expect(")")
    return at(node, c.span_from(start))


def window_stands_here(c: Cursor) -> bool:
    """Return True for a WINDOW clause of ksqlDB."""
    return c.looking_at("WINDOW") and c.word(1) in ("TUMBLING", "HOPPING", "SESSION") and c.word(2) == "("


def window_clause(c: Cursor) -> nodes.FrameClause:
    """Parse `WINDOW TUMBLING (SIZE d)`, `HOPPING (SIZE d, ADVANCE BY d)` and `SESSION (d)`."""
    start = c.span()
    c.expect("WINDOW")
    kind = c.advance().text.upper()
    c.expect("(")
    if kind != "SESSION":
        c.expect("SIZE")
    frame = nodes.FrameClause(kind="SESSION" if kind == "SESSION" else "RANGE", this=windows.duration(c))
    if kind == "TUMBLING":
        frame.set("slide", frame.this.copy())
    elif kind == "HOPPING":
        c.expect(",")
        c.expect("ADVANCE", "BY")
        frame.set("slide", windows.duration(c))
    if c.looking_at(",") and c.word(1) in ("GRACE", "RETENTION"):
        c.advance()
        raise Mistake(
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
        raise Mistake(f"{kind} takes no {name}", span, hint)
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
    """Return True if the name after this comma is a key.

    Another argument then follows before the length.
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
    """Parse `WATERMARK FOR ts AS ts [- INTERVAL …]`; return the timestamp column and the slack."""
    c.expect("WATERMARK", "FOR")
    column = c.name("the timestamp column")
    c.expect("AS")
    place = c.span()
    named = c.name("the same column")
    if named.name.lower() != column.name.lower():
        raise Mistake(
            f"the watermark for {column.name} is made of that column",
            place,
            f"write WATERMARK FOR {column.name} AS {column.name} - INTERVAL '5' SECONDS",
        )
    return column, windows.duration(c) if c.accept("-") else None
