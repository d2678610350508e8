"""Code generator for the loop of an aggregate call, by its evaluation strategy (M37).

An aggregate has a variant for unbounded streams (CREATE AGGREGATE), a variant for windows (CREATE WINDOW
AGGREGATE), or both. A slot is one interval of SLIDE, at whose end a result is emitted. A pane is an interval
between two window borders. A record has the state of one partition. In the generated loop, `i` is the index
of a tuple, `p` its partition, and `n` the number of output rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from slicemill.aggregates.definition import Strategy
from slicemill.aggregates.frames import WindowFrame
from slicemill.aggregates.udf.compiler.layout import (
    MANY,
    PYTHON,
    Code,
    NoCompiledForm,
    RecordColumns,
    Writer,
    dtype_of,
    read,
)
from slicemill.aggregates.udf.compiler.python_classes import ClassCode
from slicemill.aggregates.udf.compiler.version import (
    AggregateCode,
    ArgumentCodes,
    JointCode,
    ModuleFacts,
    StatementCode,
    Version,
    WindowPool,
    deletes_from_window,
)
from slicemill.catalog.aggregates import RETURN, AggregateDefinition, BodyState, changes_in
from slicemill.extension import load
from slicemill.types import Type


class CallCode:
    """Code generator for the routines `run` and `finish` of an aggregate call."""

    def __init__(self, loop: TupleLoop) -> None:
        self.loop = loop
        self.out = loop.out
        self.window: WindowCode | None = None

    def write(self) -> list[str]:
        """Return the code lines of the routine `run`, which processes a batch of tuples.

        `generate` calls this method repeatedly, until no new facts about NULLs and used arguments are added.
        """
        writers: dict[Strategy | None, Callable[[], Callable[[], None]]] = {
            None: self._group,
            Strategy.UNBOUNDED: self._unbounded,
            Strategy.TUMBLE: self._tumble,
            Strategy.PANES: self._panes,
            Strategy.FINITE: self._finite,
            Strategy.SLIDING: self._finite,
            Strategy.ACTIVE: self._active,
        }
        write = writers[self.loop.strategy]()
        self._bounds()
        with self.out.block("HEADER"):
            self.out.line("n = 0")
            if self.loop.timed:
                with self.out.block("for i in range(len(codes) + 1):"):
                    self.out.line("now = ts[i] if i < len(codes) else complete")
                    write()
            elif self.window is not None and self.window.pool.ring:
                self._until_full(write)
            else:
                with self.out.block("for i in range(len(codes)):"):
                    write()
            self.out.line("return 0, n, KEPT")
        return self.out.lines

    def _until_full(self, write: Callable[[], None]) -> None:
        """Write a loop that stops when the pool of window tuples is full, and continues in a larger pool.

        So the arrays are not replaced while the inner loop runs. The tuple for which there was no room is
        processed again. Its first attempt has only expired other tuples.
        """
        out = self.out
        out.line("full = 0")
        with out.block("while full >= 0:"):
            out.line("start, full = full, -1")
            with out.block("for i in range(start, len(codes)):"):
                write()
            with out.block("if full >= 0:"):
                out.line("p = codes[full]")
                self.loop.k("window_begin")
                heads = self.loop.heads("window")
                out.line(f"window = ops.ring_room(window, window_top, {heads}, p, preceding + 1)")

    def write_finish(self) -> list[str]:
        """Return the code lines of the routine `finish`, which runs TERMINATE for the arguments groups."""
        self.loop.number = "p"
        made = self.loop.aggregate(self._base(), "s", "p")
        self._bounds()
        with self.out.block("HEADER"):
            self.out.line("n = 0")
            with self.out.block("for i in range(len(codes)):"):
                self.out.line("p = codes[i]")
                self.loop.records("p")
                self.loop.terminate(made, self.loop.k("started"))
            self.out.line("return 0, n, KEPT")
        return self.out.lines

    def _base(self) -> AggregateDefinition:
        assert self.loop.base is not None, "the strategy needs a variant for unbounded streams"
        return self.loop.base

    def _bounds(self) -> None:
        """Determine the maximum number of output rows per tuple or slide interval, if it is known."""
        bounds = [
            made.bound_of(state)
            for made in self.loop.codes.values()
            for state in (BodyState.INITIALIZE, BodyState.ITERATE, BodyState.EXPIRE, BodyState.TERMINATE)
        ]
        known = [bound for bound in bounds if bound is not None]
        self.loop.grows = len(known) < len(bounds)
        self.loop.bound = sum(known)

    def _input(self) -> ArgumentCodes:
        """Write code that loads the current tuple's partition. Return code generators for its arguments."""
        self.out.line("p = codes[i]")
        self.loop.records("p")
        arguments = []
        for index, type_ in enumerate(self.loop.types):
            text = f"in_{index}[i]"
            null = f"in_{index}_null[i]" if self.loop.shared.nullable else "False"
            arguments.append(partial(Code, f"np.int64({text})" if _is_whole(type_) else text, null))
        return arguments

    def _group(self) -> Callable[[], None]:
        made = self.loop.aggregate(self._base(), "s", "p")

        def write() -> None:
            arguments = self._input()
            with self.out.block(f"if not {self.loop.k('started')}:"):
                self.out.line(f"{self.loop.k('first')} = first + i")
            made.version.bind(arguments, self.loop.types)
            self.loop.step(made, self.loop.k("started"))

        self.loop.one_each = made.answers_once

        return write

    def _unbounded(self) -> Callable[[], None]:
        made = self.loop.aggregate(self._base(), "s", "p")

        def write() -> None:
            made.version.bind(self._input(), self.loop.types)
            self.loop.step(made, self.loop.k("started"))
            self.loop.terminate(made, self.loop.k("started"))

        return write

    @property
    def _position(self) -> str:
        assert self.loop.frame is not None
        return self.loop.k("arrivals") if self.loop.frame.unit == "ROWS" else "ts[i]"

    def _slot_end(self, position: str) -> str:
        return f"({position} // slide + 1) * slide"

    def _lower(self, position: str, of: str = "") -> str:
        """Return a code expression for the first position in the window of a tuple at `position`.

        With `of` = "panes_", positions are numbers of panes.
        """
        assert self.loop.frame is not None
        if self.loop.frame.unit == "RANGE" and self.loop.frame.slide is not None:
            return f"({position} // {of}slide + 1) * {of}slide - {of}preceding"
        return f"{position} - {of}preceding"

    def _yields(self, more: int = 0) -> str:
        """Return a code expression that is true if a tuple is the last of its slide interval (ROWS windows).

        The tuple is the current tuple, or the tuple that arrives `more` tuples later.
        """
        arrivals = self.loop.k("arrivals")
        return f"({arrivals} + {more}) % slide == 0" if more else f"{arrivals} % slide == 0"

    def _finite(self) -> Callable[[], None]:
        assert self.loop.frame is not None
        frame = self.loop.frame
        window = self.window = WindowCode(self.loop, self.loop.types, "b")
        made = self.loop.codes.get("s")
        self.loop.one_each = frame.slide is None and made is not None and made.answers_once
        # Calls that share state can compute their results late, until the next tuple arrives.
        joint = made if isinstance(made, JointCode) and frame.slide is not None else None

        def write() -> None:
            if self.loop.timed:
                self._close_slots(self.loop.put_latest if joint is None else joint.answer)
            arguments = self._input()
            if frame.slide is not None:
                self.out.line("before = n")
            numbered = frame.unit == "ROWS" and not window.counted
            if numbered:
                self.out.line(f"position = {self.loop.k('arrivals')}")
                self.out.line(f"{self.loop.k('arrivals')} += 1")
            position = "position" if frame.unit == "ROWS" else "ts[i]"
            if joint is not None:
                joint.result_test = "False" if self.loop.timed else self._yields(0 if numbered else 1)
            window.arrive(position, self._lower(position), arguments)
            if self.loop.timed:
                if joint is None:
                    self.loop.keep_latest("before")
                self._open_slot()
            elif frame.slide is not None:
                if not numbered:
                    self.out.line(f"{self.loop.k('arrivals')} += 1")
                with self.out.block(f"if not {self._yields()}:"):
                    self.out.line("n = before")

        return write

    def _tumble(self) -> Callable[[], None]:
        made = self.loop.aggregate(self._base(), "s", "p")
        keeps = made.returns_at_steps()

        def close() -> None:
            if keeps:
                self.loop.put_latest()
            self.loop.terminate(made, self.loop.k("started"))

        def write() -> None:
            out = self.out
            if self.loop.timed:
                self._close_slots(close)
            arguments = self._input()
            out.line("before = n")
            out.line(f"position = {self._position}")
            out.line(f"end = {self._slot_end('position')}")
            with out.block(f"if {self.loop.k('arrivals')} == 0 or end != {self.loop.k('end')}:"):
                out.line("k.end = end")
                out.line(f"{self.loop.k('started')} = False")
                if keeps and self.loop.timed:
                    out.line(f"{self.loop.k('latest_rows')} = 0")
                made.reset()
            out.line("k.arrivals += 1")
            with out.block("if position >= end - length:"):
                made.version.bind(arguments, self.loop.types)
                self.loop.step(made, self.loop.k("started"))
                if self.loop.timed and keeps:
                    self.loop.keep_latest("before")
            if self.loop.timed:
                self._open_slot()
                return
            with out.block(f"if {self._yields()}:"):
                self.loop.terminate(made, self.loop.k("started"))
            with out.block("else:"):
                out.line("n = before")

        return write

    def _panes(self) -> Callable[[], None]:
        assert self.loop.frame is not None
        frame = self.loop.frame
        made = self.loop.aggregate(self._base(), "b", "p")
        window = self.window = WindowCode(self.loop, self.loop.returns, "c")
        keeps = made.returns_at_steps()

        def close(answers: bool) -> None:
            """Write code that ends a pane, and passes the pane's values to the aggregate over the window.

            The last value of the pane determines the results.
            """
            out = self.out
            out.line("pane = n")
            if keeps:
                self.loop.put_latest()
            self.loop.terminate(made, self.loop.k("pane_started"))
            out.line(f"{self.loop.k('pane_open')} = False")
            out.line("answer = n")
            with out.block("for v in range(pane, answer):"):
                out.line("n = answer")
                arguments: ArgumentCodes = [
                    partial(self._returned, index) for index in range(len(self.loop.returns))
                ]
                out.line(f"position = {self.loop.k('pane')}")
                window.arrive("position", self._lower("position", "panes_"), arguments)
            if not answers:
                out.line("n = pane")
                return
            with out.block("for v in range(answer, n):"):
                for name in self.loop.outputs:
                    out.line(f"{name}[pane + v - answer] = {name}[v]")
            out.line("n = pane + n - answer")

        def write() -> None:
            out = self.out
            if self.loop.timed:
                self._close_slots(partial(close, True))
            arguments = self._input()
            out.line(f"number = {self._position} // pane_length")
            with out.block(f"if {self.loop.k('pane_open')} and number != {self.loop.k('pane')}:"):
                close(False)
            out.line("k.pane = number")
            with out.block("if not k.pane_open:"):
                out.line("k.pane_open = True")
                out.line(f"{self.loop.k('pane_started')} = False")
                made.reset()
            if frame.unit == "ROWS":
                out.line(f"{self.loop.k('arrivals')} += 1")
            out.line("before = n")
            made.version.bind(arguments, self.loop.types)
            self.loop.step(made, self.loop.k("pane_started"))
            if keeps:
                self.loop.keep_latest("before")
            if self.loop.timed:
                self._open_slot()
                return
            with out.block(f"if {self._yields()}:"):
                close(True)

        return write

    def _returned(self, index: int) -> Code:
        return Code(f"out_{index}[v]", self.loop.shared.null(f"return {index}", f"out_{index}_null[v]"))

    def _close_slots(self, answer: Callable[[], None]) -> None:
        """Write code that ends a slide interval when the watermark has passed its end.

        The code emits the result of each partition that has a tuple in the interval.
        """
        out = self.out
        with out.block("if slot[0] > 0 and now >= slot[1]:"):
            with out.block("for o in range(slot[0]):"):
                out.line("p = opened[o]")
                self.loop.records("p")
                out.line(f"{self.loop.k('is_open')} = False")
                self.loop.number, self.loop.at = self.loop.k("open_number"), self.loop.k("open_ts")
                answer()
                self.loop.number, self.loop.at = "first + i", "ts[i]"
            out.line("slot[0] = 0")
        with out.block("if i == len(codes):"):
            out.line("break")

    def _open_slot(self) -> None:
        out = self.out
        out.line(f"slot[1] = {self._slot_end('ts[i]')}")
        with out.block(f"if not {self.loop.k('is_open')}:"):
            out.line("k.is_open = True")
            out.line("opened[slot[0]] = p")
            out.line("slot[0] += 1")
        out.line(f"{self.loop.k('open_number')} = first + i")
        out.line(f"{self.loop.k('open_ts')} = ts[i]")

    def _active(self) -> Callable[[], None]:
        """Generate a loop for ACTIVE EXPIRATION, which also emits results when tuples expire (M36).

        Expiries are queued in arrays named `negative_…`, and processed between arrivals, oldest first. At
        equal times, arrivals precede expiries (X14).
        """
        window = self.window = WindowCode(self.loop, self.loop.types, "b")

        def write() -> None:
            out = self.out
            if window.needed:
                with out.block("while slot[0] < slot[1] and negative_ts[slot[0]] < now:"):
                    out.line("oldest = negative_number[slot[0]]")
                    out.line("at = negative_ts[slot[0]]")
                    out.line("p = negative_p[slot[0]]")
                    out.line("slot[0] += 1")
                    self.loop.records("p")
                    self.loop.k("window_at"), self.loop.k("window_rows")
                    with out.block("if k.window_rows > 0 and window[k.window_at].pos == oldest:"):
                        self.loop.number, self.loop.at, self.loop.expired = "oldest", "at", "True"
                        window.leave()
                        self.loop.number, self.loop.at, self.loop.expired = "first + i", "ts[i]", "False"
            with out.block("if i == len(codes):"):
                out.line("break")
            arguments = self._input()
            if window.needed:
                out.line("negative_number[slot[1]] = first + i")
                out.line("negative_ts[slot[1]] = ts[i] + preceding")
                out.line("negative_p[slot[1]] = p")
                out.line("slot[1] += 1")
            window.arrive("first + i", "", arguments)

        return write


