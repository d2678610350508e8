"""Evaluation of conditions, keys and arguments, once for all queries.

A query fails if one of these expressions fails on a tuple in its windows. Errors on tuples that a query
does not select are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.columns.keys import distinct_keys
from slicemill.esl.types.expression import Expr
from slicemill.esl.types.schema import Schema
from slicemill.operators.panes.edges import Ints
from slicemill.operators.select.kernels import WORD_BITS, compile_masks
from slicemill.scalar.columns import compile_many
from slicemill.scalar.values import ExpressionError

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class PaneInput:
    """Schema of the stream and group keys, common to all queries."""

    schema: Schema
    keys: tuple[Expr, ...]


@dataclass(frozen=True)
class Selected:
    """Tuples that some query selects, with condition bits and keys."""

    table: pa.Table
    words: NDArray[np.uint64]
    keys: list[pa.ChunkedArray] = field(default_factory=list)

    def only(self, rows: Mask) -> Selected:
        if rows.all():
            return self
        chosen = pa.array(rows)
        return Selected(
            self.table.filter(chosen), self.words[:, rows], [key.filter(chosen) for key in self.keys]
        )


class Selection:
    """Evaluator of the conditions, keys and arguments of all queries.

    `conditions` select the tuples of a query; None selects all. `holds` returns which timestamps lie in a
    window of the query. The parameter `live` of methods names the queries that have not failed.
    """

    def __init__(
        self,
        given: PaneInput,
        conditions: Mapping[str, Expr | None],
        holds: Mapping[str, Callable[[Ints], Mask]],
    ) -> None:
        self._given = given
        self._holds = holds
        distinct = list(dict.fromkeys(c for c in conditions.values() if c is not None))
        self._place = {name: None if c is None else distinct.index(c) for name, c in conditions.items()}
        self._masks = compile_masks(distinct, given.schema)
        self._keys = compile_many(given.keys, given.schema)

    def select(self, table: pa.Table, live: Collection[str]) -> tuple[Selected, dict[str, ExpressionError]]:
        """Return the tuples that live queries select, and the failed queries."""
        masks = self._masks(table)
        failed = {n: masks.errors[p] for n in live if (p := self._place[n]) is not None and p in masks.errors}
        selected = Selected(table, masks.words)
        if all(self._place[name] is not None for name in live if name not in failed):
            selected = selected.only(np.asarray(masks.words.any(axis=0)))
        keys = self._keys(selected.table)
        if any(isinstance(key, ExpressionError) for key in keys):
            rows = np.zeros(selected.table.num_rows, np.bool_)
            for name in (name for name in live if name not in failed):
                own = self._needs(name, selected)
                errors = [k for k in self._keys(selected.only(own).table) if isinstance(k, ExpressionError)]
                if errors:
                    failed[name] = errors[0]
                else:
                    rows |= own
            selected = selected.only(rows)
            keys = self._keys(selected.table)
        found = [key for key in keys if isinstance(key, pa.ChunkedArray)]
        return Selected(selected.table, selected.words, found), failed

    def takes(self, name: str, selected: Selected) -> Mask:
        place = self._place[name]
        if place is None:
            return np.ones(selected.table.num_rows, np.bool_)
        return np.asarray(selected.words[place // WORD_BITS] & np.uint64(1 << place % WORD_BITS) != 0)

    def _needs(self, name: str, selected: Selected) -> Mask:
        """Return a mask of tuples for which a query needs its arguments.

        The group keys count as arguments.
        """
        return self.takes(name, selected) & self._holds[name](selected.table.column("_ts").to_numpy())

    def patterns(self, selected: Selected, live: Collection[str]) -> tuple[Ints, list[frozenset[str]]]:
        """Return each tuple's pattern number, and each pattern's queries."""
        found = distinct_keys([pa.array(word) for word in selected.words], selected.table.num_rows)
        names = []
        for value in found.values:
            words = value if isinstance(value, tuple) else (value,)
            bits = sum(word << (WORD_BITS * i) for i, word in enumerate(words))
            taking = (n for n in live if (place := self._place[n]) is None or bits >> place & 1)
            names.append(frozenset(taking))
        return found.codes, names

    def arguments(
        self, selected: Selected, users: Mapping[Expr, Collection[str]]
    ) -> tuple[dict[Expr, pa.Array], dict[str, ExpressionError]]:
        """Return the column of each expression, and the failed queries.

        Rows that no query needs may be NULL.
        """
        found: dict[Expr, pa.Array] = {}
        failed: dict[str, ExpressionError] = {}
        evaluate = compile_many(list(users), self._given.schema)
        for expr, outcome in zip(users, evaluate(selected.table), strict=True):
            if isinstance(outcome, ExpressionError):
                rows = np.zeros(selected.table.num_rows, np.bool_)
                for name in users[expr]:
                    own = self._needs(name, selected)
                    (alone,) = compile_many([expr], self._given.schema)(selected.only(own).table)
                    if isinstance(alone, ExpressionError):
                        failed[name] = alone
                    else:
                        rows |= own
                (outcome,) = compile_many([expr], self._given.schema)(selected.only(rows).table)
                assert isinstance(outcome, pa.ChunkedArray), "it has a value on these rows"
                outcome = outcome.take(pa.array(np.maximum(np.cumsum(rows) - 1, 0), mask=~rows))
            found[expr] = outcome.combine_chunks()
        return found, failed
