"""Window aggregates of several queries, computed from shared panes.

All queries have the same stream and keys. A pane is the interval between two neighbouring points where a
window of any query begins or ends. A *pattern* is the set of queries whose conditions a tuple satisfies. The
tuples of one pane, key and pattern are aggregated into one *entry* (`pane_state`), which has the partial
aggregates for all queries (`partial_aggregates`).

A view has the entries of one query, ordered by key and time. Each window is a span of neighbouring entries in
the view (`spans`). The result of a window is computed from the two ends of its span (`pane_answers`). The
time for a window therefore does not depend on the number of its tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.aggregates.columns import Windows
from slicemill.catalog.expressions import Expr, conjunction
from slicemill.columns.arrow_schema import to_arrow, with_system_columns
from slicemill.columns.keys import Keys, distinct_keys
from slicemill.columns.order import Numbering
from slicemill.errors import SlicemillError
from slicemill.functions.evaluate import compile_many
from slicemill.functions.values import ExpressionError
from slicemill.functions.vectors import fixed_width, numbers
from slicemill.kernels.arrays import Bools, Int32s, Int64s
from slicemill.kernels.kernel import kernel
from slicemill.metrics.due_times import trigger_arrivals
from slicemill.operators.call_values import Evaluate, WindowRows, align_results, column_arguments, evaluators
from slicemill.operators.filter_project import WORD_BITS, compile_masks
from slicemill.operators.step import StepContext
from slicemill.operators.window.pane_answers import (
    PaneAggregate,
    PaneView,
    by_key,
    pane_aggregate_of,
    view_of,
)
from slicemill.operators.window.pane_state import (
    MemberState,
    PaneState,
    add_partial,
    aggregate_panes,
    cells_of,
)
from slicemill.operators.window.partial_aggregates import Columns, PartialAggregate, ValueList
from slicemill.operators.window.spans import Spans, cut, spans_at, spans_of
from slicemill.operators.window.spec import (
    PaneCall,
    RelationAggregate,
    SharedWindows,
    WindowAggregate,
    WindowMember,
    edge_grids,
)
from slicemill.operators.window.step import Emission, WindowOutput
from slicemill.time import BEGINNING, END
from slicemill.types import Column, Schema


def pane_windows(shared: SharedWindows, context: StepContext) -> PaneWindows:
    """Return the execution strategy of all queries that share panes, with their restored state.

    A query that is added to the plan aggregates only tuples that arrive afterwards. State that only removed
    queries used is dropped.
    """
    state = context.state if isinstance(context.state, PaneState) else PaneState()
    newcomers = context.newcomers.keys()
    definitions = _as_kept(shared.members, state, context.successors)
    state.hand_over(definitions, context.successors)
    # A query that was dropped and created again with the same name and definition starts empty.
    state.adopt({name: known for name, known in definitions.items() if name not in newcomers})
    definitions |= {member.name: member for member in shared.members if member.name in newcomers}
    state.adopt(definitions)
    return PaneWindows(
        PaneInput(context.schemas[0], shared.keys),
        {name: _member(member, context) for name, member in definitions.items()},
        {member.name: conjunction(member.conditions) for member in shared.members},
        edge_grids(window for member in shared.members for window in member.windows),
        state,
        [
            # A user-defined aggregate may return several rows for a window.
            WindowOutput(
                with_system_columns(to_arrow(Schema(member.columns))),
                Numbering(context.seq_bits, fans=not member.partial),
            )
            for member in shared.members
        ],
    )


def _as_kept(
    members: Sequence[WindowMember], state: PaneState, successors: Mapping[str, str]
) -> dict[str, WindowMember]:
    """Return the definitions of the queries, adapted to the form in which their state is stored.

    For means of decimals, earlier versions stored the values of all tuples. This version stores sums.
    """
    found = {}
    for member in members:
        known = state.members.get(successors.get(member.name, member.name))
        kept = known.definition if known is not None else None
        by_value = isinstance(kept, WindowMember) and not kept.partial
        succeeds = member.name in successors or kept == replace(member, partial=False)
        found[member.name] = replace(member, partial=False) if by_value and succeeds else member
    return found


def _member(member: WindowMember, context: StepContext) -> Member:
    operator = member.operator
    if isinstance(operator, WindowAggregate):
        lengths = [length for length, _ in member.windows]
        aggregates = {
            call.columns[0].name: (length, _pane_aggregate(call))
            for call, length in zip(operator.calls, lengths, strict=True)
        }
        return OverWindows(member.windows[0][1], aggregates, member.columns)
    (length, slide), names = member.windows[0], tuple(item.name for item in operator.group_by)
    grows = operator.windows[0][1].grows
    if not member.partial:
        return _by_value(member, operator, names, context)
    read = {call.columns[0].name: _pane_aggregate(call) for call in member.calls_read}
    return GroupWindows(length, slide, names, read, member.columns, grows=grows)


def _by_value(
    member: WindowMember, operator: RelationAggregate, names: tuple[str, ...], context: StepContext
) -> ValueGroupWindows:
    (length, slide), catalog = member.windows[0], context.catalog
    arguments = (a for call in operator.calls for a in column_arguments(call, catalog))
    values = {argument: ValueList(argument) for argument in arguments}
    columns = {argument: value.name for argument, value in values.items()}
    evaluates = evaluators(operator.calls, columns, context)
    grows = operator.windows[0][1].grows
    return ValueGroupWindows(
        length, slide, names, {}, member.columns, tuple(values.values()), evaluates, grows=grows
    )


def _pane_aggregate(call: PaneCall) -> PaneAggregate:
    aggregate = pane_aggregate_of(call)
    assert aggregate is not None, "the plan says that panes can answer it"
    return aggregate


# Evaluation of the windows of all queries over shared panes.
#
# A micro-batch adds new tuples to panes, emits the windows that have ended, and evicts entries that no window
# will read. An error in one query does not stop other queries. Each entry stores the set of queries to which
# its tuples belong, so that a new query does not read tuples that arrived before its start.


class PaneWindows:
    """Window strategy of several queries that share panes.

    `conditions` select the tuples of each query; None selects all tuples. `edges` are the step and offset of
    the pane borders.
    """

    def __init__(
        self,
        given: PaneInput,
        members: Mapping[str, Member],
        conditions: Mapping[str, Expr | None],
        edges: tuple[tuple[int, int], ...],
        state: PaneState,
        outputs: Sequence[WindowOutput] = (),
    ) -> None:
        self.state = state
        self.outputs = outputs
        self._members = members
        self._edges = edges
        holds = {name: member.holds for name, member in members.items()}
        self._selection = TupleSelection(given, conditions, holds)
        self._partials: dict[str, PartialAggregate] = {}
        self._values: dict[str, PartialAggregate] = {}
        self._exprs: dict[str, list[Expr]] = {}  # arguments of the partial aggregates of each query
        for name, member in members.items():
            known = self._values if isinstance(member, ValueGroupWindows) else self._partials
            known.update((partial.name, partial) for partial in member.partials)
            self._exprs[name] = list(dict.fromkeys(partial.expr for partial in member.partials))

    def advance(self, rows: pa.Table, watermark: int) -> list[Emission]:
        if rows.num_rows:
            self._add(rows)
        ready = [name for name, due in self._dues() if due <= watermark]
        emitted = self._emit(ready, watermark) if ready else {}
        emissions: list[Emission] = []
        since: dict[str, int] = {}
        for name, member in self._members.items():
            state = self.state.members[name]
            if state.failure is not None:
                emissions.append(SlicemillError(state.failure))
                continue
            state.closed = max(state.closed, watermark)
            held = member.held(state)
            emissions.append((emitted.get(name), watermark if held is None else min(watermark, held)))
            since[name] = member.since(state)
        if emitted:
            self.state.release(since)
        return emissions

    def due(self) -> int | None:
        return min((due for _, due in self._dues()), default=None)

    def _dues(self) -> list[tuple[str, int]]:
        """Return the names of queries with open windows, each with the end of its next window."""
        dues = []
        for name in self._live():
            due = self._members[name].due(self.state.members[name])
            if due is not None:
                dues.append((name, due))
        return dues

    def _live(self) -> list[str]:
        """Return the names of the queries that have not failed."""
        return [name for name in self._members if self.state.members[name].failure is None]

    def _fail(self, failed: Mapping[str, SlicemillError]) -> None:
        for name, problem in failed.items():
            self.state.members[name].failure = str(problem)

    # -- input -----------------------------------------------------------------------------------------

    def _add(self, table: pa.Table) -> None:
        """Aggregate new tuples into the stored entries of their panes."""
        selected, failed = self._selection.select(table, self._live())
        self._fail(failed)
        rows = selected.table.num_rows
        if not rows:
            return
        state = self.state
        users: dict[Expr, list[str]] = {}
        for name in self._live():
            for expr in self._exprs[name]:
                users.setdefault(expr, []).append(name)
        columns, failed = self._selection.arguments(selected, users)
        self._fail(failed)
        live = self._live()
        indices = state.seen + np.arange(rows)
        state.seen += rows
        panes = cut(selected.table.column("_ts").to_numpy(), self._edges, state.newest)
        state.newest = int(panes[0][-1])
        distinct = distinct_keys(selected.keys, rows)
        numbers = state.keys.number(distinct, selected.keys).astype(np.int64)
        found, names = self._selection.patterns(selected, live)
        patterns = np.array([state.pattern(taking) for taking in names], np.int64)[found]
        self._note(panes, found, names)
        by_value = {name for name in live if isinstance(self._members[name], ValueGroupWindows)}
        if len(by_value) < len(live):
            cells = cells_of(distinct.codes, len(distinct.values), found, len(names))
            self._add_entries(selected.table, panes, cells, (numbers, patterns), columns, indices)
        if by_value:
            self._add_values(selected.table, panes, (numbers, patterns), columns, indices)
        for name in live:
            member = self._members[name]
            if isinstance(member, OverWindows):
                own = self._selection.takes(name, selected)
                member.take(state.members[name], selected.table.filter(pa.array(own)), numbers[own])

    def _add_entries(
        self,
        table: pa.Table,
        panes: tuple[Int64s, Int64s],
        cells: tuple[Int64s, int],
        numbers: tuple[Int64s, Int64s],
        columns: Mapping[Expr, pa.Array],
        indices: Int64s,
    ) -> None:
        """Aggregate rows to entries, and store the entries.

        An entry has the partial aggregates of one pane, key and pattern (set of queries). `numbers` has the
        key number and the pattern number of each row.
        """
        lifted = {}
        for name, partial in self._partials.items():
            if partial.expr in columns:
                lifted[name] = partial.lift(columns[partial.expr], indices)
        seqs = table.column("_seq").to_numpy()
        entries, first = aggregate_panes(panes, cells, seqs, lifted, self._partials)
        keys, patterns = numbers
        entries = {**entries, "key": keys[first], "pattern": patterns[first]}
        self.state.entries.append(entries, self._partials)

    def _add_values(
        self,
        table: pa.Table,
        panes: tuple[Int64s, Int64s],
        numbers: tuple[Int64s, Int64s],
        columns: Mapping[Expr, pa.Array],
        indices: Int64s,
    ) -> None:
        """Store an entry for each single tuple, for aggregates that read each value."""
        keys, patterns = numbers
        wanted = np.array(
            [any(isinstance(self._members.get(n), ValueGroupWindows) for n in p) for p in self.state.patterns]
        )
        rows = np.flatnonzero(wanted[patterns])
        if not len(rows):
            return
        made: dict[str, object] = {
            "start": np.repeat(panes[0], np.diff(panes[1]))[rows],
            "key": keys[rows],
            "pattern": patterns[rows],
            "seq": table.column("_seq").to_numpy()[rows],
            "rows": np.ones(len(rows), np.int64),
        }
        for name, partial in self._values.items():
            if partial.expr in columns:
                taken = columns[partial.expr].take(pa.array(rows))
                add_partial(made, name, partial.lift(taken, indices[rows]))
        self.state.values.append(made, self._values)

    def _note(self, panes: tuple[Int64s, Int64s], patterns: Int64s, names: Sequence[frozenset[str]]) -> None:
        """Record for each query the first pane and the last pane that contain tuples of the query."""
        starts, borders = panes
        for number, taking in enumerate(names):
            rows = np.flatnonzero(patterns == number) if len(names) > 1 else np.array([0, len(patterns) - 1])
            first, last = starts[np.searchsorted(borders, rows[[0, -1]], side="right") - 1].tolist()
            for name in taking:
                member = self.state.members[name]
                member.oldest = first if member.oldest is None else member.oldest
                member.newest = last if member.newest is None else max(member.newest, last)

    # -- output ----------------------------------------------------------------------------------------

    def _emit(self, ready: Sequence[str], until: int) -> dict[str, pa.Table]:
        """Return the output of some queries up to the time `until`.

        Queries that read the same entries (partial aggregates of panes) share a view of these entries.
        """
        alike: dict[tuple[bool, tuple[bool, ...]], list[str]] = {}
        for name in ready:
            by_value = isinstance(self._members[name], ValueGroupWindows)
            signature = tuple([name in pattern for pattern in self.state.patterns])
            alike.setdefault((by_value, signature), []).append(name)
        emitted: dict[str, pa.Table] = {}
        stored: dict[bool, Columns] = {}
        for (by_value, signature), names in alike.items():
            store = self.state.values if by_value else self.state.entries
            partials = self._values if by_value else self._partials
            if by_value not in stored:
                # Without group keys all tuples have key number 0, even if no key has been stored yet.
                stored[by_value] = by_key(store.all(partials), max(len(self.state.keys), 1))
            since = min([self._members[name].since(self.state.members[name]) for name in names])
            selected = np.array(signature, np.bool_)
            view = view_of(stored[by_value], selected, since, partials, store.single)
            for name in names:
                member, state = self._members[name], self.state.members[name]
                try:
                    emitted[name] = member.answer(view, self.state.keys, state, until)
                except SlicemillError as problem:
                    self._fail({name: problem})
        return emitted


# Evaluation of WHERE conditions, group keys and aggregate arguments, once for all queries.
#
# An error in an expression fails a query only if the tuple is in a window of the query.


@dataclass(frozen=True)
class PaneInput:
    """Input that all queries have in common: schema of the stream, and group keys."""

    schema: Schema
    keys: tuple[Expr, ...]


@dataclass(frozen=True)
class SelectedTuples:
    """Tuples that at least one query selects, with their group keys.

    `words` has one bit for each condition and tuple. The bit is set if the tuple satisfies the condition.
    """

    table: pa.Table
    words: NDArray[np.uint64]
    keys: list[pa.ChunkedArray] = field(default_factory=list)

    def only(self, rows: Bools) -> SelectedTuples:
        if rows.all():
            return self
        chosen = pa.array(rows)
        return SelectedTuples(
            self.table.filter(chosen), self.words[:, rows], [key.filter(chosen) for key in self.keys]
        )


class TupleSelection:
    """Evaluator of the WHERE conditions, group keys and aggregate arguments of all queries.

    `conditions` select the tuples of each query; None selects all tuples. `holds` has for each query the
    function that returns which timestamps are in a window. The parameter `live` of methods names the queries
    that have not failed.
    """

    def __init__(
        self,
        given: PaneInput,
        conditions: Mapping[str, Expr | None],
        holds: Mapping[str, Callable[[Int64s], Bools]],
    ) -> None:
        self._given = given
        self._holds = holds
        distinct = list(dict.fromkeys(c for c in conditions.values() if c is not None))
        self._index = {name: None if c is None else distinct.index(c) for name, c in conditions.items()}
        self._masks = compile_masks(distinct, given.schema)
        self._keys = compile_many(given.keys, given.schema)

    def select(
        self, table: pa.Table, live: Collection[str]
    ) -> tuple[SelectedTuples, dict[str, ExpressionError]]:
        """Return the tuples that satisfy the condition of at least one query, and the errors of queries.

        `failed` maps the names of queries whose expressions failed to the errors.
        """
        masks = self._masks(table)
        failed: dict[str, ExpressionError] = {}
        some_take_all = False
        for name in live:
            index = self._index[name]
            if index is None:
                some_take_all = True
            elif index in masks.errors:
                failed[name] = masks.errors[index]
        selected = SelectedTuples(table, masks.words)
        if not some_take_all:
            selected = selected.only(np.asarray(masks.words.any(axis=0)))
        keys = self._keys(selected.table)
        found = [key for key in keys if not isinstance(key, ExpressionError)]
        if len(found) < len(keys):
            rows = np.zeros(selected.table.num_rows, np.bool_)
            for name in (name for name in live if name not in failed):
                own = self._needs(name, selected)
                errors = [k for k in self._keys(selected.only(own).table) if isinstance(k, ExpressionError)]
                if errors:
                    failed[name] = errors[0]
                else:
                    rows |= own
            selected = selected.only(rows)
            found = [key for key in self._keys(selected.table) if not isinstance(key, ExpressionError)]
        return SelectedTuples(selected.table, selected.words, found), failed

    def takes(self, name: str, selected: SelectedTuples) -> Bools:
        index = self._index[name]
        if index is None:
            return np.ones(selected.table.num_rows, np.bool_)
        return np.asarray(selected.words[index // WORD_BITS] & np.uint64(1 << index % WORD_BITS) != 0)

    def _needs(self, name: str, selected: SelectedTuples) -> Bools:
        """Return the mask of selected tuples that are in at least one window of the query."""
        return self.takes(name, selected) & self._holds[name](selected.table.column("_ts").to_numpy())

    def patterns(
        self, selected: SelectedTuples, live: Collection[str]
    ) -> tuple[Int64s, list[frozenset[str]]]:
        """Return the pattern number of each tuple, and the queries of each pattern.

        A pattern is the set of queries whose conditions a tuple satisfies.
        """
        found = distinct_keys([pa.array(word) for word in selected.words], selected.table.num_rows)
        names = []
        for value in found.values:
            words = value if isinstance(value, tuple) else (value,)
            taking = []
            for name in live:
                index = self._index[name]
                if index is None or words[index // WORD_BITS] >> index % WORD_BITS & 1:
                    taking.append(name)
            names.append(frozenset(taking))
        return found.codes, names

    def arguments(
        self, selected: SelectedTuples, users: Mapping[Expr, Collection[str]]
    ) -> tuple[dict[Expr, pa.Array], dict[str, ExpressionError]]:
        """Evaluate aggregate arguments, and return their columns and the errors of failed queries.

        `users` has for each argument the queries that read it. Values that no query reads may be NULL.
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


