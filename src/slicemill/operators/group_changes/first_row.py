"""Row of a global aggregate over no input rows.

An aggregate without GROUP BY has one row for any input. For `count(*), sum(v)` over no rows, it is `(0,
NULL)`:

    _ts        _op             count   sum
    EARLIEST   insert          0       NULL    before the first row
    1 s        update_before   0       NULL
    1 s        update_after    1       5       after the first row, v = 5
    2 s        update_before   1       5
    2 s        update_after    0       NULL    after its deletion
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from slicemill.aggregate.definition import align, base_of, evaluate
from slicemill.columns.changes import INSERT
from slicemill.columns.numbered import RowsByNumber
from slicemill.columns.rows import plain_table
from slicemill.esl.types.schema import OP
from slicemill.operators.context import StepContext
from slicemill.operators.group_changes.spec import GroupChanges
from slicemill.storage.arrow_schema import ARRIVAL, SEQ, TS
from slicemill.time import EARLIEST


@dataclass(frozen=True, slots=True)
class FirstRowOfAll:
    """Values of a global aggregate over no rows.

    They are a table of one row.
    """

    values: pa.Table

    @staticmethod
    def of(operator: GroupChanges, context: StepContext) -> FirstRowOfAll | None:
        """Return the row, or None for an aggregate with GROUP BY."""
        if operator.group_by:
            return None
        definitions = [context.definition(call) for call in operator.calls]
        values = [evaluate(base_of(definition), ()) for definition in definitions]
        (row,) = align(definitions, values) if definitions else [()]
        return FirstRowOfAll(plain_table([row], context.node.schema.own))

    def enter(self, told: RowsByNumber) -> bool:
        """Record the row as emitted, unless a row was emitted before."""
        told.reach(1)
        if told.places[0] >= 0:
            return False
        told.replace(np.zeros(1, np.int64), self.values)
        return True

    def inserted(self, schema: pa.Schema) -> pa.Table:
        """Return the change that inserts the row.

        It precedes all other rows, so its number is 0.
        """
        system = {TS: EARLIEST, SEQ: 0, ARRIVAL: 0, OP: INSERT}
        columns = [
            pa.array([system[field.name]], field.type)
            if field.name in system
            else self.values.column(field.name).cast(field.type)
            for field in schema
        ]
        return pa.table(columns, schema=schema)
