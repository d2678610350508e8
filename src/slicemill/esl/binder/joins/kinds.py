"""Check the kinds of joins, and bind USING."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from sqlglot import exp

from slicemill.errors import did_you_mean
from slicemill.esl.binder.scope import MergedColumn, Scope
from slicemill.esl.syntax import nodes
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.nodes import at, child, span_of
from slicemill.esl.types.query import FrameUnit, JoinKind, QueryInput
from slicemill.esl.types.schema import Schema


def kind_of_join(join: nodes.JoinInput | None, *, finite: bool) -> JoinKind:
    """Return the kind of a JOIN; a table is always INNER (lookup)."""
    side = None if join is None else child(join, "side")
    as_of = join is not None and (child(join.this, "as_of") is not None or side in ("ASOF", "LEFT ASOF"))
    return JoinKind.INNER if finite or as_of or side in (None, "CROSS") else JoinKind(side)


def check_table(join: nodes.JoinInput | None, name: str) -> bool:
    """Reject joins that would keep a table's rows; return True for LEFT."""
    side = None if join is None else child(join, "side")
    if side in ("RIGHT", "FULL"):
        assert join is not None
        raise Mistake(
            f"{name} is finite: its rows have no time at which they are known to have no partner",
            span_of(join),
            f"name the stream first: stream LEFT JOIN {name} ON …",
        )
    if side in ("SEMI", "ANTI"):
        assert join is not None
        hint = f"use JOIN {name}, or LEFT JOIN {name} … WHERE {name}.column IS NULL"
        raise Mistake(f"{side} JOIN is for streams; {name} is finite", span_of(join), hint)
    if side in ("ASOF", "LEFT ASOF"):
        assert join is not None
        raise Mistake(
            f"{name} is finite: a tuple meets the rows that it has when the tuple arrives",
            span_of(join),
            f"use JOIN {name}, or LEFT JOIN {name}",
        )
    return side == "LEFT"


def joined_in_turn(inputs: Sequence[QueryInput]) -> bool:
    """Return True for chains of three or more streams with outer joins.

    In such a chain each ON belongs to its own join.
    """
    streams = [entry for entry in inputs if not entry.finite]
    return len(streams) > 2 and any(entry.kind is not JoinKind.INNER for entry in streams)


def named_in_on(inputs: Sequence[QueryInput], place: int) -> Sequence[QueryInput]:
    """Return the inputs that ON can name.

    In a chain of joins these are its own input and those joined before.
    """
    if not joined_in_turn(inputs):
        return inputs
    own = inputs[place]
    before = [entry for entry in seen(inputs[:place]) if own.finite or not entry.finite]
    return [*before, own]


def check_on(inputs: Sequence[QueryInput], place: int, on: exp.Expression) -> None:
    """Reject an ON that reads an input joined later, or a table."""
    if not joined_in_turn(inputs) or inputs[place].finite:
        return
    later = {one.alias.lower(): one for n, one in enumerate(inputs) if n > place or one.finite}
    for column in on.find_all(exp.Column):
        other = later.get(column.table.lower())
        if other is not None and other.finite:
            raise Mistake(
                f"{other.alias} is looked up behind the joins of streams",
                span_of(column),
                "look it up in a stream of its own, "
                f"CREATE STREAM s AS SELECT … JOIN {other.alias} …, and join s",
            )
        if other is not None:
            raise Mistake(
                f"{other.alias} stands behind the join that reads it",
                span_of(column),
                f"name {other.alias} before {inputs[place].alias} in FROM",
            )


def seen(inputs: Sequence[QueryInput]) -> list[QueryInput]:
    """Return the inputs whose columns are in the results.

    The columns of SEMI and ANTI joins are not.
    """
    return [entry for entry in inputs if entry.kind not in (JoinKind.SEMI, JoinKind.ANTI)]


def check_kinds(inputs: Sequence[QueryInput], node: exp.Select, optional: Collection[str]) -> None:
    """Check the order of tables and streams in outer joins.

    FROM begins with a stream. In SQL, a table before a RIGHT or FULL join drops only rows of the streams
    before it. The engine looks tables up after the joins of streams, so such a table must be `optional` (LEFT
    JOIN).
    """
    for place, entry in enumerate(inputs):
        if entry.finite or entry.kind is JoinKind.INNER:
            continue
        brings_own = entry.kind in (JoinKind.RIGHT, JoinKind.FULL)
        drops = any(other.finite and other.alias not in optional for other in inputs[:place])
        if inputs[0].finite or (brings_own and drops):
            raise Mistake(
                f"a {entry.kind.value} JOIN begins with a stream", span_of(node), "name the tables last"
            )


