"""Aggregates with OVER."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slicemill.columns.sequence_bits import fanned_bits, ranked_bits
from slicemill.esl.types.catalog import Catalog
from slicemill.esl.types.expression import Expr
from slicemill.esl.types.query import FrameUnit, WindowCall
from slicemill.operators.description import Description, window_calls
from slicemill.operators.kind import ColumnsRead, Keys, OperatorKind, Role, UnitOf, longest_us
from slicemill.operators.operator import Operator


@dataclass(frozen=True, slots=True)
class WindowAggregate(Operator):
    """Aggregates with OVER: a row per tuple, or per yield tuple of a slide, with a column per call (M37)."""

    calls: tuple[WindowCall, ...]


def has_expiries(calls: Sequence[WindowCall]) -> bool:
    """Do rows come also for tuples that leave, behind those of tuples that come?"""
    return any(call.window.active for call in calls)


def returns_many(calls: Sequence[WindowCall], catalog: Catalog) -> bool:
    """May a tuple get several rows?"""
    return any(any(catalog.aggregates(call.name)) for call in calls)


def bits_of_calls(over: WindowAggregate, bits: int, catalog: Catalog, *_: object) -> int:
    bits = ranked_bits(bits) if has_expiries(over.calls) else bits
    return fanned_bits(bits) if returns_many(over.calls, catalog) else bits


def calls_wait(calls: Sequence[WindowCall]) -> bool:
    """Do answers wait for the end of a slide, or for a tuple to leave?"""
    windows = [call.window for call in calls]
    return any(w.active or (w.slide is not None and w.frame is FrameUnit.RANGE) for w in windows)


def _keys(over: WindowAggregate) -> tuple[Keys, ...] | None:
    partitions = {call.partition_by for call in over.calls}
    return tuple(partitions) if len(partitions) == 1 else None


def _columns_read(over: WindowAggregate) -> list[Expr]:
    return [part for call in over.calls for part in (*call.arguments, *call.partition_by)]


KINDS = (
    OperatorKind(
        spec=WindowAggregate,
        role=Role.STATEFUL,
        words=lambda over, *_: Description("γ", "Window aggregate", window_calls(over.calls)),
        label=lambda _: "window",
        waits_for_time=lambda over, _: calls_wait(over.calls),
        columns_read=lambda over, _, wanted: ColumnsRead(_columns_read(over), wanted),
        unit=UnitOf.KEYS,
        keys=_keys,
        history_us=lambda over, *_: longest_us(call.window for call in over.calls),
        seq_bits=bits_of_calls,
        stored={"plan.window_aggregate": WindowAggregate},
        step="slicemill.operators.over.step:over",
    ),
)
