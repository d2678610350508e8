"""Residual conditions, tested as soon as all their streams are joined (S48).

A condition may raise an error, for example a division by zero, on a partial result that never becomes a
result. It is therefore tested again on complete results, and only an error there fails the query. The outcome
does not depend on the probing order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slicemill.esl.types.expression import ColumnRef, Expr, columns_of, conjuncts, transform
from slicemill.esl.types.schema import Schema
from slicemill.operators.join.block import DATA
from slicemill.operators.join.conditions import Evaluate
from slicemill.operators.join.windows import QueryBits
from slicemill.operators.multijoin.partials import Partials
from slicemill.operators.multijoin.spec import MultiJoinMember
from slicemill.scalar.columns import compile_vector
from slicemill.scalar.values import ExpressionError
from slicemill.scalar.vectors import arrow_type


@dataclass(frozen=True, slots=True)
class ResidualCondition:
    """Condition on rows of several inputs, and the queries that have it.

    Columns are named `0.column` by input.
    """

    evaluate: Evaluate
    columns: frozenset[str]
    inputs: frozenset[int]
    names: tuple[str, ...]


class PartialTests:
    """Conditions of all queries; equal conditions are tested once (S19)."""

    def __init__(
        self,
        members: Sequence[MultiJoinMember],
        numbers: Mapping[str, int],
        schemas: Sequence[Schema],
        seats: QueryBits,
    ) -> None:
        """Compile the conditions; `numbers` are the input numbers by name."""
        both = Schema(tuple(column.of(number) for number, schema in enumerate(schemas) for column in schema))
        self._types = {column.name: arrow_type(column.type) for column in both}
        self._seats = seats
        users: dict[Expr, list[str]] = {}
        for member in members:
            places = [numbers[name] for name in member.inputs]
            for part in conjuncts(member.residual):
                users.setdefault(_of_inputs(part, places), []).append(member.name)
        self._conditions = [
            ResidualCondition(
                compile_vector(expr, both),
                columns_of(expr),
                frozenset(int(name.split(".", 1)[0]) for name in columns_of(expr)),
                tuple(names),
            )
            for expr, names in users.items()
        ]

    def at(self, before: Collection[int], target: int, names: Collection[str]) -> list[ResidualCondition]:
        """Return the conditions of some queries that can be tested at a level."""
        tested = frozenset(before) if len(before) > 1 else frozenset[int]()
        there = {*before, target}
        return [
            replace(condition, names=wanted)
            for condition in self._conditions
            if condition.inputs <= there and not (len(before) > 1 and condition.inputs <= tested)
            if (wanted := tuple(name for name in condition.names if name in names))
        ]

    def test(self, partials: Partials, conditions: Sequence[ResidualCondition]) -> list[ResidualCondition]:
        """Clear queries whose conditions fail; return conditions that raised errors."""
        unknown = []
        for condition in conditions:
            try:
                self._test(partials, condition)
            except ExpressionError:
                unknown.append(condition)
        return unknown

    def finish(
        self,
        partials: Partials,
        name: str,
        postponed: Sequence[ResidualCondition],
        errors: dict[str, ExpressionError],
    ) -> None:
        """Test postponed conditions on a query's results; an error fails the query."""
        for condition in postponed:
            if name in condition.names:
                try:
                    self._test(partials, replace(condition, names=(name,)))
                except ExpressionError as problem:
                    errors.setdefault(name, problem)

    def _test(self, partials: Partials, condition: ResidualCondition) -> None:
        bits = self._seats.mask(condition.names)
        places = np.flatnonzero((partials.words & bits).any(axis=1))
        if not len(places):
            return
        # A condition without columns still needs the row count.
        columns = {"": pa.array(partials.times)}
        for name in condition.columns:
            input_, column = name.split(".", 1)
            columns[name] = partials.column(int(input_), DATA + column, self._types[name])
        if len(places) < len(partials):
            columns = {name: column.take(pa.array(places)) for name, column in columns.items()}
        truth = pc.fill_null(condition.evaluate(pa.table(columns)), False)
        held = truth.combine_chunks().to_numpy(zero_copy_only=False)
        partials.words[places[~held]] &= ~bits


def _of_inputs(expr: Expr, places: Sequence[int]) -> Expr:
    """Rename columns from sides to input numbers."""

    def moved(part: Expr) -> Expr | None:
        if not isinstance(part, ColumnRef):
            return None
        side, column = part.name.split(".", 1)
        return ColumnRef(f"{places[int(side)]}.{column}", part.type)

    return transform(expr, moved)
