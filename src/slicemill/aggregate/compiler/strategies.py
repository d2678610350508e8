"""From a call to the source that runs it: a loop over the tuples for its box of the dispatch table (M37)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from slicemill.aggregate.compiler.layout import PYTHON, dtype_of
from slicemill.aggregate.compiler.models.procedure import ModelProcedure
from slicemill.aggregate.compiler.source import Code
from slicemill.aggregate.compiler.version import Given
from slicemill.aggregate.compiler.window_loop import WindowLoop
from slicemill.aggregate.windows import Strategy
from slicemill.esl.types.aggregate import AggregateDefinition, State
from slicemill.esl.types.schema import Type


class Boxes(WindowLoop):
    """Writes the routines of one call."""

    def write(self) -> list[str]:
        """The lines of `run`; after the last time, facts and fields are complete."""
        writers: dict[Strategy | None, Callable[[], Callable[[], None]]] = {
            None: self._group,
            Strategy.UNBOUNDED: self._unbounded,
            Strategy.TUMBLE: self._tumble,
            Strategy.PANES: self._panes,
            Strategy.FINITE: self._finite,
            Strategy.SLIDING: self._finite,
            Strategy.ACTIVE: self._active,
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

    def _yields(self, more: int = 0) -> str:
        """Of a slide in rows: the text of whether this tuple, or one that comes later, ends its slot."""
        arrivals = self.k("arrivals")
        return f"({arrivals} + {more}) % slide == 0" if more else f"{arrivals} % slide == 0"

    def _finite(self) -> Callable[[], None]:
        assert self.frame is not None
        frame = self.frame
        arrive = self._windowed(self.types, "b")
        made = self.procedures.get("s")
        self.one_each = frame.slide is None and made is not None and made.answers_once
        # What a model comes to can be asked for when it is wanted, as long as nothing has come since.
        model = made if isinstance(made, ModelProcedure) and frame.slide is not None else None

        def write() -> None:
            if self.timed:
                self._close_slots(self._put_latest if model is None else model.answer)
            given = self._input()
            if frame.slide is not None:
                self.out.line("before = n")
            numbered = frame.unit == "ROWS" and not self.counted
            if numbered:
                self.out.line(f"position = {self.k('arrivals')}")
                self.out.line(f"{self.k('arrivals')} += 1")
            position = "position" if frame.unit == "ROWS" else "ts[i]"
            if model is not None:
                model.answers_if = "False" if self.timed else self._yields(0 if numbered else 1)
            arrive(position, self._lower(position), given)
            if self.timed:
                if model is None:
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


def _is_whole(type_: Type) -> bool:
    return dtype_of(type_, PYTHON) is np.int64
