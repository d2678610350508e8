"""A model as a procedure of a loop: what is written where a tuple comes, leaves, or a result is asked for."""

from __future__ import annotations

from typing import Any

from slicemill.esl.aggregate import State
from slicemill.model.classify import Way
from slicemill.model.model import Model
from slicemill.model.naive import Nulls, uniform_parts
from slicemill.model.terms import Column, Expr, walk
from slicemill.model.weights import symbols_of
from slicemill.uda.body import Procedure
from slicemill.uda.layout import Columns
from slicemill.uda.models.expressions import Formulas, Pair
from slicemill.uda.models.keepers import Keeper, Place, simple_keeper
from slicemill.uda.models.recomputed import Recomputed
from slicemill.uda.models.weighted import Weighted, WeightedStacks
from slicemill.uda.source import Code

_NOTHING = ("0.0", "0.0")
_WHOLE = ("xor", "gcd")  # of whole numbers of 64 bits


class ModelProcedure(Procedure):
    """A version that is a model. The loop's records and pools hold what its keepers keep."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        model = self.definition.model
        assert model is not None, "the caller has looked"
        self.model: Model = model
        self.windowed = self.definition.window
        self.keepers: list[Keeper] = [self._keeper(number) for number in range(len(model.cores))]
        self.pools = [pool for keeper in self.keepers for pool in keeper.pools()]
        self.worn = self.windowed and any(keeper.worn for keeper in self.keepers)

    def _keeper(self, number: int) -> Keeper:
        core, way = self.model.cores[number], self.model.classes[number].way
        place = Place(self.out, self.record, number, self._make_room)
        if way is Way.RECOMPUTE:
            return Recomputed(core, place)
        if core.weight is None:
            return simple_keeper(core, place)
        # Nothing leaves a base version: there any weight can be kept.
        stacked = way is Way.TWO_STACK and self.windowed
        return WeightedStacks(core, place) if stacked else Weighted(core, place)

    # -- what the loop asks --------------------------------------------------------------------------------

    def columns(self) -> Columns:
        extra = [("count", "i8"), ("missing", "i8")]
        extra += [("older", "i8")] if self.worn else []
        extra += [("now", "i8"), ("begun", "?")] if self.model.uses_age else []
        extra += [named for keeper in self.keepers for named in keeper.fields().items()]
        for pool in self.pools:
            extra += [(f"{pool}_{part}", "i8") for part in ("rows", "begin", "at", "room")]
        return Columns({}, extra=extra)

    def pool_columns(self, table: str) -> Columns:
        return next(keeper.pools()[table] for keeper in self.keepers if table in keeper.pools())

    def reset(self) -> None:
        names = [name for name, _ in self.columns().extra if not name.endswith(("_begin", "_at", "_room"))]
        for name in names:
            self.out.line(f"{self.record}.{name} = 0")

    def bind_last(self, started: str) -> None:
        del started

    def bound_of(self, state: State) -> int | None:
        answering = (State.INITIALIZE, State.ITERATE) if self.windowed else (State.TERMINATE,)
        return int(state in answering)

    def returns_at_steps(self) -> bool:
        return self.windowed

    def needs_window(self) -> bool:
        return True

    @property
    def one_body(self) -> bool:
        return True

    @property
    def answers_once(self) -> bool:
        return self.windowed

    # -- statements ----------------------------------------------------------------------------------------

    def statements(self, state: State, bound: bool = True) -> None:
        self._state, self._bound = state, bound
        if state is State.TERMINATE:
            self._answer()
        elif state is State.EXPIRE:
            self._left()
        else:
            self._came()
            if self.windowed:
                self._answer()

    def _came(self) -> None:
        out, record = self.out, self.record
        if self.model.uses_age:
            at = self._given_at()
            out.line(f"passed = ({at} - {record}.now) * 1e-6 if {record}.begun else 0.0")
            out.line(f"{record}.now, {record}.begun = {at}, True")
            for keeper in self.keepers:
                keeper.aged(self.worn)
        names, known = self._element()
        with out.block(f"if {known}:"):
            out.line(f"{record}.count += 1")
            for core, keeper in zip(self.model.cores, self.keepers, strict=True):
                if isinstance(keeper, Recomputed):
                    keeper.keep(names, f"{record}.now")
                else:
                    keeper.came(self._formulas.pair(core.transform), self.worn)
        with out.block("else:"):
            out.line(f"{record}.missing += 1")

    def _left(self) -> None:
        out, record = self.out, self.record
        _, known = self._element()
        worn = [keeper for keeper in self.keepers if keeper.worn]
        if self.model.uses_age:
            out.line(f"age = ({record}.now - {self._given_at()}) * 1e-6")
        with out.block(f"if {known}:"):
            if self.worn:
                with out.block(f"if {record}.older == 0:"):
                    out.line(f"{record}.older = {record}.count")
                    for keeper in worn:
                        keeper.begin_again()
            for core, keeper in zip(self.model.cores, self.keepers, strict=True):
                again = isinstance(keeper, Recomputed)
                keeper.left(_NOTHING if again else self._formulas.pair(core.transform))
            out.line(f"{record}.count -= 1")
            if self.worn:
                out.line(f"{record}.older -= 1")
                with out.block(f"if {record}.older == 0:"):
                    for keeper in worn:
                        keeper.renew()
        with out.block("else:"):
            out.line(f"{record}.missing -= 1")

    def _given_at(self) -> str:
        self.shared.facts.add(f"{self.record} reads at")
        return self._current("at").value

    def _element(self) -> tuple[dict[str, Pair], str]:
        """The columns of the tuple at hand, and the text of whether it is an element at all."""
        names: dict[str, Pair] = {}
        parts = [part for core in self.model.cores for part in uniform_parts(core.transform)]
        for parameter in self.model.parameters:
            if not any(_uses(part, parameter) for part in parts):
                continue
            self.shared.facts.add(f"{self.record} reads {parameter}")
            code = self._current(parameter)
            name = self.out.fresh("x")
            known = f"abs({code.value}) < np.inf"
            known = known if code.known else f"not {code.null} and {known}"
            self.out.line(f"{name} = {code.value} if {known} else np.nan")
            names[parameter] = name, "0.0"
        formulas = Formulas(self.out, names)
        highs = [formulas.pair(part)[0] for part in dict.fromkeys(parts)]
        tests = [f"abs({high}) < np.inf" for high in dict.fromkeys(highs)]
        for core in self.model.cores:
            if core.aggregate in _WHOLE and not core.blocked:
                tests.append(f"abs({formulas.pair(core.transform)[0]}) < 9.2e18")
        self._formulas = formulas
        return names, " and ".join(tests) or "True"

    def _answer(self) -> None:
        out = self.out
        names = self._values()
        high, _ = Formulas(out, names, rounded=True).pair(self.model.result)
        null = f"not abs({high}) < np.inf"
        if self.model.nulls is Nulls.POISON:
            null += f" or {self.record}.missing > 0"
        value = f"{high} != 0.0" if self.model.is_condition else high
        out.line(f"answer_null = {null}")
        self.give([Code(value, "answer_null")])

    def _values(self) -> dict[str, Pair]:
        """What the cores come to, and the values of the whole window that some of them need first."""
        names: dict[str, Pair] = {}

        def need(name: str) -> None:
            if name in names:
                return
            if name in lets:
                for other in sorted(symbols_of(lets[name])):
                    need(other)
                names[name] = Formulas(self.out, names, rounded=True).pair(lets[name])
                return
            number = int(name.removeprefix("c"))
            keeper = self.keepers[number]
            for scalar in self.model.cores[number].scalars:
                need(scalar)
            if isinstance(keeper, Recomputed):
                keeper.names = names
            names[name] = keeper.value()

        lets = dict(self.model.lets)
        for number in range(len(self.keepers)):
            need(f"c{number}")
        return names

    def _make_room(self, pool: str) -> None:
        record, out = self.record, self.out
        at, rows, begin, room = (f"{record}.{pool}_{part}" for part in ("at", "rows", "begin", "room"))
        with out.block(f"if {at} + {rows} == {begin} + {room}:"):
            heads = ", ".join(
                f'{record.upper()}["{pool}_{part}"]' for part in ("begin", "at", "rows", "room")
            )
            array = self.array(pool)
            out.line(f"{array} = ops.more_room({array}, {array}_top, {heads}, {self.place})")


def _uses(expr: Expr, parameter: str) -> bool:
    return Column(parameter) in walk(expr)
