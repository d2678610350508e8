"""Specification of SELECT DISTINCT over insert-only input."""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.esl.types.expression import ColumnRef
from slicemill.esl.types.schema import Column
from slicemill.operators.description import Description
from slicemill.operators.kind import ColumnsRead, OperatorKind, Role, UnitOf, same_keys
from slicemill.operators.operator import Operator


@dataclass(frozen=True, slots=True)
class Distinct(Operator):
    """Emit a row if it is the first with its values.

    `columns` are all columns of the row.
    """

    columns: tuple[Column, ...]


KINDS = (
    OperatorKind(
        spec=Distinct,
        role=Role.STATEFUL,
        words=lambda distinct, *_: Description(
            "δ", "Distinct", (("of", ", ".join(column.name for column in distinct.columns)),)
        ),
        label=lambda _: "distinct",
        columns_read=lambda distinct, *_: ColumnsRead([ColumnRef.to(c) for c in distinct.columns], ()),
        unit=UnitOf.KEYS,
        keys=lambda distinct: (tuple(ColumnRef.to(column) for column in distinct.columns),),
        keys_below=same_keys,
        history_us=lambda *_: None,
        step="slicemill.operators.distinct.step:distinct",
    ),
)
