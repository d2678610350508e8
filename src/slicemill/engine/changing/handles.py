"""Handles of running queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slicemill.engine.changing.joining import complete_from_of
from slicemill.engine.measuring import Measuring
from slicemill.engine.model_view import model_values_of
from slicemill.engine.query import Query
from slicemill.engine.state_view import StoredSlice, explained, slices_of
from slicemill.esl.types.catalog import QueryDefinition

if TYPE_CHECKING:
    from slicemill.engine.mill import Mill


def handle_of(mill: Mill, measuring: Measuring, query: QueryDefinition) -> Query:
    """Return the handle of a continuous query; its metrics start now."""
    name, counted = query.name, measuring.begin(query)

    def explain() -> str:
        words = explained(mill.graph, name, mill.home, mill.cells)
        return words + mill.backfills.in_words(name) + measuring.cells_in_words(name)

    def state() -> list[StoredSlice]:
        mill.checkpoint()
        return [held for held in slices_of(mill.home) if name in held.wanted]

    def values() -> list[dict[str, Any]]:
        mill.checkpoint()
        return model_values_of(mill.home, name)

    return Query(
        name,
        query.schema,
        mill.home.logs[name],
        mill.execute,
        explain,
        lambda: complete_from_of(name, mill.graph, mill.dispatcher.units.values()),
        state,
        values,
        lambda: measuring.now(counted, mill.graph),
        lambda: mill.lives.of(name),
        lambda: mill.versions("query", name),
        lambda: mill.backfills.progress_of(name),
    )
