"""From a call to the source that runs it: a loop over the tuples for its box of the dispatch table (M37).

The loop keeps something per partition of its own, in a record `k`: whether a tuple has come, where the window
lies, which pane or slot is open. `s` is the record of the version that answers, which has these fields too;
`b` that of the base version where it serves panes or is derived from; `c` where it does both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from slicemill.esl.aggregate import INWINDOW, RETURN, AggregateDefinition, Delete, State
from slicemill.esl.types import Type
from slicemill.execution.window_dispatch import Box
from slicemill.execution.window_frame import Frame
from slicemill.uda.body import Given, Procedure, Shared, Window
from slicemill.uda.external import ExternalProcedure
from slicemill.uda.layout import MANY, PYTHON, Columns, dtype_of
from slicemill.uda.source import Code, Unfit, Writer

_FLAGS = ("started", "pane_open", "pane_started", "is_open")


class Boxes:
    """Writes the module of one call."""

    def __init__(
        self,
        versions: tuple[AggregateDefinition | None, AggregateDefinition | None],
        frame: Frame | None,
        box: Box | None,
        types: tuple[Type, ...],
        shared: Shared,
        user_defined: Callable[[AggregateDefinition], frozenset[str]],
    ) -> None:
        self.base, self.version = versions
        self.frame, self.box, self.types = frame, box, types
        self.shared = shared
        self._names_defined_by_user = user_defined
        self.out = Writer()
        self.fields: dict[str, str] = {}  # of k, with their types
        self.procedures: dict[str, Procedure] = {}
        self.window: Window | None = None
        returns = self.base or self.version
        assert returns is not None
        self.returns = tuple(column.type for column in returns.returns)
        self.number, self.at = "first + i", "ts[i]"
        self.expired = "False"
        self.grows = False
        self.one_each = False  # does each tuple give exactly one row?
        self.bound = 0

    # -- parts ---------------------------------------------------------------------------------------------

    def k(self, name: str) -> str:
        # 32 bits count the tuples of a window; places in a pool and times take 64.
        self.fields[name] = "?" if name in _FLAGS else "i4" if name.endswith(("_rows", "_room")) else "i8"
        return f"k.{name}"

    def _procedure(
        self, definition: AggregateDefinition, record: str, place: str, window: Window | None = None
    ) -> Procedure:
        make = Procedure if definition.external is None else ExternalProcedure
        made = make(
            definition,
            self.shared,
            self.out,
            record,
            place,
            window,
            self._names_defined_by_user(definition),
        )
        made.give = self._emit
        made.leave = lambda site: f"{site}, n, KEPT"
        self.procedures[record] = made
        return made

    @property
    def timed(self) -> bool:
        """Do results wait for time?"""
        return self.frame is not None and self.frame.waits_for_time

    @property
    def pools(self) -> list[str]:
        own = [made.array(table) for made in self.procedures.values() for table in made.pools]
        loop = [name for name in ("window", "latest") if f"{name}_at" in self.fields]
        return [*loop, *own]

    @property
    def outputs(self) -> list[str]:
        names = [] if self.one_each else ["out_number"]
        names += ["out_ts", "out_expired"] if self.timed else []
        for place in range(len(self.returns)):
            names.append(f"out_{place}")
            if self.shared.null(f"return {place}", "maybe") != "False":
                names.append(f"out_{place}_null")
        return names

    @property
    def kept(self) -> list[str]:
        return [*self.pools, *self.outputs]

    def _emit(self, codes: list[Code]) -> None:
        """A row of the result."""
        out = self.out
        for place, code in enumerate(codes):
            self.shared.may_be_null(f"return {place}", code)
        if self.grows:
            with out.block("if n == len(out_0):"):
                for name in self.outputs:
                    out.line(f"{name} = ops.longer({name})")
        if not self.one_each:
            out.line(f"out_number[n] = {self.number}")
        if self.timed:
            out.line(f"out_ts[n] = {self.at}")
            out.line(f"out_expired[n] = {self.expired}")
        for place, code in enumerate(codes):
            out.line(f"out_{place}[n] = {code.value}")
            if f"out_{place}_null" in self.outputs:
                out.line(f"out_{place}_null[n] = {code.null}")
        out.line("n += 1")

    def _step(self, made: Procedure, started: str) -> None:
        if made.one_body:
            self.out.line(f"{started} = True")
            made.statements(State.ITERATE)
            return
        with self.out.block(f"if {started}:"):
            made.statements(State.ITERATE)
        with self.out.block("else:"):
            self.out.line(f"{started} = True")
            made.statements(State.INITIALIZE)

    def _terminate(self, made: Procedure, started: str) -> None:
        """TERMINATE leaves the state as it is: tables of one row are put back, others must not change."""
        statements = made.definition.bodies.get(State.TERMINATE, ())
        changed = {statement.table.lower() for statement in statements if statement.table != RETURN}
        if any(made.bounds[table] >= MANY for table in changed):
            raise Unfit("TERMINATE changes a table of many rows")
        made.bind_last(started)
        fields = [name for table in sorted(changed) for name in made.fields(table)]
        saved = [self.out.fresh("saved") for _ in fields]
        for name, place in zip(saved, fields, strict=True):
            self.out.line(f"{name} = {place}")
        made.statements(State.TERMINATE, bound=made.keeps_arguments)
        for name, place in zip(saved, fields, strict=True):
            self.out.line(f"{place} = {name}")

    def _heads(self, pool: str) -> str:
        return ", ".join(f'{self.loop}["{pool}_{part}"]' for part in ("begin", "at", "rows", "room"))

    def _more_room(self, pool: str) -> None:
        begin, at, rows, room = (self.k(f"{pool}_{part}") for part in ("begin", "at", "rows", "room"))
        with self.out.block(f"if {at} + {rows} == {begin} + {room}:"):
            self.out.line(f"{pool} = ops.more_room({pool}, {pool}_top, {self._heads(pool)}, p)")

    # -- what a partition's latest tuple returned, kept until its slot or pane ends ------------------------

    def _keep_latest(self, before: str) -> None:
        out = self.out
        out.line(f"{self.k('latest_rows')} = 0")
        with out.block(f"for j in range({before}, n):"):
            self._more_room("latest")
            for place in range(len(self.returns)):
                row = f"latest[k.latest_at + k.latest_rows].r{place}"
                out.line(f"{row} = out_{place}[j]")
                if f"out_{place}_null" in self.outputs:
                    out.line(f"{row}_null = out_{place}_null[j]")
            out.line("k.latest_rows += 1")
        out.line(f"n = {before}")

    def _put_latest(self) -> None:
        with self.out.block(f"for j in range({self.k('latest_rows')}):"):
            self._emit(
                [
                    Code(
                        f"latest[k.latest_at + j].r{place}",
                        self.shared.null(f"return {place}", f"latest[k.latest_at + j].r{place}_null"),
                    )
                    for place in range(len(self.returns))
                ]
            )

    # -- windows -------------------------------------------------------------------------------------------

    def _windowed(self, types: tuple[Type, ...], derived: str) -> Callable[[str, str, Given], None]:
        """The window version, or the one derived from the base; gives what writes an arrival (M32)."""
        self.window = Window(types)
        if self.version is not None:
            made = self._procedure(self.version, "s", "p", self.window)
            self.window.ring = self.counted and "window is searched" not in self.shared.facts
            return partial(self._window_arrival, made)
        assert self.base is not None
        base = self._procedure(self.base, derived, "0")
        return partial(self._derived_arrival, base)

    @property
    def _needs_window(self) -> bool:
        """Can anybody tell what the window holds?"""
        keeps = any(fact.startswith("window keeps") for fact in self.shared.facts)
        made = self.procedures.get("s")
        return keeps or self.version is None or (made is not None and made.needs_window())

    @property
    def counted(self) -> bool:
        """Does the number of tuples in the window say which of them has expired?

        Positions are not kept then. Where the aggregate deletes tuples, expiry must go by arrival numbers.
        """
        made = self.procedures.get("s")
        bodies = [] if made is None else [s for body in made.definition.bodies.values() for s in body]
        deletes = any(isinstance(statement, Delete) and statement.table == INWINDOW for statement in bodies)
        rows = self.frame is not None and self.frame.unit == "ROWS"
        return rows and self.box is not Box.PANES and not deletes

    def _window_column(self, place: int, row: str) -> Code:
        assert self.window is not None
        self.shared.facts.add(f"window keeps {place}")
        text = f"{self.window.row(row)}.a{place}"
        return Code(text, self.shared.null(f"window {place}", f"{text}_null"))

    def _window_row(self, row: str) -> Given:
        assert self.window is not None
        return [partial(self._window_column, place, row) for place in range(len(self.window.types))]

    def _insert(self, position: str, given: Given) -> None:
        assert self.window is not None
        if self.window.ring:
            new = "window[np.uint64(k.window_begin + place)]"
            with self.out.block(f"if {self.k('window_rows')} == {self.k('window_room')}:"):
                self.out.line("full = i")
                self.out.line("break")
            self.out.line("place = k.window_at + k.window_rows")
            with self.out.block("if place >= k.window_room:"):
                self.out.line("place -= k.window_room")
        else:
            new = self.window.row("k.window_rows")
            self._more_room("window")
        if not self.counted:
            self.out.line(f"{new}.pos = {position}")
        for place, code in enumerate(given):
            if f"window keeps {place}" in self.shared.facts:
                value = code()
                self.shared.may_be_null(f"window {place}", value)
                self.out.line(f"{new}.a{place} = {value.value}")
                if self.shared.null(f"window {place}", "maybe") != "False":
                    self.out.line(f"{new}.a{place}_null = {value.null}")
        self.out.line("k.window_rows += 1")

    def _remove_oldest(self) -> None:
        assert self.window is not None
        self.out.line(f"{self.k('window_at')} += 1")
        if self.window.ring:
            with self.out.block(f"if k.window_at == {self.k('window_room')}:"):
                self.out.line("k.window_at = 0")
        self.out.line(f"{self.k('window_rows')} -= 1")

    def _expire(self, made: Procedure) -> None:
        """EXPIRE for the oldest tuple, which then leaves, if EXPIRE has not deleted it."""
        assert self.window is not None
        statements = made.definition.bodies.get(State.EXPIRE, ())
        if statements or made.definition.external is not None:
            made.bind(self._window_row("0"), self.window.types)
            made.statements(State.EXPIRE)
        if any(isinstance(statement, Delete) and statement.table == INWINDOW for statement in statements):
            with self.out.block("if k.window_rows > 0 and window[k.window_at].pos == oldest:"):
                self._remove_oldest()
        else:
            self._remove_oldest()

    def _window_arrival(self, made: Procedure, position: str, lower: str, given: Given) -> None:
        assert self.window is not None
        if self._needs_window:
            if lower:
                with self._expired(lower):
                    give, made.give = made.give, _nothing
                    self._expire(made)
                    made.give = give
            self._insert(position, given)
        made.bind(given, self.window.types)
        self._step(made, self.k("started"))

    @contextmanager
    def _expired(self, lower: str) -> Iterator[None]:
        """A loop over the tuples that lie before `lower`, oldest first."""
        if self.counted:
            with self.out.block(f"while {self.k('window_rows')} > preceding:"):
                yield
            return
        self.out.line(f"lower = {lower}")
        self.k("window_at"), self.k("window_rows")
        with self.out.block("while k.window_rows > 0 and window[k.window_at].pos < lower:"):
            self.out.line("oldest = window[k.window_at].pos")
            yield

    def _derived_arrival(self, made: Procedure, position: str, lower: str, given: Given) -> None:
        if lower:
            with self._expired(lower):
                self._remove_oldest()
        self._insert(position, given)
        self._recompute(made, "0")

    def _recompute(self, made: Procedure, begin: str) -> None:
        """The base over the window's tuples from `begin` on (N1): the last step's returns, and TERMINATE."""
        out, record = self.out, made.record
        out.line(f"{record} = {record.upper()}[0]")
        made.reset()
        before = out.fresh("before")
        out.line(f"{before} = n")
        out.line("again = False")
        with out.block(f"for j in range({begin}, k.window_rows):"):
            out.line(f"n = {before}")
            assert self.window is not None
            made.bind(self._window_row("j"), self.window.types)
            self._step(made, "again")
        self._terminate(made, "again")

    # -- the loops -----------------------------------------------------------------------------------------

    def write(self) -> list[str]:
        """The lines of `run`; after the last time, facts and fields are complete."""
        writers: dict[Box | None, Callable[[], Callable[[], None]]] = {
            None: self._group,
            Box.UNBOUNDED: self._unbounded,
            Box.TUMBLE: self._tumble,
            Box.PANES: self._panes,
            Box.FINITE: self._finite,
            Box.SLIDING: self._finite,
            Box.ACTIVE: self._active,
        }
        write = writers[self.box]()
        self._bounds()
        with self.out.block("HEADER"):
            self.out.line("n = 0")
            if self.timed:
                with self.out.block("for i in range(len(codes) + 1):"):
                    self.out.line("now = ts[i] if i < len(codes) else complete")
                    write()
            elif self.window is not None and self.window.ring:
                self._until_full(write)
            else:
                with self.out.block("for i in range(len(codes)):"):
                    write()
            self.out.line("return 0, n, KEPT")
        return self.out.lines

    def _until_full(self, write: Callable[[], None]) -> None:
        """A loop that is left to make room and then taken up: while it runs, its arrays stay the same.

        A tuple for which there is no room has expired others, and nothing more, when it is taken up again.
        """
        out = self.out
        out.line("full = 0")
        with out.block("while full >= 0:"):
            out.line("start, full = full, -1")
            with out.block("for i in range(start, len(codes)):"):
                write()
            with out.block("if full >= 0:"):
                out.line("p = codes[full]")
                self.k("window_begin")
                out.line(
                    f"window = ops.ring_room(window, window_top, {self._heads('window')}, p, preceding + 1)"
                )

    def write_finish(self) -> list[str]:
        """The lines of `finish`: TERMINATE for some groups."""
        self.number = "p"
        made = self._procedure(self._base(), "s", "p")
        self._bounds()
        with self.out.block("HEADER"):
            self.out.line("n = 0")
            with self.out.block("for i in range(len(codes)):"):
                self.out.line("p = codes[i]")
                self._records("p")
                self._terminate(made, self.k("started"))
            self.out.line("return 0, n, KEPT")
        return self.out.lines

    def _base(self) -> AggregateDefinition:
        assert self.base is not None, "the caller has looked"
        return self.base

    def _bounds(self) -> None:
        """How many rows one tuple or slot can give, or that nobody knows."""
        bounds = [
            made.bound_of(state)
            for made in self.procedures.values()
            for state in (State.INITIALIZE, State.ITERATE, State.EXPIRE, State.TERMINATE)
        ]
        known = [bound for bound in bounds if bound is not None]
        self.grows = len(known) < len(bounds)
        self.bound = sum(known)

    @property
    def loop(self) -> str:
        """The array of the loop's own records: that of the version that answers, if it has one."""
        return "S" if "s" in self.procedures else "K"

    def _records(self, p: str) -> None:
        if self.loop == "K":
            self.out.line(f"k = K[{p}]")
        for record, made in self.procedures.items():
            if made.place == "p":
                self.out.line(f"{record} = {record.upper()}[{p}]")
        if self.loop == "S":
            self.out.line("k = s")

    def _input(self) -> Given:
        """The arguments of the tuple at hand."""
        self.out.line("p = codes[i]")
        self._records("p")
        given = []
        for place, type_ in enumerate(self.types):
            text = f"in_{place}[i]"
            null = f"in_{place}_null[i]" if self.shared.nullable else "False"
            given.append(partial(Code, f"np.int64({text})" if _is_whole(type_) else text, null))
        return given

    def _group(self) -> Callable[[], None]:
        made = self._procedure(self._base(), "s", "p")

        def write() -> None:
            given = self._input()
            with self.out.block(f"if not {self.k('started')}:"):
                self.out.line(f"{self.k('first')} = first + i")
            made.bind(given, self.types)
            self._step(made, self.k("started"))

        self.one_each = made.answers_once

        return write

    def _unbounded(self) -> Callable[[], None]:
        made = self._procedure(self._base(), "s", "p")

        def write() -> None:
            made.bind(self._input(), self.types)
            self._step(made, self.k("started"))
            self._terminate(made, self.k("started"))

        return write

    @property
    def _position(self) -> str:
        assert self.frame is not None
        return self.k("arrivals") if self.frame.unit == "ROWS" else "ts[i]"

    def _slot_end(self, position: str) -> str:
        return f"({position} // slide + 1) * slide"

    def _lower(self, position: str, of: str = "") -> str:
        """Where the window of a position begins; `of` panes, or of tuples."""
        assert self.frame is not None
        if self.frame.unit == "RANGE" and self.frame.slide is not None:
            return f"({position} // {of}slide + 1) * {of}slide - {of}preceding"
        return f"{position} - {of}preceding"

    def _yields(self) -> str | None:
        """Of a slide in rows: the text of whether this tuple ends its slot."""
        assert self.frame is not None
        return None if self.frame.slide is None else f"{self.k('arrivals')} % slide == 0"

    def _finite(self) -> Callable[[], None]:
        assert self.frame is not None
        frame = self.frame
        arrive = self._windowed(self.types, "b")
        made = self.procedures.get("s")
        self.one_each = frame.slide is None and made is not None and made.answers_once

        def write() -> None:
            if self.timed:
                self._close_slots(self._put_latest)
            given = self._input()
            if frame.slide is not None:
                self.out.line("before = n")
            numbered = frame.unit == "ROWS" and not self.counted
            if numbered:
                self.out.line(f"position = {self.k('arrivals')}")
                self.out.line(f"{self.k('arrivals')} += 1")
            position = "position" if frame.unit == "ROWS" else "ts[i]"
            arrive(position, self._lower(position), given)
            if self.timed:
                self._keep_latest("before")
                self._open_slot()
            elif frame.slide is not None:
                if not numbered:
                    self.out.line(f"{self.k('arrivals')} += 1")
                with self.out.block(f"if not {self._yields()}:"):
                    self.out.line("n = before")

        return write

    def _tumble(self) -> Callable[[], None]:
        made = self._procedure(self._base(), "s", "p")
        keeps = made.returns_at_steps()

        def close() -> None:
            if keeps:
                self._put_latest()
            self._terminate(made, self.k("started"))

        def write() -> None:
            out = self.out
            if self.timed:
                self._close_slots(close)
            given = self._input()
            out.line("before = n")
            out.line(f"position = {self._position}")
            out.line(f"end = {self._slot_end('position')}")
            with out.block(f"if {self.k('arrivals')} == 0 or end != {self.k('end')}:"):
                out.line("k.end = end")
                out.line(f"{self.k('started')} = False")
                if keeps and self.timed:
                    out.line(f"{self.k('latest_rows')} = 0")
                made.reset()
            out.line("k.arrivals += 1")
            with out.block("if position >= end - length:"):
                made.bind(given, self.types)
                self._step(made, self.k("started"))
                if self.timed and keeps:
                    self._keep_latest("before")
            if self.timed:
                self._open_slot()
                return
            with out.block(f"if {self._yields()}:"):
                self._terminate(made, self.k("started"))
            with out.block("else:"):
                out.line("n = before")

        return write

    def _panes(self) -> Callable[[], None]:
        assert self.frame is not None
        frame = self.frame
        made = self._procedure(self._base(), "b", "p")
        arrive = self._windowed(self.returns, "c")
        keeps = made.returns_at_steps()

        def close(answers: bool) -> None:
            """The pane's values go through the window; what the last one returns is the answer."""
            out = self.out
            out.line("pane = n")
            if keeps:
                self._put_latest()
            self._terminate(made, self.k("pane_started"))
            out.line(f"{self.k('pane_open')} = False")
            out.line("answer = n")
            with out.block("for v in range(pane, answer):"):
                out.line("n = answer")
                given: Given = [partial(self._returned, place) for place in range(len(self.returns))]
                out.line(f"position = {self.k('pane')}")
                arrive("position", self._lower("position", "panes_"), given)
            if not answers:
                out.line("n = pane")
                return
            with out.block("for v in range(answer, n):"):
                for name in self.outputs:
                    out.line(f"{name}[pane + v - answer] = {name}[v]")
            out.line("n = pane + n - answer")

        def write() -> None:
            out = self.out
            if self.timed:
                self._close_slots(partial(close, True))
            given = self._input()
            out.line(f"number = {self._position} // pane_length")
            with out.block(f"if {self.k('pane_open')} and number != {self.k('pane')}:"):
                close(False)
            out.line("k.pane = number")
            with out.block("if not k.pane_open:"):
                out.line("k.pane_open = True")
                out.line(f"{self.k('pane_started')} = False")
                made.reset()
            if frame.unit == "ROWS":
                out.line(f"{self.k('arrivals')} += 1")
            out.line("before = n")
            made.bind(given, self.types)
            self._step(made, self.k("pane_started"))
            if keeps:
                self._keep_latest("before")
            if self.timed:
                self._open_slot()
                return
            with out.block(f"if {self._yields()}:"):
                close(True)

        return write

    def _returned(self, place: int) -> Code:
        return Code(f"out_{place}[v]", self.shared.null(f"return {place}", f"out_{place}_null[v]"))

    def _close_slots(self, answer: Callable[[], None]) -> None:
        """When time has passed the end of the slot: an answer for each partition that had a tuple in it."""
        out = self.out
        with out.block("if slot[0] > 0 and now >= slot[1]:"):
            with out.block("for o in range(slot[0]):"):
                out.line("p = opened[o]")
                self._records("p")
                out.line(f"{self.k('is_open')} = False")
                self.number, self.at = self.k("open_number"), self.k("open_ts")
                answer()
                self.number, self.at = "first + i", "ts[i]"
            out.line("slot[0] = 0")
        with out.block("if i == len(codes):"):
            out.line("break")

    def _open_slot(self) -> None:
        out = self.out
        out.line(f"slot[1] = {self._slot_end('ts[i]')}")
        with out.block(f"if not {self.k('is_open')}:"):
            out.line("k.is_open = True")
            out.line("opened[slot[0]] = p")
            out.line("slot[0] += 1")
        out.line(f"{self.k('open_number')} = first + i")
        out.line(f"{self.k('open_ts')} = ts[i]")

    def _active(self) -> Callable[[], None]:
        """Negative tuples, oldest first, between arrivals (M36); at a tie arrivals come first (X14)."""
        arrive = self._windowed(self.types, "b")

        def expire() -> None:
            if self.version is not None:
                self._expire(self.procedures["s"])
                return
            with self.out.block("if k.window_rows > 1:"):
                self._recompute(self.procedures["b"], "1")
            self._remove_oldest()

        def write() -> None:
            out = self.out
            if self._needs_window:
                with out.block("while slot[0] < slot[1] and negative_ts[slot[0]] < now:"):
                    out.line("oldest = negative_number[slot[0]]")
                    out.line("at = negative_ts[slot[0]]")
                    out.line("p = negative_p[slot[0]]")
                    out.line("slot[0] += 1")
                    self._records("p")
                    self.k("window_at"), self.k("window_rows")
                    with out.block("if k.window_rows > 0 and window[k.window_at].pos == oldest:"):
                        self.number, self.at, self.expired = "oldest", "at", "True"
                        expire()
                        self.number, self.at, self.expired = "first + i", "ts[i]", "False"
            with out.block("if i == len(codes):"):
                out.line("break")
            given = self._input()
            if self._needs_window:
                out.line("negative_number[slot[1]] = first + i")
                out.line("negative_ts[slot[1]] = ts[i] + preceding")
                out.line("negative_p[slot[1]] = p")
                out.line("slot[1] += 1")
            arrive("first + i", "", given)

        return write

    def window_columns(self) -> Columns:
        assert self.window is not None
        facts = self.shared.facts
        kept = [place for place in range(len(self.window.types)) if f"window keeps {place}" in facts]
        flagged = frozenset(f"a{place}" for place in kept if f"window {place} may be NULL" in facts)
        types = {f"a{place}": self.window.types[place] for place in kept}
        return Columns(types, flagged, [] if self.counted else [("pos", "i8")])

    def latest_columns(self) -> Columns:
        types = {f"r{place}": type_ for place, type_ in enumerate(self.returns)}
        flagged = (place for place in range(len(types)) if f"return {place} may be NULL" in self.shared.facts)
        return Columns(types, frozenset(f"r{place}" for place in flagged))


def _nothing(codes: list[Code]) -> None:
    """What EXPIRE returns is output only under ACTIVE EXPIRATION."""
    del codes


def _is_whole(type_: Type) -> bool:
    return dtype_of(type_, PYTHON) is np.int64
