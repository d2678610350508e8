"""Results of each query in a run, in output order.

The order is that of a single join of all streams. Results are ordered by their latest row, as (timestamp,
position in FROM, row number), then by the numbers of all rows, the first stream varying slowest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from slicemill.columns.order import fanned_out, ranked
from slicemill.columns.sequence_bits import MOST_BITS, fanned_bits, ranked_bits
from slicemill.esl.types.schema import TIMESTAMP, Schema, Type
from slicemill.operators.join.arrays import Places, Times
from slicemill.operators.join.block import DATA, SEQ, TIME
from slicemill.operators.join.spec import stream_ranks
from slicemill.operators.multijoin import sorting
from slicemill.operators.multijoin.partials import AddedRows, Partials, fetch, gathered_times
from slicemill.operators.multijoin.spec import MultiJoinMember
from slicemill.scalar.vectors import arrow_type
from slicemill.storage.ties import tie_name

_TS = "_ts"  # column name of a row's timestamp


@dataclass(frozen=True, slots=True)
class NewRows:
    """New rows of an input.

    `times` are in arrival order, `seqs` and `arrivals` in block order; `order` maps block positions to
    arrival order.
    """

    times: Times
    order: Places
    seqs: Times
    arrivals: Times


class JoinedResults:
    """Builds one query's results; `inputs` are its streams in FROM order."""

    def __init__(
        self,
        member: MultiJoinMember,
        inputs: Sequence[int],
        schemas: Sequence[Schema],
        seq_bits: int,
        *,
        tied: bool = False,
    ) -> None:
        self._member = member
        self._inputs = inputs
        self._schemas = schemas
        self._seq_bits = seq_bits
        self._tied = tied

    def made(self, found: Sequence[Partials], new: Mapping[int, NewRows]) -> pa.Table:
        """Return all results of the query in a run.

        Sources may be in any order.
        """
        rows = sum(map(len, found))
        if not rows:
            return self._empty()
        sources = [_source(one) for one in found]
        caused = [one.rows_of(source)[0].rows for one, source in zip(found, sources, strict=True)]
        numbers = np.ascontiguousarray(
            [np.concatenate([one.numbers(input_, SEQ) for one in found]) for input_ in self._inputs]
        )
        times = np.concatenate([one.times for one in found])
        places = np.concatenate(
            [np.full(len(one), self._inputs.index(s)) for one, s in zip(found, sources, strict=True)]
        )
        ranks, total = self._ranks(new)
        causes = np.concatenate([ranks[s][at] for s, at in zip(sources, caused, strict=True)])
        order = np.empty(rows, np.int32)
        sorting.order_by_cause(np.ascontiguousarray(causes), total, numbers, order)
        causing = numbers[places, np.arange(rows)][order]
        seqs = ranked(causing, places[order], self._seq_bits, self._rank_bits)
        arrivals = np.concatenate(
            [gathered_times(new[s].arrivals, at) for s, at in zip(sources, caused, strict=True)]
        )
        columns = {"_ts": times[order], "_seq": seqs, "_arr": arrivals[order]}
        place = np.empty(rows, np.int32)
        place[order] = np.arange(rows, dtype=np.int32)
        begins = np.cumsum([0, *map(len, found)])
        for name, side, column in self._member.columns:
            added = [
                AddedRows(part.block, part.rows, place[begin + part.places])
                for one, begin in zip(found, begins, strict=False)
                for part in one.rows_of(self._inputs[side])
            ]
            own = TIME if column == _TS else DATA + column
            columns[name] = fetch(added, rows, own, arrow_type(self._type_of(side, column)))
        bits = ranked_bits(self._seq_bits, self._rank_bits)
        if not self._tied:
            return fanned_out(pa.table(columns), bits)
        # With too many bits, ranking drops low bits of the row number, so the full number is the first tie.
        lost = self._seq_bits + self._rank_bits > MOST_BITS
        ties = [causing] if lost else []
        for number, tie in enumerate([*ties, *numbers[:, order]]):
            columns[tie_name(number, fanned_bits(bits) - bits)] = tie
        return pa.table(columns)

    @property
    def _rank_bits(self) -> int:
        return stream_ranks(len(self._inputs))

    def _ranks(self, new: Mapping[int, NewRows]) -> tuple[dict[int, Places], int]:
        """Return the rank of each new row by (timestamp, stream, number)."""
        found: dict[int, Places] = {}
        for place, input_ in enumerate(self._inputs):
            own = new[input_].times
            ranks = np.arange(len(own))
            for number, other in enumerate(self._inputs):
                if number != place:
                    ranks += np.searchsorted(
                        new[other].times, own, side="left" if number > place else "right"
                    )
            found[input_] = ranks[new[input_].order].astype(np.int32)
        return found, sum(len(new[input_].times) for input_ in self._inputs)

    def _type_of(self, side: int, column: str) -> Type:
        schema = self._schemas[self._inputs[side]]
        return TIMESTAMP if column == _TS else schema.columns[schema.index(column)].type

    def _empty(self) -> pa.Table:
        types = dict.fromkeys(("_ts", "_seq", "_arr"), pa.int64())
        for name, side, column in self._member.columns:
            types[name] = arrow_type(self._type_of(side, column))
        return pa.table({name: pa.array([], kind) for name, kind in types.items()})


def _source(found: Partials) -> int:
    while found.before is not None:
        found = found.before
    return found.input