# Windows of one query over panes: GROUP BY, and OVER with SLIDE.


_INSTANT = pa.timestamp("us", tz="UTC")
_SLOT, _KEY = "_slot", "_key"


def first_end_after(ts: int, slide: int) -> int:
    return min((ts // slide + 1) * slide, END)


@dataclass(frozen=True)
class GroupWindows:
    """`GROUP BY` over `[RANGE … SLIDE …]`: one row per non-empty window.

    If `grows` is set, windows are cumulative. A cumulative window begins at a multiple of `length`, and one
    window ends at each slide.
    """

    length: int
    slide: int
    key_names: tuple[str, ...]
    aggregates: Mapping[str, PaneAggregate]  # aggregate of each result column
    columns: tuple[Column, ...]
    grows: bool = field(default=False, kw_only=True)

    @property
    def partials(self) -> tuple[PartialAggregate, ...]:
        return tuple(partial for aggregate in self.aggregates.values() for partial in aggregate.partials)

    def begins(self, end: Any) -> Any:
        """Return the start times of the windows that end at the given times."""
        return (end - 1) // self.length * self.length if self.grows else end - self.length

    def holds(self, ts: Int64s) -> Bools:
        """Return for each timestamp whether it is in at least one window.

        If the slide exceeds the length, some timestamps are in no window.
        """
        return np.asarray((ts // self.slide + 1) * self.slide - ts <= self.length)

    def due(self, state: MemberState) -> int | None:
        """Return the end of the next non-empty window; None if no open window has tuples."""
        if state.oldest is None or state.newest is None:
            return None
        end = first_end_after(max(state.closed, state.oldest), self.slide)
        return end if state.newest >= self.begins(end) else None

    def since(self, state: MemberState) -> int:
        """Return the start of the earliest pane that open or later windows of the query read."""
        if state.closed == BEGINNING:
            return BEGINNING
        return int(self.begins(first_end_after(state.closed, self.slide)))

    held = due

    def answer(self, view: PaneView, keys: Keys, state: MemberState, until: int) -> pa.Table:
        spans = self._spans(view, state, until)
        found = {name: aggregate.over(view, spans) for name, aggregate in self.aggregates.items()}
        return self._table(view, keys, spans, found)

    def _spans(self, view: PaneView, state: MemberState, until: int) -> Spans:
        """Return the windows that have ended since the last output, as spans of entries in the view.

        The windows are ordered by end, then by the first tuple of the group.
        """
        spans = spans_of(view.begin, view.start, self.length, self.slide, state.closed, until, self.grows)
        seqs = view.columns["seq"][spans.lo]
        falls = (seqs[1:] < seqs[:-1]) & (spans.end[1:] == spans.end[:-1])
        return spans.take(np.lexsort((seqs, spans.end))) if falls.any() else spans

    def _table(self, view: PaneView, keys: Keys, spans: Spans, found: dict[str, pa.Array]) -> pa.Table:
        # Arrival time 0 marks rows that the watermark causes, not the arrival of a tuple.
        arrays: dict[str, Any] = {
            "_ts": spans.end,
            "_seq": view.columns["seq"][spans.lo],
            "_arr": np.zeros(len(spans), np.int64),
        }
        groups = dict(zip(self.key_names, view.output_keys(keys.values), strict=True))
        for column in self.columns:
            if column.name in groups:
                arrays[column.name] = _take_at(groups[column.name], spans.rank)
            elif column.name == "window_end":
                arrays[column.name] = fixed_width(spans.end, None, _INSTANT)
            elif column.name == "window_start":
                arrays[column.name] = fixed_width(self.begins(spans.end), None, _INSTANT)
            else:
                arrays[column.name] = found[column.name]
        return pa.table(arrays)


def _take_at(column: pa.Array, indices: Int32s) -> pa.Array:
    plain = pa.types.is_primitive(column.type) and not pa.types.is_boolean(column.type)
    if plain and not column.null_count:
        return fixed_width(numbers(column)[indices], None, column.type)
    return column.take(pa.array(indices))


@dataclass(frozen=True)
class ValueGroupWindows(GroupWindows):
    """GROUP BY over windows with aggregates that read all values of a window (`call_values`)."""

    values: tuple[ValueList, ...]  # argument values of all calls
    evaluates: tuple[Evaluate, ...]

    @property
    def partials(self) -> tuple[PartialAggregate, ...]:
        return self.values

    def answer(self, view: PaneView, keys: Keys, state: MemberState, until: int) -> pa.Table:
        spans = self._spans(view, state, until)
        # Kernels require windows with ascending row ranges, so windows are ordered by key.
        order = np.argsort(spans.rank, kind="stable")
        windows = Windows(spans.lo[order].astype(np.int64), spans.hi[order].astype(np.int64))
        partitions = np.repeat(np.arange(len(view.keys), dtype=np.int32), np.diff(view.begin))
        rows = WindowRows(partitions, view.index)
        found = align_results([evaluate(rows, windows) for evaluate in self.evaluates], len(order))
        indices = order[found.windows]
        back = np.argsort(indices, kind="stable")
        taken = {name: array.take(pa.array(back)) for name, array in found.columns.items()}
        return self._table(view, keys, spans.take(indices[back]), taken)


@dataclass(frozen=True)
class OverWindows:
    """`OVER (… RANGE … SLIDE …)`, evaluated at each multiple of the slide.

    A slot is the time between two multiples of the slide. At the end of a slot, the last tuple of each key in
    the slot is emitted with the results.
    """

    slide: int
    aggregates: Mapping[str, tuple[int, PaneAggregate]]  # window length and aggregate of each result column
    columns: tuple[Column, ...]

    @property
    def length(self) -> int:
        return max(length for length, _ in self.aggregates.values())

    @property
    def partials(self) -> tuple[PartialAggregate, ...]:
        return tuple(partial for _, aggregate in self.aggregates.values() for partial in aggregate.partials)

    @property
    def input_columns(self) -> list[str]:
        """Return the names of the output columns that are copied from the emitted tuple."""
        return [column.name for column in self.columns if column.name not in self.aggregates]

    def holds(self, ts: Int64s) -> Bools:
        """Return True for each timestamp, because every tuple is in a window and may be emitted."""
        return np.ones(len(ts), np.bool_)

    def due(self, state: MemberState) -> int | None:
        return None if state.waiting is None else int(pc.min(state.waiting.column(_SLOT)).as_py())

    def held(self, state: MemberState) -> int | None:
        """Return a lower bound of the timestamps of later output: the time of the oldest waiting tuple.

        A waiting tuple is the last tuple of its key in an open slot. Return None if no tuple waits.
        """
        return None if state.waiting is None else int(state.waiting.column("_ts")[0].as_py())

    def since(self, state: MemberState) -> int:
        if state.closed == BEGINNING:
            return BEGINNING
        return first_end_after(state.closed, self.slide) - self.length

    def take(self, state: MemberState, table: pa.Table, keys: Int64s) -> None:
        """Store new tuples until the end of their slot.

        A new tuple replaces the waiting tuple of its key and slot.
        """
        chosen = table.select(["_ts", "_seq", *self.input_columns])
        ends = (chosen.column("_ts").to_numpy() // self.slide + 1) * self.slide
        chosen = chosen.append_column(_SLOT, pa.array(ends)).append_column(_KEY, pa.array(keys))
        if state.waiting is not None:
            chosen = pa.concat_tables([state.waiting, chosen])
        slots, numbers = (chosen.column(name).to_numpy() for name in (_SLOT, _KEY))
        kept = _last_of_slots(slots, numbers, int(numbers.max(initial=0)) + 1)
        state.waiting = chosen.take(pa.array(kept)).combine_chunks() if len(kept) else None

    def answer(self, view: PaneView, _: Keys, state: MemberState, until: int) -> pa.Table:
        assert state.waiting is not None
        ready = state.waiting.column(_SLOT).to_numpy() <= until
        rows = state.waiting.filter(pa.array(ready))
        rest = state.waiting.filter(pa.array(~ready)).combine_chunks()
        state.waiting = rest if rest.num_rows else None
        ranks, ends = view.ranks(rows.column(_KEY).to_numpy()), rows.column(_SLOT).to_numpy()
        spans: dict[int, Spans] = {}
        arrays: dict[str, Any] = {name: rows.column(name) for name in ("_ts", "_seq", *self.input_columns)}
        arrays["_arr"] = trigger_arrivals(ends)
        for name, (length, aggregate) in self.aggregates.items():
            if length not in spans:
                spans[length] = spans_at(view.begin, view.start, length, ranks, ends)
            arrays[name] = aggregate.over(view, spans[length])
        names = ("_ts", "_seq", "_arr", *(column.name for column in self.columns))
        return pa.table({name: arrays[name] for name in names})


@kernel
def _last_of_slots(slots: Int64s, keys: Int64s, n_keys: int) -> Int64s:
    """Return the indexes of the last tuple of each key in each slot.

    Tuples are ordered by slot.
    """
    slot_seen = np.full(n_keys, -(2**63), np.int64)
    kept = np.empty(len(slots), np.int64)
    count = 0
    for i in range(len(slots) - 1, -1, -1):
        if slot_seen[keys[i]] != slots[i]:
            slot_seen[keys[i]] = slots[i]
            kept[count] = i
            count += 1
    return kept[:count][::-1].copy()


Member = GroupWindows | OverWindows
