"""Parse OVER: the window of a call, in place or named.

    sum(price) OVER (PARTITION BY item ROWS 9 PRECEDING)
    sum(price) OVER w, min(price) OVER (w ROWS 9 PRECEDING) … WINDOW w AS (PARTITION BY item ORDER BY ts)

Window names are resolved at the end of the SELECT.
"""

from __future__ import annotations

from sqlglot import exp

from slicemill.errors import did_you_mean
from slicemill.esl.syntax import nodes
from slicemill.esl.syntax.cursor import Cursor
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.grammar import expressions, windows
from slicemill.esl.syntax.nodes import at, child, span_of
from slicemill.esl.syntax.tokens import RESERVED

RANKS = ("row_number", "rank", "dense_rank")
# Words that begin a clause of a window, and so cannot name a window.
_BARRED = RESERVED | {"PARTITION", "ROWS", "RANGE"}


def over(c: Cursor, call: exp.Expression) -> nodes.Over:
    """Parse the window after OVER."""
    if not c.at_name(barred=_BARRED):
        return _over(call, _window(c))
    name = c.name("a window")
    return _over(call, at(nodes.NamedWindow(base=name), span_of(name)))


def names_windows(c: Cursor) -> bool:
    """Return True for WINDOW with names; otherwise WINDOW applies to all streams."""
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
    """Replace window names by their definitions."""
    known: dict[str, nodes.NamedWindow] = {}
    for window in named:
        if window.name.lower() in known:
            raise Mistake(
                f"there are two windows {window.name}", span_of(window.this), "give each its own name"
            )
        known[window.name.lower()] = _whole(window, known)
    for call in list(select.find_all(nodes.Over)):
        window = child(call, "named")
        if window is not None:
            call.replace(at(_over(call.this, _whole(window, known)), span_of(call)))


def _whole(window: nodes.NamedWindow, known: dict[str, nodes.NamedWindow]) -> nodes.NamedWindow:
    """Return a window merged with the window it names."""
    base = child(window, "base")
    if base is None:
        return window
    if base.name.lower() not in known:
        near = did_you_mean(base.name, [one.name for one in known.values()])
        hint = (
            near
            or f"define it behind FROM and WHERE: WINDOW {base.name} AS (PARTITION BY k ROWS 9 PRECEDING)"
        )
        raise Mistake(f"there is no window {base.name}", span_of(base), hint)
    whole = known[base.name.lower()].copy()
    for key, words in (("partition_by", "PARTITION BY"), ("order", "ORDER BY"), ("frame", "ROWS or RANGE")):
        own = child(window, key)
        if own is None:
            continue
        if child(whole, key) is not None or key == "partition_by":
            raise Mistake(
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
    window.set("partition_by", windows.partition_by(c))
    if c.accept("ORDER", "BY"):
        window.set("order", c.listing(lambda: expressions.ordered(c)))
    if c.word() in ("ROWS", "RANGE"):
        window.set("frame", windows.frame(c, preceding=True))
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
    """Return a call over a window.

    Ranks may have any ORDER BY; other windows are ordered by time.
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
        raise Mistake(
            "a window over a stream follows its timestamp",
            span_of(order[1]),
            f"order by {order[0].this.name} alone: tuples of one time keep the order of their arrival",
        )
    if child(order[0], "desc"):
        raise Mistake(
            "a window follows time upwards",
            span_of(order[0]),
            "leave DESC out; the newest value is last(x), and the largest first is what ranks are for: "
            "row_number() OVER (ORDER BY x DESC)",
        )
    node.set("order", order[0].this)
    return node
