"""Shared parts of the generated loops: records, output rows, steps and TERMINATE.

A loop has state of its own per partition, in a record `k`: whether there was a tuple, the position of the
window, the open pane or slot. `s` is the record of the version that computes the results; it includes these
fields. `b` is the record of a base version that serves panes or a derived window version, `c` of a base
version that does both.
"""

from __future__ import annotations

from collections.abc import Callable

from slicemill.aggregate.compiler.aggregate_code import AggregateCode
from slicemill.aggregate.compiler.external import ClassCode
from slicemill.aggregate.compiler.layout import MANY, RecordColumns
from slicemill.aggregate.compiler.models.code import ModelCode
from slicemill.aggregate.compiler.source import Code, NoCompiledForm, Writer
from slicemill.aggregate.compiler.statements import StatementCode
from slicemill.aggregate.compiler.version import ModuleFacts, Version, WindowPool
from slicemill.aggregate.frame import WindowFrame
from slicemill.aggregate.windows import Strategy
from slicemill.esl.types.aggregate import RETURN, AggregateDefinition, BodyState, changes_in
from slicemill.esl.types.schema import Type

_FLAGS = ("started", "pane_open", "pane_started", "is_open")


class TupleLoop:
    """Writes the parts of a call's module."""

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
        self.fields: dict[str, str] = {}  # fields of k, with their types
        self.codes: dict[str, AggregateCode] = {}
        returns = self.base or self.version
        assert returns is not None
        self.returns = tuple(column.type for column in returns.returns)
        self.number, self.at = "first + i", "ts[i]"
        self.expired = "False"
        self.grows = False
        self.one_each = False  # does each tuple return exactly one row?
        self.bound = 0

    # -- parts ---------------------------------------------------------------------------------------------

    def k(self, name: str) -> str:
        # 32 bits suffice for the tuples of a window; pool indexes and times need 64.
        self.fields[name] = "?" if name in _FLAGS else "i4" if name.endswith(("_rows", "_room")) else "i8"
        return f"k.{name}"

    def aggregate(
        self, definition: AggregateDefinition, record: str, place: str, window: WindowPool | None = None
    ) -> AggregateCode:
        version = Version(
            definition,
            self.shared,
            self.out,
            record,
            place,
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
        """Return True if results wait for the watermark."""
        return self.frame is not None and self.frame.waits_for_time

    @property
    def pools(self) -> list[str]:
        own = [made.version.array(table) for made in self.codes.values() for table in made.pools]
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

    def emit(self, codes: list[Code]) -> None:
        """Write the code that emits a row."""
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
        """Write TERMINATE so that it leaves the state unchanged.

        Single-row tables are saved and restored. Other tables must not change.
        """
        statements = changes_in(made.version.definition.bodies.get(BodyState.TERMINATE, ()))
        changed = {statement.table.lower() for statement in statements if statement.table != RETURN}
        if any(made.version.bounds[table] >= MANY for table in changed):
            raise NoCompiledForm("TERMINATE changes a table of many rows")
        made.bind_last(started)
        fields = [name for table in sorted(changed) for name in made.version.fields(table)]
        saved = [self.out.fresh("saved") for _ in fields]
        for name, place in zip(saved, fields, strict=True):
            self.out.line(f"{name} = {place}")
        made.statements(BodyState.TERMINATE, bound=made.version.keeps_arguments)
        for name, place in zip(saved, fields, strict=True):
            self.out.line(f"{place} = {name}")

    def heads(self, pool: str) -> str:
        return ", ".join(f'{self.loop}["{pool}_{part}"]' for part in ("begin", "at", "rows", "room"))

    def more_room(self, pool: str) -> None:
        begin, at, rows, room = (self.k(f"{pool}_{part}") for part in ("begin", "at", "rows", "room"))
        with self.out.block(f"if {at} + {rows} == {begin} + {room}:"):
            self.out.line(f"{pool} = ops.more_room({pool}, {pool}_top, {self.heads(pool)}, p)")

    # -- rows of a partition's latest tuple, stored until its slot or pane ends ------------------------------

    def keep_latest(self, before: str) -> None:
        out = self.out
        out.line(f"{self.k('latest_rows')} = 0")
        with out.block(f"for j in range({before}, n):"):
            self.more_room("latest")
            for place in range(len(self.returns)):
                row = f"latest[k.latest_at + k.latest_rows].r{place}"
                out.line(f"{row} = out_{place}[j]")
                if f"out_{place}_null" in self.outputs:
                    out.line(f"{row}_null = out_{place}_null[j]")
            out.line("k.latest_rows += 1")
        out.line(f"n = {before}")

    def put_latest(self) -> None:
        with self.out.block(f"for j in range({self.k('latest_rows')}):"):
            self.emit(
                [
                    Code(
                        f"latest[k.latest_at + j].r{place}",
                        self.shared.null(f"return {place}", f"latest[k.latest_at + j].r{place}_null"),
                    )
                    for place in range(len(self.returns))
                ]
            )

    @property
    def loop(self) -> str:
        """Return the array of the loop's own records.

        It is that of the version that computes the results, if there is one.
        """
        return "S" if "s" in self.codes else "K"

    def records(self, p: str) -> None:
        if self.loop == "K":
            self.out.line(f"k = K[{p}]")
        for record, made in self.codes.items():
            if made.version.place == "p":
                self.out.line(f"{record} = {record.upper()}[{p}]")
        if self.loop == "S":
            self.out.line("k = s")

    def latest_columns(self) -> RecordColumns:
        types = {f"r{place}": type_ for place, type_ in enumerate(self.returns)}
        flagged = (place for place in range(len(types)) if f"return {place} may be NULL" in self.shared.facts)
        return RecordColumns(types, frozenset(f"r{place}" for place in flagged))


def _code_of(version: Version) -> AggregateCode:
    if version.definition.model is not None:
        return ModelCode(version)
    return StatementCode(version) if version.definition.external is None else ClassCode(version)
