"""Which inputs of a SELECT change, and by what their rows are told apart."""

from __future__ import annotations

from collections.abc import Sequence

from slicemill.esl.types.query import JoinKind, QueryInput
from slicemill.esl.types.schema import Schema


def reads_changes(inputs: Sequence[QueryInput]) -> bool:
    return any(given.schema.changelog for given in inputs)


def joins_changes(inputs: Sequence[QueryInput]) -> bool:
    """Is a table that changes joined?"""
    return len(inputs) > 1 and reads_changes(inputs)


def schema_below(inputs: Sequence[QueryInput]) -> Schema:
    """Do the rows that a SELECT reads change? And by what are they told apart, as they are named there?

    Rows of a join are told apart by the keys of both sides; not so those of a FULL JOIN, where a row of
    either side without a partner may have NULL for both.
    """
    if not joins_changes(inputs):
        return inputs[0].schema
    key: list[str] = []
    for given in inputs:
        if given.schema.key is None or not given.schema.changelog or given.kind is JoinKind.FULL:
            return Schema((), True, None)
        key += [column.of(given.alias).name for column in given.schema.own if column.name in given.schema.key]
    return Schema((), True, tuple(key))
