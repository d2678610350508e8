"""Generated loop of a call, by its evaluation strategy (M37)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from slicemill.aggregate.compiler.layout import PYTHON, dtype_of
from slicemill.aggregate.compiler.loop import TupleLoop
from slicemill.aggregate.compiler.models.code import ModelCode
from slicemill.aggregate.compiler.source import Code
from slicemill.aggregate.compiler.version import ArgumentCodes
from slicemill.aggregate.compiler.window_loop import WindowCode
from slicemill.aggregate.windows import Strategy
from slicemill.esl.types.aggregate import AggregateDefinition, BodyState
from slicemill.esl.types.schema import Type


class CallCode:
    """Writes the routines of a call, by the call's strategy."""

    def __init__(self, loop: TupleLoop) -> None:
        self.loop = loop
        self.out = loop.out
        self.window: WindowCode | None = None

    def write(self) -> list[str]:
        """Return the lines of `run`.

        After the last pass, facts and fields are complete.
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
        """Write a loop that is interrupted to grow a pool.

        While the loop runs, its arrays stay the same. When a tuple without room is processed again, it has
        only expired other tuples so far.
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
        """Return the lines of `finish`: TERMINATE for some groups."""
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
        assert self.loop.base is not None, "the caller has looked"
        return self.loop.base

    def _bounds(self) -> None:
        """Compute the maximum number of rows per tuple or slot, if known."""
        bounds = [
            made.bound_of(state)
            for made in self.loop.codes.values()
            for state in (BodyState.INITIALIZE, BodyState.ITERATE, BodyState.EXPIRE, BodyState.TERMINATE)
        ]
        known = [bound for bound in bounds if bound is not None]
        self.loop.grows = len(known) < len(bounds)
        self.loop.bound = sum(known)

    def _input(self) -> ArgumentCodes:
        """Write access to the current tuple, and return its arguments."""
        self.out.line("p = codes[i]")
        self.loop.records("p")
        given = []
        for place, type_ in enumerate(self.loop.types):
            text = f"in_{place}[i]"
            null = f"in_{place}_null[i]" if self.loop.shared.nullable else "False"
            given.append(partial(Code, f"np.int64({text})" if _is_whole(type_) else text, null))
        return given

    def _group(self) -> Callable[[], None]:
        made = self.loop.aggregate(self._base(), "s", "p")

        def write() -> None:
            given = self._input()
            with self.out.block(f"if not {self.loop.k('started')}:"):
                self.out.line(f"{self.loop.k('first')} = first + i")
            made.version.bind(given, self.loop.types)
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
        """Return the source of a window's start; `of` selects panes or tuples."""
        assert self.loop.frame is not None
        if self.loop.frame.unit == "RANGE" and self.loop.frame.slide is not None:
            return f"({position} // {of}slide + 1) * {of}slide - {of}preceding"
        return f"{position} - {of}preceding"

    def _yields(self, more: int = 0) -> str:
        """Return source that tests if a tuple ends its row slot.

        The tuple is the current one, or the one after `more` further tuples.
        """
        arrivals = self.loop.k("arrivals")
        return f"({arrivals} + {more}) % slide == 0" if more else f"{arrivals} % slide == 0"

    def _finite(self) -> Callable[[], None]:
        assert self.loop.frame is not None
        frame = self.loop.frame
        window = self.window = WindowCode(self.loop, self.loop.types, "b")
        made = self.loop.codes.get("s")
        self.loop.one_each = frame.slide is None and made is not None and made.answers_once
        # A model's value can be computed lazily until the next tuple arrives.
        model = made if isinstance(made, ModelCode) and frame.slide is not None else None

        def write() -> None:
            if self.loop.timed:
                self._close_slots(self.loop.put_latest if model is None else model.answer)
            given = self._input()
            if frame.slide is not None:
                self.out.line("before = n")
            numbered = frame.unit == "ROWS" and not window.counted
            if numbered:
                self.out.line(f"position = {self.loop.k('arrivals')}")
                self.out.line(f"{self.loop.k('arrivals')} += 1")
            position = "position" if frame.unit == "ROWS" else "ts[i]"
            if model is not None:
                model.answers_if = "False" if self.loop.timed else self._yields(0 if numbered else 1)
            window.arrive(position, self._lower(position), given)
            if self.loop.timed:
                if model is None:
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
            given = self._input()
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
                made.version.bind(given, self.loop.types)
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
            """Write code that passes the pane's values to the window version.

            The results are those of the pane's last value.
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
                given: ArgumentCodes = [
                    partial(self._returned, place) for place in range(len(self.loop.returns))
                ]
                out.line(f"position = {self.loop.k('pane')}")
                window.arrive("position", self._lower("position", "panes_"), given)
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
            given = self._input()
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
            made.version.bind(given, self.loop.types)
            self.loop.step(made, self.loop.k("pane_started"))
            if keeps:
                self.loop.keep_latest("before")
            if self.loop.timed:
                self._open_slot()
                return
            with out.block(f"if {self._yields()}:"):
                close(True)

        return write

    def _returned(self, place: int) -> Code:
        return Code(f"out_{place}[v]", self.loop.shared.null(f"return {place}", f"out_{place}_null[v]"))

    def _close_slots(self, answer: Callable[[], None]) -> None:
        """Write code that closes slots which the watermark has passed.

        It emits results for each partition with a tuple in the slot.
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
        """Write ACTIVE EXPIRATION: negative tuples, oldest first, between arrivals (M36).

        At equal times, arrivals precede expiries (X14).
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
            given = self._input()
            if window.needed:
                out.line("negative_number[slot[1]] = first + i")
                out.line("negative_ts[slot[1]] = ts[i] + preceding")
                out.line("negative_p[slot[1]] = p")
                out.line("slot[1] += 1")
            window.arrive("first + i", "", given)

        return write


def _is_whole(type_: Type) -> bool:
    return dtype_of(type_, PYTHON) is np.int64