def _is_whole(type_: Type) -> bool:
    return dtype_of(type_, PYTHON) is np.int64


# Common parts of the generated loops: records, output rows, calls of the aggregate's routines
#
# Each partition has the following records in the generated code. `k` has the state of the loop itself:
# whether a tuple has arrived, the block of the window's tuples, the current pane or slot. `s` has the state
# of the aggregate that computes the results, and includes the fields of `k`. `b` has the state of an
# aggregate that computes panes, or that is evaluated over the whole window for each result. `c` has the state
# of an aggregate that is evaluated over all panes of a window for each result.


_FLAGS = ("started", "pane_open", "pane_started", "is_open")


class TupleLoop:
    """Code generator for the parts that the loops of all evaluation strategies have in common."""

    def __init__(
        self,
        versions: tuple[AggregateDefinition | None, AggregateDefinition | None],
        frame: WindowFrame | None,
        strategy: Strategy | None,
        types: tuple[Type, ...],
        shared: ModuleFacts,
        user_defined: Callable[[AggregateDefinition], frozenset[str]],
    ) -> None:
        self.base, self.version = versions
        self.frame, self.strategy, self.types = frame, strategy, types
        self.shared = shared
        self._names_defined_by_user = user_defined
        self.out = Writer()
        self.fields: dict[str, str] = {}  # types of the fields in the loop's record `k`, by name
        self.codes: dict[str, AggregateCode] = {}
        returns = self.base or self.version
        assert returns is not None
        self.returns = tuple(column.type for column in returns.returns)
        self.number, self.at = "first + i", "ts[i]"
        self.expired = "False"
        self.grows = False
        self.one_each = False  # True if each tuple returns exactly one row
        self.bound = 0

    # -- records, output arrays and routines of the aggregate ----------------------------------------------

    def k(self, name: str) -> str:
        # 32 bits suffice for numbers of window tuples, but not for pool indexes and times.
        self.fields[name] = "?" if name in _FLAGS else "i4" if name.endswith(("_rows", "_room")) else "i8"
        return f"k.{name}"

    def aggregate(
        self, definition: AggregateDefinition, record: str, index: str, window: WindowPool | None = None
    ) -> AggregateCode:
        version = Version(
            definition,
            self.shared,
            self.out,
            record,
            index,
            window,
            self._names_defined_by_user(definition),
        )
        version.give = self.emit
        version.leave = lambda site: f"{site}, n, KEPT"
        made = _code_of(version)
        self.codes[record] = made
        return made

    @property
    def timed(self) -> bool:
        """Return True if results are emitted when the watermark passes a time."""
        return self.frame is not None and self.frame.waits_for_time

    @property
    def pools(self) -> list[str]:
        of_tables = [made.version.array(table) for made in self.codes.values() for table in made.pools]
        of_loop = [name for name in ("window", "latest") if f"{name}_at" in self.fields]
        return [*of_loop, *of_tables]

    @property
    def outputs(self) -> list[str]:
        names = [] if self.one_each else ["out_number"]
        names += ["out_ts", "out_expired"] if self.timed else []
        for index in range(len(self.returns)):
            names.append(f"out_{index}")
            if self.shared.null(f"return {index}", "maybe") != "False":
                names.append(f"out_{index}_null")
        return names

    @property
    def returned_arrays(self) -> list[str]:
        return [*self.pools, *self.outputs]

    def emit(self, codes: list[Code]) -> None:
        """Write code that appends a row to the output arrays."""
        out = self.out
        for index, code in enumerate(codes):
            self.shared.may_be_null(f"return {index}", code)
        if self.grows:
            with out.block("if n == len(out_0):"):
                for name in self.outputs:
                    out.line(f"{name} = ops.longer({name})")
        if not self.one_each:
            out.line(f"out_number[n] = {self.number}")
        if self.timed:
            out.line(f"out_ts[n] = {self.at}")
            out.line(f"out_expired[n] = {self.expired}")
        for index, code in enumerate(codes):
            out.line(f"out_{index}[n] = {code.value}")
            if f"out_{index}_null" in self.outputs:
                out.line(f"out_{index}_null[n] = {code.null}")
        out.line("n += 1")

    def step(self, made: AggregateCode, started: str) -> None:
        if made.one_body:
            self.out.line(f"{started} = True")
            made.statements(BodyState.ITERATE)
            return
        with self.out.block(f"if {started}:"):
            made.statements(BodyState.ITERATE)
        with self.out.block("else:"):
            self.out.line(f"{started} = True")
            made.statements(BodyState.INITIALIZE)

    def terminate(self, made: AggregateCode, started: str) -> None:
        """Write the code of the routine TERMINATE, which must leave the state unchanged.

        Tables of at most one row are saved and restored. Other tables must not change.
        """
        statements = changes_in(made.version.definition.bodies.get(BodyState.TERMINATE, ()))
        changed = {statement.table.lower() for statement in statements if statement.table != RETURN}
        if any(made.version.bounds[table] >= MANY for table in changed):
            raise NoCompiledForm("TERMINATE changes a table of many rows")
        made.bind_last(started)
        fields = [name for table in sorted(changed) for name in made.version.fields(table)]
        saved = [self.out.fresh("saved") for _ in fields]
        for name, index in zip(saved, fields, strict=True):
            self.out.line(f"{name} = {index}")
        made.statements(BodyState.TERMINATE, bound=made.version.keeps_arguments)
        for name, index in zip(saved, fields, strict=True):
            self.out.line(f"{index} = {name}")

    def heads(self, pool: str) -> str:
        return ", ".join(f'{self.loop}["{pool}_{part}"]' for part in ("begin", "at", "rows", "room"))

    def more_room(self, pool: str) -> None:
        begin, at, rows, room = (self.k(f"{pool}_{part}") for part in ("begin", "at", "rows", "room"))
        with self.out.block(f"if {at} + {rows} == {begin} + {room}:"):
            self.out.line(f"{pool} = ops.more_room({pool}, {pool}_top, {self.heads(pool)}, p)")

    # -- rows returned for the latest tuple, stored until its slide interval or pane ends ------------------

    def keep_latest(self, before: str) -> None:
        out = self.out
        out.line(f"{self.k('latest_rows')} = 0")
        with out.block(f"for j in range({before}, n):"):
            self.more_room("latest")
            for index in range(len(self.returns)):
                row = f"latest[k.latest_at + k.latest_rows].r{index}"
                out.line(f"{row} = out_{index}[j]")
                if f"out_{index}_null" in self.outputs:
                    out.line(f"{row}_null = out_{index}_null[j]")
            out.line("k.latest_rows += 1")
        out.line(f"n = {before}")

    def put_latest(self) -> None:
        with self.out.block(f"for j in range({self.k('latest_rows')}):"):
            self.emit(
                [
                    Code(
                        f"latest[k.latest_at + j].r{index}",
                        self.shared.null(f"return {index}", f"latest[k.latest_at + j].r{index}_null"),
                    )
                    for index in range(len(self.returns))
                ]
            )

    @property
    def loop(self) -> str:
        """Return the name of the array whose records have the state of the loop (fields of `k`).

        It is the array of the aggregate that computes the results, if this aggregate has a record per
        partition.
        """
        return "S" if "s" in self.codes else "K"

    def records(self, p: str) -> None:
        if self.loop == "K":
            self.out.line(f"k = K[{p}]")
        for record, made in self.codes.items():
            if made.version.index == "p":
                self.out.line(f"{record} = {record.upper()}[{p}]")
        if self.loop == "S":
            self.out.line("k = s")

    def latest_columns(self) -> RecordColumns:
        types = {f"r{index}": type_ for index, type_ in enumerate(self.returns)}
        flagged = (index for index in range(len(types)) if f"return {index} may be NULL" in self.shared.facts)
        return RecordColumns(types, frozenset(f"r{index}" for index in flagged))


