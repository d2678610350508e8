"""Operator: GROUP BY over windows of FROM."""

from __future__ import annotations

from dataclasses import dataclass, replace

from slicemill.columns.sequence_bits import SEQ_BITS, fanned_bits, ranked_bits
from slicemill.esl.render.expressions import render
from slicemill.esl.types.expression import Expr
from slicemill.esl.types.query import FrameUnit, Window
from slicemill.esl.types.relation import AggregateCall, SelectItem
from slicemill.operators.description import Description, each, grouped, length_of
from slicemill.operators.kind import ColumnsRead, Keys, OperatorKind, Role, UnitOf, longest_us
from slicemill.operators.operator import Operator
from slicemill.operators.over.accumulators import sources_of_columns
from slicemill.time import format_us

GROUP_BITS = 32  # bits for the position of a group in its window


@dataclass(frozen=True, slots=True)
class RelationAggregate(Operator):
    """Base aggregates over windows of FROM: rows per slide, or per arrival.

    `windows` belong to the inputs of the join below, in order, with the column of each input's timestamp.
    The column is None for a single stream. `where` filters the content of a ROWS window. The condition
    must not be applied before the window, because the last n rows would be different rows.
    """

    group_by: tuple[SelectItem, ...]
    calls: tuple[AggregateCall, ...]
    windows: tuple[tuple[str | None, Window], ...]
    slide: int | None
    where: Expr | None = None


def words_of_windows(aggregate: RelationAggregate) -> Description:
    windows = [window for _, window in aggregate.windows]
    aliases = [(column or "").removesuffix("._ts") for column, _ in aggregate.windows]
    extents = each(aliases, [length_of(window) for window in windows])
    report = "at each arrival"
    if aggregate.slide is not None:
        frame = next(window.frame for window in windows if window.slide is not None)
        report = format_us(aggregate.slide) if frame is FrameUnit.RANGE else f"{aggregate.slide} tuples"
    facts = [*grouped(aggregate.calls, aggregate.group_by), ("window", extents)]
    if aggregate.where is not None:
        facts.append(("where", render(aggregate.where)))
    return Description("γ", "Aggregate", (*facts, ("every", report)))


def keys_of_windows(aggregate: RelationAggregate) -> tuple[Keys, ...] | None:
    """Return the group keys as partition keys.

    ROWS windows have none, because they count the rows of all groups.
    """
    if aggregate.windows[0][1].frame is not FrameUnit.RANGE or not aggregate.group_by:
        return None
    return (tuple(item.expr for item in aggregate.group_by),)


def numbered_by_place(aggregate: RelationAggregate) -> bool:
    """Return True if results of a window are numbered from 0.

    Results are numbered so for sliding windows over joins, if these are partitioned by key.
    """
    joined = any(column is not None for column, _ in aggregate.windows)
    return joined and aggregate.slide is not None and keys_of_windows(aggregate) is not None


def _columns_read(aggregate: RelationAggregate) -> ColumnsRead:
    exprs = [item.expr for item in aggregate.group_by]
    exprs += [argument for call in aggregate.calls for argument in call.arguments]
    exprs += [aggregate.where] if aggregate.where is not None else []
    return ColumnsRead(exprs, {column for column, _ in aggregate.windows if column is not None})


def _seq_bits(aggregate: RelationAggregate, bits: int) -> int:
    if numbered_by_place(aggregate):
        return GROUP_BITS
    return SEQ_BITS if keys_of_windows(aggregate) is None else fanned_bits(ranked_bits(bits))


def _takes(kept: RelationAggregate, aggregate: RelationAggregate) -> list[int] | None:
    """Return by stored argument its index in the former state of the same windows."""
    if replace(kept, calls=()) != replace(aggregate, calls=()):
        return None
    return sources_of_columns(kept.calls, aggregate.calls)


KINDS = (
    OperatorKind(
        spec=RelationAggregate,
        role=Role.STATEFUL,
        words=lambda aggregate, *_: words_of_windows(aggregate),
        label=lambda _: "aggregate",
        waits_for_time=lambda aggregate, _: (
            aggregate.slide is not None and aggregate.windows[0][1].frame is FrameUnit.RANGE
        ),
        columns_read=lambda aggregate, *_: _columns_read(aggregate),
        unit=UnitOf.KEYS,
        keys=keys_of_windows,
        history_us=lambda aggregate, *_: longest_us(window for _, window in aggregate.windows),
        seq_bits=lambda aggregate, bits, *_: _seq_bits(aggregate, bits),
        stored={"plan.relation_aggregate": RelationAggregate},
        step="slicemill.operators.windowed_group.step:windowed_group",
        takes=_takes,
        taken_over="slicemill.operators.windowed_group.taken_over:taken_over",
        redistribute="slicemill.operators.windowed_group.redistribute:redistributed",
    ),
)
