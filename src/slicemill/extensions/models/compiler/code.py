"""Code generator for models over one window: code for arriving and expiring rows, and for results.

A model is a formula over a window. A core statistic is a sum, count or extreme over the window from which the
model's result is computed, and an accumulator is its stored state. An element is a row that a model includes.
Models over one window are compiled together, so that equal core statistics are stored once
(`slicemill.extensions.models.joint`). An accumulator with rounding errors or lost digits is rebuilt from the
window, independently of other accumulators. So a result is bitwise equal whichever other models run. Methods
append lines of Python code to a `Writer`. This code runs in the compiled loop over rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from slicemill.aggregates.udf.compiler.layout import Code, RecordColumns
from slicemill.aggregates.udf.compiler.version import Version
from slicemill.catalog.aggregates import BodyState
from slicemill.extensions.models.compiler.accumulators import (
    AccumulatorCode,
    AccumulatorTarget,
    LetteredCore,
    RecomputedCore,
    simple_accumulator,
)
from slicemill.extensions.models.compiler.expressions import Formulas, Pair
from slicemill.extensions.models.compiler.weighted import PivotCode, ShiftedWeightedSum, WeightedStacks
from slicemill.extensions.models.cores import CoreMethod, classify, core_number, powers
from slicemill.extensions.models.flow import in_letters
from slicemill.extensions.models.joint import Condition, FilteredCore, joint
from slicemill.extensions.models.model import Nulls, models_of
from slicemill.extensions.models.terms import Expr, Number, Parameter, Symbol, walk
from slicemill.extensions.models.weights import symbols_of

_NOTHING = ("0.0", "0.0")

# Greatest absolute value of 64-bit integers
_LONGEST_WHOLE = "9.2e18"

# Record fields that describe a partition's block in a pool
_HEADS = ("rows", "begin", "at", "room")


class ModelCode:
    """Code generator for one or more models over one window, or over an unbounded stream.

    The accumulators of the models' core statistics (sums, counts, extremes) are the state. `windowed` is True
    if rows expire.
    """

    def __init__(self, version: Version) -> None:
        self.version = version
        self.out, self.shared = version.out, version.shared
        self.definition, self.record = version.definition, version.record
        self.models = models_of(self.definition)
        self.windowed = self.definition.window
        self.joint = joint(self.models, finite=not self.shared.nullable)
        self.accumulators: list[AccumulatorCode] = [
            self._accumulator(*numbered) for numbered in enumerate(self.joint.cores)
        ]
        self.pools = [pool for accumulator in self.accumulators for pool in accumulator.pools()]
        self.pivots = self._pivots()
        self._arguments = dict(zip(self.models[0].parameters, self.definition.arguments.names, strict=False))
        self._uses_age = any(model.uses_age for model in self.models)
        self.result_test = "True"  # code expression that is true if an arriving tuple returns a result

    def _accumulator(self, number: int, filtered: FilteredCore) -> AccumulatorCode:
        core, way = filtered.core, classify(filtered.core).way
        count = f"{self.record}.count{self.joint.condition_sets.index(filtered.conditions)}"
        target = AccumulatorTarget(self.out, self.record, number, count, self._make_room)
        if way is CoreMethod.RECOMPUTE or self._is_recomputed(filtered):
            return LetteredCore(core, target) if in_letters(core.aggregate) else RecomputedCore(core, target)
        if core.weight is None:
            return simple_accumulator(core, target, weighed=self.windowed and not filtered.centred)
        # Without a window no element expires, so a weighted sum never has to subtract an element.
        stacked = way is CoreMethod.TWO_STACK and self.windowed
        return WeightedStacks(core, target) if stacked else ShiftedWeightedSum(core, target)

    def _is_recomputed(self, filtered: FilteredCore) -> bool:
        """Return True if recomputing a core statistic for each result is cheaper than updating it (C18).

        Sums of distances from a pivot are always updated.
        """
        return self.windowed and not filtered.centred and str(filtered.core) in self.definition.options

    def _pivots(self) -> dict[tuple[frozenset[Condition], Expr], PivotCode]:
        """Return the code generators of pivots, by the conditions of elements and the centred expression.

        A pivot is a number close to the expression's values, from which centred sums use distances.
        """
        pivots: dict[tuple[frozenset[Condition], Expr], PivotCode] = {}
        sums = self._sums_about_pivots()
        for number, core in enumerate(self.joint.cores):
            vector = self.joint.condition_sets.index(core.conditions)
            for atom, _ in powers(core.core) or ():
                if core.centred or number in sums:
                    end, count = f"{len(pivots)}", f"{self.record}.count{vector}"
                    pivot = PivotCode(self.out, self.record, end, count, self.windowed)
                    pivots.setdefault((core.conditions, atom), pivot)
        return pivots

    def _by_conditions(
        self,
    ) -> Iterator[tuple[str, frozenset[Condition], list[AccumulatorCode]]]:
        """Yield the accumulators, grouped by the conditions that rows must satisfy to be included.

        Each group has the suffix of its record fields, its conditions and its accumulators.
        """
        for number, conditions in enumerate(self.joint.condition_sets):
            both = zip(self.joint.cores, self.accumulators, strict=True)
            yield (
                str(number),
                conditions,
                [code for filtered, code in both if filtered.conditions == conditions],
            )

    def _pivots_of(self, filtered: FilteredCore) -> list[PivotCode]:
        return [
            self.pivots[filtered.conditions, atom]
            for atom, _ in powers(filtered.core) or ()
            if filtered.centred
        ]

    def _filtered_core(self, accumulator: AccumulatorCode) -> FilteredCore:
        return self.joint.cores[accumulator.target.number]

    # -- methods that the loop generator calls --------------------------------------------------------------

    @property
    def parts(self) -> int:
        return len(self.models)

    def columns(self) -> RecordColumns:
        extra: list[tuple[str, str]] = []
        for end, _, _ in self._by_conditions():
            extra += [(f"{name}{end}", "i8") for name in ("count", "missing", "removed")]
        for pivot in self.pivots.values():
            extra += pivot.fields().items()
        extra += [("now", "i8"), ("begun", "?")] if self._uses_age else []
        for accumulator in self.accumulators:
            extra += self._fields(accumulator).items()
        return RecordColumns({}, extra=extra)

    def _fields(self, accumulator: AccumulatorCode) -> dict[str, str]:
        """Return all record fields of an accumulator, with their types."""
        fields = dict(accumulator.fields())
        if _may_overflow(accumulator):
            fields[accumulator.target.name("huge")] = "i8"
        for pool in accumulator.pools():
            fields |= {f"{pool}_{part}": "i8" for part in _HEADS}
        return fields

    def origins(self, other: ModelCode, numbers: Sequence[int]) -> tuple[dict[str, str], dict[str, str]]:
        """Map the state of generated code for more models to the state of this code.

        `numbers` are the indexes of these models in `other`. `other` has at least as many models, and may
        share state that is separate here. Return the record fields and pools of `other` by their names here.
        """
        fields: dict[str, str] = {}
        pools: dict[str, str] = {}
        for here, there in enumerate(numbers):
            new = self.joint.condition_sets.index(self.joint.conditions[here])
            old = other.joint.condition_sets.index(other.joint.conditions[there])
            fields |= {f"{part}{new}": f"{part}{old}" for part in ("count", "missing", "removed")}
            for index, origin in zip(self.joint.indices[here], other.joint.indices[there], strict=True):
                to, of = self.accumulators[index], other.accumulators[origin]
                fields |= dict(zip(self._fields(to), other._fields(of), strict=True))
                both = zip(
                    self._pivots_of(self._filtered_core(to)),
                    other._pivots_of(other._filtered_core(of)),
                    strict=True,
                )
                for new_pivot, old_pivot in both:
                    fields |= dict(zip(new_pivot.fields(), old_pivot.fields(), strict=True))
                pools |= {
                    self.version.array(new_pool): other.version.array(old_pool)
                    for new_pool, old_pool in zip(to.pools(), of.pools(), strict=True)
                }
        return fields, pools

    def pool_columns(self, table: str) -> RecordColumns:
        return next(
            accumulator.pools()[table] for accumulator in self.accumulators if table in accumulator.pools()
        )

    def reset(self) -> None:
        names = [name for name, _ in self.columns().extra if not name.endswith(("_begin", "_at", "_room"))]
        for name in names:
            self.out.line(f"{self.record}.{name} = 0")

    def bind_last(self, started: str) -> None:
        del started

    def bound_of(self, state: BodyState) -> int | None:
        answering = (BodyState.INITIALIZE, BodyState.ITERATE) if self.windowed else (BodyState.TERMINATE,)
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

    # -- code for arriving and expiring rows ---------------------------------------------------------------

    def statements(self, state: BodyState, bound: bool = True) -> None:
        self.version.state, self.version.bound = state, bound
        if state is BodyState.TERMINATE:
            self.answer()
        elif state is BodyState.EXPIRE:
            self._write_expiry()
        else:
            self._write_arrival()
            if self.windowed and self.result_test != "False":
                with (
                    nullcontext() if self.result_test == "True" else self.out.block(f"if {self.result_test}:")
                ):
                    self.answer()

    def _write_arrival(self) -> None:
        """Write code for an arriving row, which first rebuilds accumulators that have lost digits.

        The arriving row is the newest row in the window.
        """
        if not self.windowed or not any(accumulator.inexact for accumulator in self.accumulators):
            self._write_element_arrival(is_newest="")
            return
        out = self.out
        out.line("newest = k.window_rows - 1")
        out.line("begin = newest")
        self._write_resets()
        with out.block("for j in range(begin, newest + 1):"):
            assert self.version.window is not None, "only code for windows rebuilds accumulators"
            self.version.bind(self._window_row("j"), self.version.window.types)
            self._write_element_arrival(is_newest="j == newest")

    def _write_resets(self) -> None:
        """Write code that resets the accumulators and pivots that must be rebuilt from the window."""
        out, record = self.out, self.record
        inexact: list[AccumulatorCode] = []
        for end, conditions, accumulators in self._by_conditions():
            due = f"{record}.removed{end} >= {record}.count{end}"
            for (of, _), pivot in self.pivots.items():
                if of == conditions:
                    out.line(f"{pivot.replacing} = {due} or {pivot.replacement_test()}")
            for accumulator in accumulators:
                if accumulator.inexact:
                    inexact.append(accumulator)
                    tests = [pivot.replacing for pivot in self._pivots_of(self._filtered_core(accumulator))]
                    tests = tests or [due, *filter(None, [accumulator.rebuild_test()])]
                    out.line(f"{accumulator.rebuilding} = {' or '.join(tests)}")
        with out.block(f"if {' or '.join(accumulator.rebuilding for accumulator in inexact)}:"):
            out.line("begin = 0")
            for end, _, _ in self._by_conditions():
                with out.block(f"if {record}.removed{end} >= {record}.count{end}:"):
                    out.line(f"{record}.removed{end} = 0")
                out.line(f"{record}.count{end} = {record}.missing{end} = 0")
            for rebuilding, names in (
                *((pivot.replacing, pivot.fields()) for pivot in self.pivots.values()),
                *((accumulator.rebuilding, self._fields(accumulator)) for accumulator in inexact),
            ):
                with out.block(f"if {rebuilding}:"):
                    for name in names:
                        out.line(f"{record}.{name} = 0")

    def _window_row(self, row: str) -> list[Callable[[], Code]]:
        assert self.version.window is not None
        return [partial(self._window_column, index, row) for index in range(len(self.version.window.types))]

    def _window_column(self, index: int, row: str) -> Code:
        assert self.version.window is not None
        self.shared.facts.add(f"window keeps {index}")
        text = f"{self.version.window.row(row)}.a{index}"
        return Code(text, self.shared.null(f"window {index}", f"{text}_null"))

    def _write_element_arrival(self, is_newest: str) -> None:
        """Write code that adds one row to the accumulators.

        During a rebuild, the code runs for each row of the window. Accumulators that are not rebuilt then
        process only the newest row, for which the code expression `is_newest` is true.
        """
        out, record = self.out, self.record
        if self._uses_age:
            at = self._tuple_time()
            goes_on = " and (j > begin or begin == newest)" if is_newest else ""
            out.line(f"passed = ({at} - {record}.now) * 1e-6 if {record}.begun{goes_on} else 0.0")
            out.line(f"{record}.now, {record}.begun = {at}, True")
            for accumulator in self.accumulators:
                with self._if_new_element(accumulator.rebuilding if accumulator.inexact else "", is_newest):
                    accumulator.write_aging()
        names, formulas = self._element()
        images = self._transformed_values(formulas)
        for end, conditions, accumulators in self._by_conditions():
            with self._if_element(conditions, formulas, f"missing{end} += 1"):
                out.line(f"{record}.count{end} += 1")
                distances: dict[Expr, Pair] = {}
                for (of, atom), pivot in self.pivots.items():
                    if of == conditions:
                        pivot.choose(formulas.pair(atom))
                        distances[atom] = pivot.distance(formulas.pair(atom))
                        with self._if_new_element(pivot.replacing, is_newest):
                            pivot.add_element(distances[atom])
                near = self._centred_values(accumulators, names, distances)
                for accumulator in accumulators:
                    with self._if_new_element(
                        accumulator.rebuilding if accumulator.inexact else "", is_newest
                    ):
                        if isinstance(accumulator, RecomputedCore):
                            accumulator.store_element(names, f"{record}.now")
                        else:
                            accumulator.add_element(self._element_value(accumulator, {**images, **near}, "+"))

    def _if_new_element(self, rebuilding: str, is_newest: str) -> AbstractContextManager[None]:
        if not is_newest:
            return nullcontext()
        return self.out.block(f"if {' or '.join(filter(None, [rebuilding, is_newest]))}:")

    def _write_expiry(self) -> None:
        out, record = self.out, self.record
        names, formulas = self._element()
        images = self._transformed_values(formulas)
        if self._uses_age:
            out.line(f"age = ({record}.now - {self._tuple_time()}) * 1e-6")
        for end, conditions, accumulators in self._by_conditions():
            with self._if_element(conditions, formulas, f"missing{end} -= 1"):
                out.line(f"{record}.removed{end} += 1")
                distances: dict[Expr, Pair] = {}
                for (of, atom), pivot in self.pivots.items():
                    if of == conditions:
                        distances[atom] = pivot.distance(formulas.pair(atom))
                        pivot.remove_element(distances[atom])
                near = self._centred_values(accumulators, names, distances)
                for accumulator in accumulators:
                    recomputed = isinstance(accumulator, RecomputedCore)
                    image = (
                        _NOTHING if recomputed else self._element_value(accumulator, {**images, **near}, "-")
                    )
                    accumulator.remove_element(image)
                out.line(f"{record}.count{end} -= 1")

    def _tuple_time(self) -> str:
        self.shared.facts.add(f"{self.record} reads at")
        return self.version.current("at").value

    def _element(self) -> tuple[dict[Expr, Pair], Formulas]:
        """Write code that reads the model's columns of the current row.

        Return the names of their values, and a generator for formulas of these columns.
        """
        names: dict[Expr, Pair] = {}
        for column in dict.fromkeys(
            part
            for core in self.joint.cores
            for part in walk(core.core.transform)
            if isinstance(part, Parameter)
        ):
            argument = self._arguments[column.name]
            self.shared.facts.add(f"{self.record} reads {argument}")
            code = self.version.current(argument)
            name = self.out.fresh("x")
            value = code.value
            if self.shared.nullable:
                valid = f"abs({value}) < np.inf"
                valid = valid if code.known else f"not {code.null} and {valid}"
                value = f"{value} if {valid} else np.nan"
            self.out.line(f"{name} = {value}")
            names[column] = name, "0.0"
        return names, Formulas(self.out, names)

    def _transformed_values(self, formulas: Formulas) -> dict[tuple[Expr, bool], Pair]:
        """Write code that computes what the accumulators add for the current row, such as x^2.

        Return the names of the values by expression, with False for expressions that are not centred.
        """
        images: dict[tuple[Expr, bool], Pair] = {}
        for core, accumulator in zip(self.joint.cores, self.accumulators, strict=True):
            key = core.core.transform, False
            if not (core.centred or isinstance(accumulator, RecomputedCore) or key in images):
                images[key] = self._clamp_overflow(accumulator, formulas.pair(core.core.transform))
        for condition in dict.fromkeys(
            condition for conditions in self.joint.condition_sets for condition in conditions
        ):
            formulas.pair(condition.of)  # the code is written here, so that all later code can use the value
        for _, atom in self.pivots:
            formulas.pair(atom)
        return images

    def _centred_values(
        self,
        accumulators: Sequence[AccumulatorCode],
        names: Mapping[Expr, Pair],
        distances: Mapping[Expr, Pair],
    ) -> dict[tuple[Expr, bool], Pair]:
        formulas = Formulas(self.out, names, known=distances)
        return {
            (accumulator.core.transform, True): self._clamp_overflow(
                accumulator, formulas.pair(accumulator.core.transform)
            )
            for accumulator in accumulators
            if self._filtered_core(accumulator).centred
        }

    def _clamp_overflow(self, accumulator: AccumulatorCode, image: Pair) -> Pair:
        """Write code that replaces an infinite value by 0, and sets a flag for the replacement.

        `image` is the value that the accumulator adds for the current row. Return the names of the new value.
        """
        if not _may_overflow(accumulator):
            return image
        name = self.out.fresh("image")
        self.out.line(f"{name}h_huge, {name}h, {name}l = 0, {image[0]}, {image[1]}")
        with self.out.block(f"if not abs({name}h) < np.inf:"):
            self.out.line(f"{name}h_huge, {name}h, {name}l = 1, 0.0, 0.0")
        return f"{name}h", f"{name}l"

    def _element_value(
        self, accumulator: AccumulatorCode, images: Mapping[tuple[Expr, bool], Pair], sign: str
    ) -> Pair:
        """Return the names of the value that an accumulator adds for the current row.

        Write code that counts infinite values. The core statistic has no value while the count is not 0.
        """
        image = images[accumulator.core.transform, self._filtered_core(accumulator).centred]
        if _may_overflow(accumulator):
            self.out.line(f"{accumulator.target.field('huge')} {sign}= {image[0]}_huge")
        return image

    def _if_element(
        self, conditions: frozenset[Condition], formulas: Formulas, otherwise: str
    ) -> AbstractContextManager[None]:
        """Write a condition for the rows that a group of accumulators includes, unless it includes all rows.

        `otherwise` is the change of a record field for other rows.
        """
        if not conditions:
            return nullcontext()
        limits = {condition: _LONGEST_WHOLE if condition.whole else "np.inf" for condition in conditions}
        tests = sorted(
            f"abs({formulas.pair(condition.of)[0]}) < {limit}" for condition, limit in limits.items()
        )
        with self.out.block(f"if not ({' and '.join(tests)}):"):
            self.out.line(f"{self.record}.{otherwise}")
        return self.out.block("else:")

    # -- code for results ----------------------------------------------------------------------------------

    def answer(self) -> None:
        """Write code that computes and returns the current results of the models."""
        out = self.out
        formulas = Formulas(out, self._values(), rounded=True)
        codes = []
        for number, (model, result) in enumerate(zip(self.models, self.joint.results, strict=True)):
            high, _ = formulas.pair(result)
            null = f"not abs({high}) < np.inf"
            if model.nulls is Nulls.POISON:
                end = self.joint.condition_sets.index(self.joint.conditions[number])
                null += f" or {self.record}.missing{end} > 0"
            out.line(f"answer{number}_null = {null}")
            codes.append(Code(f"{high} != 0.0" if model.is_condition else high, f"answer{number}_null"))
        self.version.give(codes)

    def write_values(self) -> tuple[list[Pair], Formulas]:
        """Write code that computes the values of all core statistics.

        Return the names of the values, and a generator for formulas of these values.
        """
        values = self._values()
        pairs = [values[Symbol(f"c{number}")] for number in range(len(self.accumulators))]
        return pairs, Formulas(self.out, values, rounded=True)

    def _values(self) -> dict[Expr, Pair]:
        """Write code that computes the values of all core statistics. Return their names by symbol.

        The `let` values that other core statistics need are computed first.
        """
        names: dict[Expr, Pair] = {}

        def need(name: str) -> None:
            if Symbol(name) in names:
                return
            if name in self.joint.lets:
                for other in sorted(symbols_of(self.joint.lets[name])):
                    need(other)
                names[Symbol(name)] = Formulas(self.out, names, rounded=True).pair(self.joint.lets[name])
                return
            number = core_number(Symbol(name))
            assert number is not None, f"{name} denotes a core statistic"
            if name.startswith("u"):
                need(f"c{number}")
                total = names[Symbol(f"c{number}")]
                names[Symbol(name)] = self._pivot_of_sum(number).sum_of_distances(total)
                return
            accumulator = self.accumulators[number]
            for scalar in accumulator.core.scalars:
                need(scalar)
            if isinstance(accumulator, RecomputedCore):
                accumulator.names = names
            names[Symbol(name)] = self._value(accumulator)

        for number in range(len(self.accumulators)):
            need(f"c{number}")
        for number in self._sums_about_pivots():
            need(f"u{number}")
        return names

    def _sums_about_pivots(self) -> list[int]:
        """Return the indexes of sums Σx of which a formula also uses the sum of distances Σ(x - pivot)."""
        formulas = (*self.joint.results, *self.joint.lets.values())
        names = {part.name for formula in formulas for part in walk(formula) if isinstance(part, Symbol)}
        return [number for number in range(len(self.joint.cores)) if f"u{number}" in names]

    def _pivot_of_sum(self, number: int) -> PivotCode:
        core = self.joint.cores[number]
        ((atom, _),) = powers(core.core) or ()
        return self.pivots[core.conditions, atom]

    def _value(self, accumulator: AccumulatorCode) -> Pair:
        high, low = accumulator.value()
        if not _may_overflow(accumulator):
            return high, low
        name = self.out.fresh("known")
        self.out.line(f"{name} = {high} if {accumulator.target.field('huge')} == 0 else np.nan")
        return name, low

    def _make_room(self, pool: str) -> None:
        record, out = self.record, self.out
        at, rows, begin, room = (f"{record}.{pool}_{part}" for part in ("at", "rows", "begin", "room"))
        with out.block(f"if {at} + {rows} == {begin} + {room}:"):
            heads = ", ".join(
                f'{record.upper()}["{pool}_{part}"]' for part in ("begin", "at", "rows", "room")
            )
            array = self.version.array(pool)
            out.line(f"{array} = ops.more_room({array}, {array}_top, {heads}, {self.version.index})")


def _may_overflow(accumulator: AccumulatorCode) -> bool:
    """Return True if the value that an accumulator adds for an element, such as x^2, may be infinite."""
    return not isinstance(accumulator, RecomputedCore) and not isinstance(
        accumulator.core.transform, Parameter | Number
    )