def check_windows(inputs: Sequence[QueryInput], node: exp.Select, *, aggregates: bool) -> None:
    streams = [entry for entry in inputs if not entry.finite]
    kind = next((entry.kind for entry in streams if entry.kind is not JoinKind.INNER), None)
    if kind is None:
        return
    in_turn = joined_in_turn(inputs)
    for place, entry in enumerate(streams):
        window = entry.window
        assert window is not None, "it was asked for"
        endless = window.extent is None and window.expires is None
        if in_turn and window.expires is not None:
            raise Mistake(
                f"EXPIRES AT goes with a {kind.value} JOIN of two streams, and FROM has {len(streams)}",
                span_of(node),
                "join two of them in a stream of their own: CREATE STREAM ab AS SELECT …; "
                "then FROM ab [RANGE …]",
            )
        if window.frame is FrameUnit.ROWS or (endless and (in_turn or place in kind.judged)):
            raise Mistake(
                f"a {kind.value} JOIN needs a window of time: when it has passed, a row of {entry.alias} "
                "can no longer be matched",
                span_of(node),
                f"write {entry.alias} [RANGE 10 MINUTES]",
            )
    if aggregates:
        raise Mistake(
            f"an aggregate over a {kind.value} JOIN needs windows of its own",
            span_of(node),
            "make the join a stream, CREATE STREAM ab AS SELECT …, and aggregate FROM ab [RANGE …]",
        )


def using_condition(
    using: Sequence[exp.Identifier],
    alias: str,
    schema: Schema,
    before: Sequence[tuple[str, Schema]],
    merged: Mapping[str, MergedColumn] = MappingProxyType({}),
) -> exp.Expression:
    """Return `USING (k)` as `before.k = alias.k`.

    The left side is the first relation of `before` that has k. A column that an earlier USING has `merged` is
    compared by its merged value.
    """
    parts: list[exp.Expression] = []
    for name in using:
        owner = next((other for other, columns in before if columns.find(name.name) is not None), None)
        if owner is None or schema.find(name.name) is None:
            without = alias if owner is not None else " or ".join(other for other, _ in before)
            known = schema.names if owner is not None else [n for _, c in before for n in c.names]
            raise Mistake(
                f"there is no column {name.name} in {without}",
                span_of(name),
                did_you_mean(name.name, known) or "USING names columns of both sides",
            )
        known_as = merged.get(name.name.lower())
        columns = [_column(other, name) for other in (known_as.values if known_as else (owner,))]
        value: exp.Expression = columns[0]
        if len(columns) > 1:
            value = at(exp.Anonymous(this="coalesce", expressions=columns), span_of(name))
        parts.append(at(exp.EQ(this=value, expression=_column(alias, name)), span_of(name)))
    condition = parts[0]
    for part in parts[1:]:
        condition = at(exp.And(this=condition, expression=part), span_of(condition))
    return condition


def merged_columns(
    using: Sequence[tuple[Sequence[exp.Identifier], QueryInput]], before: Sequence[QueryInput]
) -> dict[str, MergedColumn]:
    """Return the merged columns of USING with their source relations."""
    found: dict[str, MergedColumn] = {}
    for names, entry in using:
        for name in names:
            known = found.get(name.name.lower())
            if known is None:
                owner = next(one.alias for one in seen(before) if one.schema.find(name.name) is not None)
                known = MergedColumn(owner, (owner,))
            values = {JoinKind.RIGHT: (entry.alias,), JoinKind.FULL: (*known.values, entry.alias)}
            found[name.name.lower()] = MergedColumn(known.owner, values.get(entry.kind, known.values))
    return found


def visible(inputs: Sequence[QueryInput], merged: dict[str, MergedColumn]) -> Scope:
    """Return the scope of the select list and WHERE.

    The inputs of SEMI and ANTI joins are not visible there.
    """
    relations = tuple((entry.alias, entry.schema.own) for entry in seen(inputs))
    return Scope(relations, qualified=len(inputs) > 1, merged=merged)


def with_all(scope: Scope, inputs: Sequence[QueryInput]) -> Scope:
    """Return the scope of ON, with all inputs."""
    return replace(scope, relations=tuple((entry.alias, entry.schema.own) for entry in inputs))


def _column(alias: str, name: exp.Identifier) -> exp.Column:
    table = exp.Identifier(this=alias, quoted=True)
    return at(exp.Column(this=name.copy(), table=table), span_of(name))
