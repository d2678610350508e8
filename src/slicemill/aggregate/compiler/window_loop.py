"""Windows in loops: what arrives, what expires, and the version derived from the base (M32, M33)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from slicemill.aggregate.compiler.body import Procedure
from slicemill.aggregate.compiler.layout import Columns
from slicemill.aggregate.compiler.loop import Loop
from slicemill.aggregate.compiler.source import Code
from slicemill.aggregate.compiler.version import Given, Window
from slicemill.aggregate.windows import Strategy
from slicemill.esl.types.aggregate import INWINDOW, Delete, State
from slicemill.esl.types.schema import Type


class WindowLoop(Loop):
    """Writes the window version of an aggregate, or the derived one."""

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
        return rows and self.box is not Strategy.PANES and not deletes

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
        definition = made.definition
        if statements or definition.external is not None or definition.model is not None:
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

    def window_columns(self) -> Columns:
        assert self.window is not None
        facts = self.shared.facts
        kept = [place for place in range(len(self.window.types)) if f"window keeps {place}" in facts]
        flagged = frozenset(f"a{place}" for place in kept if f"window {place} may be NULL" in facts)
        types = {f"a{place}": self.window.types[place] for place in kept}
        return Columns(types, flagged, [] if self.counted else [("pos", "i8")])


def _nothing(codes: list[Code]) -> None:
    """What EXPIRE returns is output only under ACTIVE EXPIRATION."""
    del codes