def _code_of(version: Version) -> AggregateCode:
    provider = version.definition.provider
    if provider is not None:
        if provider.code is None:
            raise NoCompiledForm(f"{version.definition.name} cannot be compiled")
        made: AggregateCode = load(provider.code)(version)
        return made
    return StatementCode(version) if version.definition.external is None else ClassCode(version)


# Windows in generated loops: arrival and expiry of tuples (M32, M33)


class WindowCode:
    """Code generator for an aggregate over a window.

    `pool` has the window's tuples. `windowed` generates code for the aggregate's variant for windows. If only
    a variant for unbounded streams is declared, `base` generates code that evaluates it over the whole window
    for each result.
    """

    def __init__(self, loop: TupleLoop, types: tuple[Type, ...], derived: str) -> None:
        self.loop = loop
        self.out = loop.out
        self.pool = WindowPool(types)
        self.windowed: AggregateCode | None = None
        self.base: AggregateCode | None = None
        if loop.version is not None:
            self.windowed = loop.aggregate(loop.version, "s", "p", self.pool)
            self.pool.ring = self.counted and "window is searched" not in loop.shared.facts
        else:
            assert loop.base is not None
            self.base = loop.aggregate(loop.base, derived, "0")

    def arrive(self, position: str, lower: str, arguments: ArgumentCodes) -> None:
        """Write code for an arriving tuple, which first expires the tuples at positions below `lower` (M32).

        `lower` is a code expression, empty if no tuple expires by position.
        """
        if self.windowed is not None:
            self._own_arrival(self.windowed, position, lower, arguments)
        else:
            self._recompute_arrival(position, lower, arguments)

    def leave(self) -> None:
        """Write code that expires the oldest tuple of the window and emits the results of its expiry."""
        if self.windowed is not None:
            self._expire(self.windowed)
            return
        with self.out.block("if k.window_rows > 1:"):
            self._recompute("1")
        self._remove_oldest()

    @property
    def needed(self) -> bool:
        """Return True if the generated code must store the window's tuples."""
        keeps = any(fact.startswith("window keeps") for fact in self.loop.shared.facts)
        return keeps or self.windowed is None or self.windowed.needs_window()

    @property
    def counted(self) -> bool:
        """Return True if the number of tuples in the window alone determines when a tuple expires.

        Positions are then not stored. If the aggregate deletes tuples, expiry depends on arrival numbers.
        """
        definition = self.loop.version
        bodies = [] if definition is None else list(definition.bodies.values())
        deletes = any(deletes_from_window(body) for body in bodies)
        frame = self.loop.frame
        rows = frame is not None and frame.unit == "ROWS"
        return rows and self.loop.strategy is not Strategy.PANES and not deletes

    def _window_column(self, index: int, row: str) -> Code:
        self.loop.shared.facts.add(f"window keeps {index}")
        text = f"{self.pool.row(row)}.a{index}"
        value = read(text, self.pool.types[index], self.loop.shared.form)
        return Code(value, self.loop.shared.null(f"window {index}", f"{text}_null"))

    def _window_row(self, row: str) -> ArgumentCodes:
        return [partial(self._window_column, index, row) for index in range(len(self.pool.types))]

    def _insert(self, position: str, arguments: ArgumentCodes) -> None:
        if self.pool.ring:
            new = "window[np.uint64(k.window_begin + place)]"
            with self.out.block(f"if {self.loop.k('window_rows')} == {self.loop.k('window_room')}:"):
                self.out.line("full = i")
                self.out.line("break")
            self.out.line("place = k.window_at + k.window_rows")
            with self.out.block("if place >= k.window_room:"):
                self.out.line("place -= k.window_room")
        else:
            new = self.pool.row("k.window_rows")
            self.loop.more_room("window")
        if not self.counted:
            self.out.line(f"{new}.pos = {position}")
        for index, code in enumerate(arguments):
            if f"window keeps {index}" in self.loop.shared.facts:
                value = code()
                self.loop.shared.may_be_null(f"window {index}", value)
                self.out.line(f"{new}.a{index} = {value.value}")
                if self.loop.shared.null(f"window {index}", "maybe") != "False":
                    self.out.line(f"{new}.a{index}_null = {value.null}")
        self.out.line("k.window_rows += 1")

    def _remove_oldest(self) -> None:
        self.out.line(f"{self.loop.k('window_at')} += 1")
        if self.pool.ring:
            with self.out.block(f"if k.window_at == {self.loop.k('window_room')}:"):
                self.out.line("k.window_at = 0")
        self.out.line(f"{self.loop.k('window_rows')} -= 1")

    def _expire(self, made: AggregateCode) -> None:
        """Write code that runs EXPIRE for the oldest tuple, and then removes the tuple from the window.

        The removal is skipped if EXPIRE has already deleted the tuple.
        """
        statements = made.version.definition.bodies.get(BodyState.EXPIRE, ())
        definition = made.version.definition
        if statements or definition.external is not None or definition.formulas:
            made.version.bind(self._window_row("0"), self.pool.types)
            made.statements(BodyState.EXPIRE)
        if deletes_from_window(statements):
            with self.out.block("if k.window_rows > 0 and window[k.window_at].pos == oldest:"):
                self._remove_oldest()
        else:
            self._remove_oldest()

    def _own_arrival(self, made: AggregateCode, position: str, lower: str, arguments: ArgumentCodes) -> None:
        if self.needed:
            if lower:
                with self._expired(lower):
                    give, made.version.give = made.version.give, _nothing
                    self._expire(made)
                    made.version.give = give
            self._insert(position, arguments)
        made.version.bind(arguments, self.pool.types)
        self.loop.step(made, self.loop.k("started"))

    @contextmanager
    def _expired(self, lower: str) -> Iterator[None]:
        """Write a loop over the window's tuples at positions below `lower`, oldest first."""
        if self.counted:
            with self.out.block(f"while {self.loop.k('window_rows')} > preceding:"):
                yield
            return
        self.out.line(f"lower = {lower}")
        self.loop.k("window_at"), self.loop.k("window_rows")
        with self.out.block("while k.window_rows > 0 and window[k.window_at].pos < lower:"):
            self.out.line("oldest = window[k.window_at].pos")
            yield

    def _recompute_arrival(self, position: str, lower: str, arguments: ArgumentCodes) -> None:
        if lower:
            with self._expired(lower):
                self._remove_oldest()
        self._insert(position, arguments)
        self._recompute("0")

    def _recompute(self, begin: str) -> None:
        """Write code that evaluates the aggregate over the window, from the tuple at index `begin` (N1).

        The results are what the last tuple returned, followed by what TERMINATE returned.
        """
        made = self.base
        assert made is not None, "the aggregate has no variant for windows"
        out, record = self.out, made.version.record
        out.line(f"{record} = {record.upper()}[0]")
        made.reset()
        before = out.fresh("before")
        out.line(f"{before} = n")
        out.line("again = False")
        with out.block(f"for j in range({begin}, k.window_rows):"):
            out.line(f"n = {before}")
            made.version.bind(self._window_row("j"), self.pool.types)
            self.loop.step(made, "again")
        self.loop.terminate(made, "again")

    def columns(self) -> RecordColumns:
        facts = self.loop.shared.facts
        stored = [index for index in range(len(self.pool.types)) if f"window keeps {index}" in facts]
        flagged = frozenset(f"a{index}" for index in stored if f"window {index} may be NULL" in facts)
        types = {f"a{index}": self.pool.types[index] for index in stored}
        return RecordColumns(types, flagged, [] if self.counted else [("pos", "i8")])


def _nothing(codes: list[Code]) -> None:
    """Discard the values that EXPIRE returned, because only ACTIVE EXPIRATION emits them."""
    del codes
