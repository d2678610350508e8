"""Parse JOIN: its kind, and its ON or USING condition."""

from __future__ import annotations

from sqlglot import exp

from slicemill.esl.syntax.cursor import Cursor
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.grammar import expressions

# Words that begin a join.
STARTS = ("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "SEMI", "ANTI", "ASOF", "NATURAL")

# Kinds of joins as written. An ASOF join takes only the latest row of the other side.
_KINDS = {
    "INNER": "INNER",
    "CROSS": "CROSS",
    "LEFT SEMI": "SEMI",
    "LEFT ANTI": "ANTI",
    "LEFT ASOF": "LEFT ASOF",
    "LEFT OUTER": "LEFT",
    "LEFT": "LEFT",
    "RIGHT OUTER": "RIGHT",
    "RIGHT": "RIGHT",
    "FULL OUTER": "FULL",
    "FULL": "FULL",
    "SEMI": "SEMI",
    "ANTI": "ANTI",
    "ASOF LEFT OUTER": "LEFT ASOF",
    "ASOF LEFT": "LEFT ASOF",
    "ASOF INNER": "ASOF",
    "ASOF": "ASOF",
}


def kind(c: Cursor) -> str | None:
    """Parse the kind of a join and JOIN; None for INNER."""
    if c.looking_at("NATURAL"):
        raise Mistake(
            "a NATURAL JOIN changes its meaning when a column is added",
            c.span(),
            "name the columns: JOIN … USING (k)",
        )
    found = _KINDS[written] if (written := c.accept_any(tuple(_KINDS))) else "INNER"
    c.expect("JOIN")
    return None if found == "INNER" else found


def as_of(c: Cursor) -> exp.Expression | None:
    """Parse `FOR SYSTEM_TIME AS OF a.ts` after the name of a relation."""
    if not c.take("FOR"):
        return None
    if not c.accept("SYSTEM_TIME", "AS", "OF"):
        c.fail("write FOR SYSTEM_TIME AS OF stream.timestamp")
    return expressions.expression(c)


def condition(c: Cursor, kind_: str | None) -> tuple[exp.Expression | None, list[exp.Identifier] | None]:
    """Parse `ON condition` or `USING (k, …)`; a CROSS JOIN has neither."""
    if kind_ == "CROSS":
        return None, None
    if c.accept("USING"):
        c.expect("(")
        names = c.listing(lambda: c.name("a column of both sides"))
        c.expect(")")
        return None, names
    if c.looking_at("WITHIN"):
        raise Mistake(
            "each stream of a join says how long it is kept",
            c.span(),
            "give both a window: FROM a [RANGE 1 HOUR] AS a JOIN b [RANGE 1 HOUR] AS b ON a.k = b.k",
        )
    if not c.accept("ON"):
        c.fail("say what joins them: ON a.x = b.x")
    return expressions.expression(c), None
