"""Operators: aggregates with OVER, for one query or shared by several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slicemill.columns.sequence_bits import fanned_bits, ranked_bits
from slicemill.esl.types.builtins import BUILTINS
from slicemill.esl.types.catalog import Catalog
from slicemill.esl.types.expression import Expr
from slicemill.esl.types.query import FrameUnit, WindowCall
from slicemill.esl.types.schema import Column
from slicemill.operators.description import Description, many, partition, window_calls
from slicemill.operators.kind import ColumnsRead, Keys, MemberKind, OperatorKind, Role, UnitOf, longest_us
from slicemill.operators.operator import Operator, SharedOperator
from slicemill.operators.over.accumulators import is_by_itself, sources_of_calls


@dataclass(frozen=True, slots=True)
class WindowAggregate(Operator):
    """Aggregates with OVER, one column per call (M37).

    Emits a row per tuple, or per slide.
    """

    calls: tuple[WindowCall, ...]


@dataclass(frozen=True, slots=True)
class OverMember:
    """One of the window aggregates that share stored rows.

    `columns` are the output columns that are read.
    """

    name: str
    operator: WindowAggregate
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class SharedOver(SharedOperator):
    """Plain aggregates with OVER of several queries, over shared rows.

    All queries have the same input and keys.
    """

    keys: tuple[Expr, ...]
    members: tuple[OverMember, ...]

    @property
    def calls(self) -> tuple[WindowCall, ...]:
        return tuple(call for member in self.members for call in member.operator.calls)


_COUNTING_FOREVER = ("priority_sample", "approx_count_if")


def is_plain(call: WindowCall) -> bool:
    """Return True if a call needs only a range of the newest rows."""
    window = call.window
    stretch = window.extent is not None and window.slide is None and not window.active
    return stretch and call.name.lower() not in _COUNTING_FOREVER


def holds(kept: OverMember, member: OverMember) -> bool:
    """Return True if the rows stored for `kept` are sufficient for `member`.

    Both have plain calls. Each argument must be stored for a window that reaches at least as far back.
    """
    return all(
        any(
            before.window.frame is call.window.frame
            and (before.window.extent or 0) >= (call.window.extent or 0)
            for before in kept.operator.calls
        )
        and _stored([call]) <= _stored(c for c in kept.operator.calls if c.window.frame is call.window.frame)
        for call in member.operator.calls
    )


def _stored(calls: Iterable[WindowCall]) -> set[Expr]:
    return {expr for call in calls for expr in BUILTINS[call.name.lower()].stored(call.arguments)}


def _takes(kept: WindowAggregate, over: WindowAggregate) -> list[int] | None:
    """Return by call the former call with the same state, for windows without a beginning."""
    partitions = [list(dict.fromkeys(call.partition_by for call in one.calls)) for one in (kept, over)]
    if partitions[0] != partitions[1] or not all(map(_is_unbounded, (*kept.calls, *over.calls))):
        return None
    return sources_of_calls(kept.calls, over.calls)


def _is_unbounded(call: WindowCall) -> bool:
    window = call.window
    return window.extent is None and window.slide is None and not window.active and is_by_itself(call)


def has_expiries(calls: Sequence[WindowCall]) -> bool:
    """Return True if tuples that leave a window also cause rows."""
    return any(call.window.active for call in calls)


def returns_many(calls: Sequence[WindowCall], catalog: Catalog) -> bool:
    """Return True if a tuple may cause several rows."""
    return any(any(catalog.aggregates(call.name)) for call in calls)


def bits_of_calls(over: WindowAggregate, bits: int, catalog: Catalog, *_: object) -> int:
    bits = ranked_bits(bits) if has_expiries(over.calls) else bits
    return fanned_bits(bits) if returns_many(over.calls, catalog) else bits


def calls_wait(calls: Sequence[WindowCall]) -> bool:
    """Return True if output waits for a slot's end or an expiry."""
    windows = [call.window for call in calls]
    return any(w.active or (w.slide is not None and w.frame is FrameUnit.RANGE) for w in windows)


def _keys(over: WindowAggregate) -> tuple[Keys, ...] | None:
    partitions = {call.partition_by for call in over.calls}
    return tuple(partitions) if len(partitions) == 1 else None


def _shared_words(shared: SharedOver) -> Description:
    facts = (*window_calls(shared.calls), *partition(shared.keys))
    return Description("γ", f"Rows of {many(len(shared.members), 'window aggregate')}", facts)


def _columns_of_members(shared: SharedOver) -> ColumnsRead:
    arguments = (argument for call in shared.calls for argument in call.arguments)
    names = {column.name for member in shared.members for column in member.columns}
    return ColumnsRead([*shared.keys, *arguments], names)


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
        takes=_takes,
        taken_over="slicemill.operators.over.taken_over:windows_taken_over",
        stored={"plan.window_aggregate": WindowAggregate},
        step="slicemill.operators.over.step:over",
    ),
    OperatorKind(
        spec=SharedOver,
        role=Role.STATEFUL,
        words=lambda shared, *_: _shared_words(shared),
        columns_read=lambda shared, *_: _columns_of_members(shared),
        unit=UnitOf.KEYS,
        keys=lambda shared: (shared.keys,),
        member=MemberKind(
            words=lambda member: Description("γ", "Window aggregate", window_calls(member.operator.calls)),
            history_us=lambda member: longest_us(call.window for call in member.operator.calls),
            seq_bits=lambda member, bits, catalog: bits_of_calls(member.operator, bits, catalog),
            holds=holds,
        ),
        step="slicemill.operators.over.shared_step:shared_over",
    ),
)
