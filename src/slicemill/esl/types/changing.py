"""Changelog inputs of a SELECT, and the key of their rows."""

from __future__ import annotations

from collections.abc import Sequence

from slicemill.esl.types.query import JoinKind, QueryInput
from slicemill.esl.types.schema import Schema


def reads_changes(inputs: Sequence[QueryInput]) -> bool:
    return any(given.schema.changelog for given in inputs)


def joins_changes(inputs: Sequence[QueryInput]) -> bool:
    """Return True for a join with at least one changelog."""
    return len(inputs) > 1 and reads_changes(inputs)


def schema_below(inputs: Sequence[QueryInput]) -> Schema:
    """Return the schema of the rows that a SELECT reads.

    Only the changelog flag and the key of a join are set. The key of a join consists of the keys of both
    sides. A FULL JOIN has no key, because rows without a match have NULLs in the key columns of one side.
    """
    if not joins_changes(inputs):
        return inputs[0].schema
    key: list[str] = []
    for given in inputs:
        if given.schema.key is None or not given.schema.changelog or given.kind is JoinKind.FULL:
            return Schema((), True, None)
        key += [column.of(given.alias).name for column in given.schema.own if column.name in given.schema.key]
    return Schema((), True, tuple(key))
