"""Specification of EMIT EVERY and EMIT FINAL: net changes of a changelog."""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.columns.sequence_bits import SEQ_BITS
from slicemill.esl.types.expression import ColumnRef
from slicemill.esl.types.schema import Column
from slicemill.operators.description import Description
from slicemill.operators.kind import Keys, OperatorKind, Role, UnitOf, same_keys
from slicemill.operators.operator import Operator
from slicemill.time import format_us


@dataclass(frozen=True, slots=True)
class Emit(Operator):
    """Emit the net changes of each interval at the end of the interval.

    Without `every` (microseconds), emit the table at the end of input. `key` are the key columns of the
    changelog, if any.
    """

    every: int | None
    key: tuple[Column, ...] = ()


def _words(emit: Emit) -> Description:
    when = "at the end of input" if emit.every is None else f"every {format_us(emit.every)}"
    return Description("", "Emit", (("net changes", when),))


def _keys(emit: Emit) -> tuple[Keys, ...] | None:
    return (tuple(ColumnRef.to(column) for column in emit.key),) if emit.key else None


KINDS = (
    OperatorKind(
        spec=Emit,
        role=Role.STATEFUL,
        words=lambda emit, *_: _words(emit),
        label=lambda _: "emit",
        waits_for_time=lambda emit, _: emit.every is not None,
        unit=UnitOf.KEYS,
        keys=_keys,
        keys_below=same_keys,
        history_us=lambda *_: None,
        seq_bits=lambda emit, bits, *_: bits if emit.key else SEQ_BITS,
        last_words=True,
        step="slicemill.operators.emit.step:emit",
    ),
)
