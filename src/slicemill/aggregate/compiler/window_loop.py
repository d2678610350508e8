"""Windows in generated loops: arrival, expiry and derived window versions (M32, M33)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from slicemill.aggregate.compiler.aggregate_code import AggregateCode
from slicemill.aggregate.compiler.layout import RecordColumns, read
from slicemill.aggregate.compiler.loop import TupleLoop
from slicemill.aggregate.compiler.source import Code
from slicemill.aggregate.compiler.statements import deletes_from_window
from slicemill.aggregate.compiler.version import ArgumentCodes, WindowPool
from slicemill.aggregate.windows import Strategy
from slicemill.esl.types.aggregate import BodyState
from slicemill.esl.types.schema import Type


class WindowCode:
    """Writes an aggregate's window version, or the version derived from its base.

    `pool` has the window's tuples. `base` and `own` write the versions that the loop runs.
    """

    def __init__(self, loop: TupleLoop, types: tuple[Type, ...], derived: str) -> None:
        self.loop = loop
        self.out = loop.out
        self.pool = WindowPool(types)
        self.own: AggregateCode | None = None
        self.base: AggregateCode | None = None
        if loop.version is not None:
            self.own = loop.aggregate(loop.version, "s", "p", self.pool)
            self.pool.ring = self.counted and "window is searched" not in loop.shared.facts
        else:
            assert loop.base is not None
            self.base = loop.aggregate(loop.base, derived, "0")

    def arrive(self, position: str, lower: str, given: ArgumentCodes) -> None:
        """Write a tuple's arrival, after expiring tuples before `lower` (M32)."""
        if self.own is not None:
            self._own_arrival(self.own, position, lower, given)
        else:
            self._derived_arrival(position, lower, given)

    def leave(self) -> None:
        """Write the expiry of the oldest tuple, with its results."""
        if self.own is not None:
            self._expire(self.own)
            return
        with self.out.block("if k.window_rows > 1:"):
            self._recompute("1")
        self._remove_oldest()

    @property
    def needed(self) -> bool:
        """Return True if any result depends on the window's content."""
        keeps = any(fact.startswith("window keeps") for fact in self.loop.shared.facts)
        return keeps or self.own is None or self.own.needs_window()

    @property
    def counted(self) -> bool:
        """Return True if expiry depends only on the window's size.

        Then positions are not stored. If the aggregate deletes tuples, expiry depends on arrival numbers.
        """
        definition = self.loop.version
        bodies = [] if definition is None else list(definition.bodies.values())
        deletes = any(deletes_from_window(body) for body in bodies)
        frame = self.loop.frame
        rows = frame is not None and frame.unit == "ROWS"
        return rows and self.loop.strategy is not Strategy.PANES and not deletes

    def _window_column(self, place: int, row: str) -> Code:
        self.loop.shared.facts.add(f"window keeps {place}")
        text = f"{self.pool.row(row)}.a{place}"
        value = read(text, self.pool.types[place], self.loop.shared.form)
        return Code(value, self.loop.shared.null(f"window {place}", f"{text}_null"))

    def _window_row(self, row: str) -> ArgumentCodes:
        return [partial(self._window_column, place, row) for place in range(len(self.pool.types))]

    def _insert(self, position: str, given: ArgumentCodes) -> None:
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
        for place, code in enumerate(given):
            if f"window keeps {place}" in self.loop.shared.facts:
                value = code()
                self.loop.shared.may_be_null(f"window {place}", value)
                self.out.line(f"{new}.a{place} = {value.value}")
                if self.loop.shared.null(f"window {place}", "maybe") != "False":
                    self.out.line(f"{new}.a{place}_null = {value.null}")
        self.out.line("k.window_rows += 1")

    def _remove_oldest(self) -> None:
        self.out.line(f"{self.loop.k('window_at')} += 1")
        if self.pool.ring:
            with self.out.block(f"if k.window_at == {self.loop.k('window_room')}:"):
                self.out.line("k.window_at = 0")
        self.out.line(f"{self.loop.k('window_rows')} -= 1")

    def _expire(self, made: AggregateCode) -> None:
        """Write EXPIRE for the oldest tuple, and its removal.

        The removal is skipped if EXPIRE has deleted the tuple.
        """
        statements = made.version.definition.bodies.get(BodyState.EXPIRE, ())
        definition = made.version.definition
        if statements or definition.external is not None or definition.model is not None:
            made.version.bind(self._window_row("0"), self.pool.types)
            made.statements(BodyState.EXPIRE)
        if deletes_from_window(statements):
            with self.out.block("if k.window_rows > 0 and window[k.window_at].pos == oldest:"):
                self._remove_oldest()
        else:
            self._remove_oldest()

    def _own_arrival(self, made: AggregateCode, position: str, lower: str, given: ArgumentCodes) -> None:
        if self.needed:
            if lower:
                with self._expired(lower):
                    give, made.version.give = made.version.give, _nothing
                    self._expire(made)
                    made.version.give = give
            self._insert(position, given)
        made.version.bind(given, self.pool.types)
        self.loop.step(made, self.loop.k("started"))

    @contextmanager
    def _expired(self, lower: str) -> Iterator[None]:
        """Write a loop over the tuples before `lower`, oldest first."""
        if self.counted:
            with self.out.block(f"while {self.loop.k('window_rows')} > preceding:"):
                yield
            return
        self.out.line(f"lower = {lower}")
        self.loop.k("window_at"), self.loop.k("window_rows")
        with self.out.block("while k.window_rows > 0 and window[k.window_at].pos < lower:"):
            self.out.line("oldest = window[k.window_at].pos")
            yield

    def _derived_arrival(self, position: str, lower: str, given: ArgumentCodes) -> None:
        if lower:
            with self._expired(lower):
                self._remove_oldest()
        self._insert(position, given)
        self._recompute("0")

    def _recompute(self, begin: str) -> None:
        """Write the base version over the window's tuples from `begin` (N1).

        Its results are those of the last step, followed by TERMINATE.
        """
        made = self.base
        assert made is not None, "it is derived from the base"
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
        kept = [place for place in range(len(self.pool.types)) if f"window keeps {place}" in facts]
        flagged = frozenset(f"a{place}" for place in kept if f"window {place} may be NULL" in facts)
        types = {f"a{place}": self.pool.types[place] for place in kept}
        return RecordColumns(types, flagged, [] if self.counted else [("pos", "i8")])


def _nothing(codes: list[Code]) -> None:
    """Discard EXPIRE's values, which are emitted only under ACTIVE EXPIRATION."""
    del codes
