"""Parse PAUSE, RESUME and RESTART, and OR REPLACE of CREATE.

IF NOT EXISTS is parsed here too.
"""

from __future__ import annotations

from sqlglot import exp

from slicemill.errors import one_of
from slicemill.esl.syntax import nodes
from slicemill.esl.syntax.cursor import Cursor
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.nodes import IF_ABSENT, REPLACE, at
from slicemill.esl.types.lives import LifeAction

STARTS = tuple(LifeAction)
LIVING = ("QUERY", "STREAM")
_BEFORE_KIND = ("ALGEBRAIC", "WINDOW")


def change_life(c: Cursor) -> nodes.ChangeLife:
    start = c.span()
    action = c.accept_any(STARTS)
    assert action, "one of them stands here"
    kind = c.accept_any(LIVING)
    if not kind:
        c.fail(f"say what: {action} {one_of(LIVING)}, and its name")
    name = c.name(f"the name of a {kind.lower()}")
    return at(nodes.ChangeLife(this=name, action=action, kind=kind), c.span_from(start))


def create_mode(c: Cursor) -> str:
    """Parse `OR REPLACE` here or `IF NOT EXISTS` after the kind, and remove these tokens."""
    start = c.span()
    mode = ""
    if c.take("OR"):
        c.expect("REPLACE")
        mode = REPLACE
    kind = 0
    while c.word(kind) in _BEFORE_KIND:
        kind += 1
    place = c.index + kind + 1
    if [c.word(kind + 1 + ahead) for ahead in range(3)] == IF_ABSENT.split():
        if mode:
            raise Mistake(f"{REPLACE} and {IF_ABSENT} do not go together", start, "leave one of them out")
        c.tokens = [*c.tokens[:place], *c.tokens[place + 3 :]]
        return IF_ABSENT
    if mode and c.word(kind) in ("TABLE", "CLASSIFIER"):
        raise Mistake(f"a {c.word(kind).lower()} cannot be replaced", start, "DROP it first")
    return mode


def with_mode(made: exp.Expression, mode: str) -> exp.Expression:
    return nodes.CreateMode(this=made, mode=mode) if mode else made
