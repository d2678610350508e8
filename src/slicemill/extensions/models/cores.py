"""Core statistics of a model: extraction from the formula, classification and centring.

A model is a formula over a window. A core statistic (`Core`) is a sum, count or extreme over the window from
which the model's result is computed. For example, mean(x) is computed from the core statistics sum(x) and
sum(1). An element is a row of the window. Its position i counts from the oldest element, its age is the time
to the newest element, and n is the number of elements. When a window slides, old elements expire and new ones
arrive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from functools import cache
from itertools import product as combinations
from math import comb

from slicemill.extensions.models.algebra import Monomial, canonical, monomial_expression, polynomial
from slicemill.extensions.models.flow import in_letters
from slicemill.extensions.models.operators import ACCUMULATORS, QUEUE, SEARCHES, Accumulation, Search
from slicemill.extensions.models.terms import (
    AGE,
    CONDITIONS,
    DIMENSION,
    FROM_NEWEST,
    ONE,
    POSITION,
    ZERO,
    Apply,
    Expr,
    Let,
    ModelError,
    Number,
    Parameter,
    Symbol,
    WindowAggregation,
    add,
    expression_text,
    multiply,
    number,
    replace_parts,
    walk,
)
from slicemill.extensions.models.weights import Weight, symbols_of, weight_of


@dataclass(frozen=True, slots=True)
class Core:
    """Core statistic: an aggregate over the window of the expression `weight · transform` of each element.

    `transform` depends only on the element's columns. `weight` depends on its position or age. `blocked` is
    the reason why the core statistic cannot be updated when the window slides, or empty. The transform of a
    blocked core statistic may include positions and the names in `scalars`, which are values of the window.
    Node ids of stored queries depend on the texts of reasons, so these texts must not change.
    """

    aggregate: str
    transform: Expr
    options: tuple[Fraction, ...] = ()
    weight_expr: Expr = ONE
    weight: Weight | None = field(default=None, compare=False)
    blocked: str = ""
    scalars: tuple[str, ...] = ()

    @property
    def accumulator(self) -> Accumulation | None:
        """Return the operator that combines elements, such as +, or None for searches such as max."""
        return ACCUMULATORS.get(self.aggregate)

    @property
    def search(self) -> Search | None:
        return SEARCHES.get(self.aggregate)

    @property
    def argument(self) -> Expr:
        """Return the expression that is aggregated: weight times transform."""
        return self.transform if self.weight_expr == ONE else Apply("*", (self.weight_expr, self.transform))

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(p.name for p in walk(self.transform) if isinstance(p, Parameter)))

    @property
    def counts(self) -> bool:
        """Return True if this core statistic is sum(1), the number of elements n."""
        return self.aggregate == "sum" and self.transform == ONE and self.weight is None and not self.blocked

    @property
    def symbol(self) -> str:
        """Return this core statistic in operator letters, such as Ac[+]·T[x^2] for sum(x^2)."""
        if in_letters(self.aggregate):
            return str(self)
        accumulator = self.accumulator
        head = f"A[{self.aggregate}]" if accumulator is None else f"Ac[{accumulator.symbol}]"
        return f"{head}·T[{expression_text(self.argument)}]"

    def __str__(self) -> str:
        return expression_text(WindowAggregation(self.aggregate, self.argument, self.options))


# Extraction of core statistics from a formula (C20)

# Names of position (from the oldest, from the newest) and age, on which weights depend
_PLACES = frozenset({"i", "j", "age"})


@dataclass(slots=True)
class CollectedCores:
    """Core statistics of a formula in order of first use, and expressions over their values.

    `result` refers to core statistics by `Symbol("c0")` and so on. `lets` are the values of the whole window
    that core statistics need, in order of evaluation. `effects` describe where the rewrite rules R9 (share
    equal parts) and R10 (move a constant factor out of a sum) were applied.
    """

    cores: list[Core] = field(default_factory=list)
    lets: dict[str, Expr] = field(default_factory=dict)
    result: Expr = ZERO
    effects: dict[tuple[str, str], None] = field(default_factory=dict)

    def reference(self, core: Core) -> Expr:
        if core not in self.cores:
            self.cores.append(core)
        else:
            self.effects["R9", f"{'n' if core.counts else core} is stored once"] = None
        return Symbol(f"c{self.cores.index(core)}")

    def record_pulled_factor(self, factor: Expr, core: Core) -> None:
        """Record that a constant factor was moved out of a sum (rule R10)."""
        if factor != ONE:
            written = WindowAggregation("sum", multiply(factor, core.argument))
            before = multiply(factor, Symbol("n") if core.counts else Symbol(str(core)))
            self.effects["R10", f"{expression_text(written)} is {expression_text(before)}"] = None


def collect(expr: Expr) -> CollectedCores:
    """Extract the core statistics of a formula: the aggregates from which its result is computed.

    >>> from slicemill.extensions.models.parse import parse
    >>> collected = collect(parse("let m = mean(x) in sum((x - m)^2)"))
    >>> [str(core) for core in collected.cores]
    ['sum(x)', 'sum(1)', 'sum(x^2)']
    """
    _check_levels(expr, inside=False)
    collected = CollectedCores()
    collected.result = _scalar(expr, {}, collected)
    _drop_unused(collected)
    return collected


def _check_levels(expr: Expr, inside: bool) -> None:
    if isinstance(expr, WindowAggregation):
        if inside:
            raise ModelError(
                f"{expr} stands inside another aggregate: name it first, as in let m = {expr} in …"
            )
        _check_levels(expr.argument, inside=True)
        return
    if not inside and (isinstance(expr, Parameter) or expr in (POSITION, AGE)):
        what = "a column" if isinstance(expr, Parameter) else "a property of elements"
        raise ModelError(f"{expr} is {what}, outside an aggregate it has no single value: write sum({expr}), "
                         f"mean({expr}), max({expr}), …")  # fmt: skip
    if isinstance(expr, Apply):
        for argument in expr.arguments:
            _check_levels(argument, inside)
    elif isinstance(expr, Let):
        if inside:
            raise ModelError(f"let {expr.name} stands inside an aggregate: write it in front")
        _check_levels(expr.value, inside=False)
        _check_levels(expr.body, inside=False)


def _scalar(expr: Expr, lets: Mapping[str, Expr], into: CollectedCores) -> Expr:
    """Replace the aggregates in an expression by references to core statistics."""
    match expr:
        case WindowAggregation():
            return _aggregate(expr, lets, into)
        case Let(name, value, body):
            computed = _scalar(value, lets, into)
            into.lets[name] = computed
            return _scalar(body, {**lets, name: computed}, into)
        case Symbol(name):
            if expr == DIMENSION:
                return into.reference(Core("sum", ONE))
            return lets.get(name, expr)
        case Apply(function, arguments):
            return Apply(function, tuple(_scalar(argument, lets, into) for argument in arguments))
    return expr


def _aggregate(expr: WindowAggregation, lets: Mapping[str, Expr], into: CollectedCores) -> Expr:
    if in_letters(expr.name):
        reason = "letters that no expression says: the window is read as a vector"
        return into.reference(Core(expr.name, canonical(expr.argument), blocked=reason))
    if expr.name == "sum" and _cancels(expr.argument):
        return into.reference(Core(expr.name, expr.argument))
    if expr.name == "sum":
        parts = [_term(monomial, factor) for monomial, factor in _terms(expr.argument)]
        blocked = [part for part in parts if isinstance(part, str)]
        if not blocked:
            result: Expr = ZERO
            for part in parts:
                assert not isinstance(part, str)
                outside, core = part
                into.record_pulled_factor(outside, core)
                scaled = multiply(_scalar(outside, lets, into), into.reference(core))
                result = scaled if result == ZERO else add(result, scaled)
            return _tidy(result)
        reason = blocked[0]
    else:
        argument = canonical(expr.argument)
        used = symbols_of(argument)
        if not used:
            condition = isinstance(argument, Apply) and argument.function in CONDITIONS
            if expr.name in ("all", "any") and not condition:
                raise ModelError(f"{expr.name} needs a condition, as in {expr.name}({argument} > 0)")
            return into.reference(Core(expr.name, argument, expr.options))
        reason = _why_not_uniform(used)
    argument = canonical(expr.argument)
    scalars = tuple(sorted(symbols_of(argument) - _PLACES - {"n"}))
    return into.reference(Core(expr.name, argument, expr.options, blocked=reason, scalars=scalars))


def _cancels(argument: Expr) -> bool:
    """Return True if expanding a sum's argument would cause cancellation (C24).

    An example is (x - y)^2.
    """
    if symbols_of(argument):
        return False
    terms = polynomial(argument).terms
    degree = max((sum(power for _, power in monomial) for monomial, _ in terms), default=0)
    return degree > 1 and len({factor > 0 for _, factor in terms}) > 1


def _why_not_uniform(used: frozenset[str]) -> str:
    if "i" in used:
        return "not uniform: uses position i"
    if "age" in used:
        return "not uniform: uses age"
    if "n" in used:
        return "not uniform: uses the dimension n for each element"
    return f"uses {', '.join(sorted(used))}, which is known only when the window has been read once"


def _terms(argument: Expr) -> list[tuple[Monomial, Fraction]]:
    """Expand the argument of a sum into a sum of products, each with a constant factor.

    The factors of a product are functions of the element's columns, of its position or age, or of the window.
    """
    separated = polynomial(replace_parts(canonical(argument), _addition_formula))
    terms: list[tuple[Monomial, Fraction]] = []
    for monomial, factor in separated.terms:
        if _grows(monomial):
            # Growing weights decay if positions count from the newest element, and then do not overflow.
            turned = replace_parts(monomial_expression(monomial, factor), _from_newest)
            terms += polynomial(replace_parts(canonical(turned), _addition_formula)).terms
        else:
            terms.append((monomial, factor))
    return terms


def _grows(monomial: Monomial) -> bool:
    places = tuple((atom, power) for atom, power in monomial if symbols_of(atom) == {"i"})
    weight = weight_of(places, POSITION)
    return weight is not None and weight.growing


def _from_newest(expr: Expr) -> Expr | None:
    return Apply("-", (DIMENSION, FROM_NEWEST)) if expr == POSITION else None


def _addition_formula(expr: Expr) -> Expr | None:
    """Expand cos(a + b) and sin(a + b), where only b depends on the element's position or age."""
    match expr:
        case Apply("cos" | "sin" as name, (argument,)):
            terms = polynomial(argument).terms
            moving = [term for term in terms if symbols_of(monomial_expression(term[0])) & _PLACES]
            fixed = [term for term in terms if term not in moving]
            if not moving or not any(symbols_of(monomial_expression(m)) for m, _ in fixed):
                return None
            a, b = (_sum_of(part) for part in (fixed, moving))
            both = {f: (Apply(f, (a,)), Apply(f, (b,))) for f in ("cos", "sin")}
            cos, sin = both["cos"], both["sin"]
            if name == "cos":
                return Apply("-", (multiply(*cos), multiply(*sin)))
            return add(multiply(sin[0], cos[1]), multiply(cos[0], sin[1]))
    return None


def _sum_of(terms: list[tuple[Monomial, Fraction]]) -> Expr:
    result: Expr = ZERO
    for monomial, factor in terms:
        result = add(result, monomial_expression(monomial, factor))
    return canonical(result)


def _term(monomial: Monomial, factor: Fraction) -> tuple[Expr, Core] | str:
    """Split one product of a sum's argument into a factor outside of the sum and a core statistic.

    If the core statistic cannot be updated when the window slides, return the reason instead.
    """
    outside: list[tuple[Expr, int]] = []
    places: list[tuple[Expr, int]] = []
    elements: list[tuple[Expr, int]] = []
    for atom, power in monomial:
        used = symbols_of(atom)
        of_element = any(isinstance(part, Parameter) for part in walk(atom))
        if not used:
            (elements if of_element else outside).append((atom, power))
        elif used <= _PLACES:
            if of_element:
                why = _why_not_uniform(used)
                return f"{why}, which cannot be told from the element in {expression_text(atom)}"
            places.append((atom, power))
        elif used & _PLACES:
            within = expression_text(atom)
            return f"not uniform: in {within} the weight of each position changes with the dimension n"
        elif of_element:
            return _why_not_uniform(used)
        else:
            outside.append((atom, power))
    scale = monomial_expression(tuple(outside), factor)
    transform = monomial_expression(tuple(elements))
    if not places:
        return scale, Core("sum", transform)
    weight_expr = monomial_expression(tuple(places))
    variables = frozenset().union(*(symbols_of(atom) for atom, _ in places))
    if len(variables) > 1:
        return f"not uniform: {expression_text(weight_expr)} uses both position and age"
    weight = weight_of(tuple(places), Symbol(next(iter(variables))))
    if weight is None:
        name, weights = _name(variables), expression_text(weight_expr)
        return f"not uniform: uses {name}, and weights {weights} are not closed under shifts"
    return scale, Core("sum", transform, weight_expr=weight_expr, weight=weight)


def _name(variables: frozenset[str]) -> str:
    return "age" if "age" in variables else "position i"


def _tidy(expr: Expr) -> Expr:
    """Simplify an expression: remove factors of 1, and write minus signs for factors of -1."""

    def change(part: Expr) -> Expr | None:
        match part:
            case Apply("*", (left, right)) if left == ONE:
                return right
            case Apply("*", (left, right)) if right == ONE:
                return left
            case Apply("*", (Number(value), right)) if value == -1:
                return Apply("neg", (right,))
            case Apply("+", (left, Apply("neg", (right,)))):
                return Apply("-", (left, right))
        return None

    return replace_parts(expr, change)


def _drop_unused(collected: CollectedCores) -> None:
    """Drop the `let` values that no core statistic needs for its own computation."""
    needed: set[str] = set()
    for core in collected.cores:
        needed |= set(core.scalars)
    for name in reversed(collected.lets):
        if name in needed:
            needed |= symbols_of(collected.lets[name])
    collected.lets = {name: value for name, value in collected.lets.items() if name in needed}


# Classification of core statistics: incremental or recomputed, and required state (C14, C17, C21)


class CoreKind(StrEnum):
    """Class of a core statistic: how it can be updated when the window slides, from best to worst."""

    INCREMENTAL = "INCREMENTAL"
    SHIFT_INCREMENTAL = "SHIFT_INCREMENTAL"
    TWO_STACK = "TWO_STACK"
    AUX_MEMORY = "AUX_MEMORY"
    BLOCKING = "BLOCKING"

    @property
    def rank(self) -> int:
        return list(CoreKind).index(self)


class CoreMethod(StrEnum):
    """Algorithm that computes a core statistic when the window slides."""

    DELTA = "delta"
    DEQUE = "deque"
    QUEUE = "queue"
    RANKED = "two heaps"
    TWO_STACK = "two stacks"
    RECOMPUTE = "recomputation"


@dataclass(frozen=True, slots=True)
class Classification:
    """Class of a core statistic or model, with the reason, the algorithm and the size of the state.

    `state` is the number of stored values besides the elements of the window. `per_element` is the number of
    stored values per element.
    """

    kind: CoreKind
    reason: str
    way: CoreMethod
    state: int = 0
    per_element: int = 0

    @property
    def state_text(self) -> str:
        parts = (
            [f"{self.state} number{'s' * (self.state != 1)}"] if self.state or not self.per_element else []
        )
        if self.per_element:
            parts.append(f"up to {'' if self.per_element == 1 else f'{self.per_element}·'}n")
        return " and ".join(parts)

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}"


def classify(core: Core) -> Classification:
    """Determine how a core statistic can be updated when the window slides.

    >>> from slicemill.extensions.models.model import expression
    >>> print(classify(expression("max(x)").cores[0]))
    AUX_MEMORY: a search cannot be undone; keeps a deque of candidates, at most n
    """
    if core.blocked:
        return Classification(CoreKind.BLOCKING, core.blocked, CoreMethod.RECOMPUTE)
    search, accumulator = core.search, core.accumulator
    if search is not None:
        way = CoreMethod(search.structure)
        extra = 1 if search.structure == QUEUE else 2
        reason = f"a search cannot be undone; keeps {search.memory}"
        return Classification(CoreKind.AUX_MEMORY, reason, way, per_element=extra)
    assert accumulator is not None, "a core searches or accumulates"
    if core.weight is not None:
        return _classify_weighted(core)
    if accumulator.reversible:
        undone = f"{accumulator.symbol} can be undone"
        if accumulator.counter:
            undone += f" ({accumulator.counter} are counted apart)"
        what = "counts elements" if core.transform == ONE else "uniform"
        state = 2 if accumulator.counter and core.aggregate == "prod" else 1
        return Classification(CoreKind.INCREMENTAL, f"{what}, and {undone}", CoreMethod.DELTA, state)
    reason = f"uniform, but {accumulator.symbol} cannot be undone; it is associative"
    return Classification(CoreKind.TWO_STACK, reason, CoreMethod.TWO_STACK, state=1, per_element=1)


def _classify_weighted(core: Core) -> Classification:
    weight = core.weight
    assert weight is not None
    count = weight.state
    if weight.variable == AGE and count == 1 and not weight.growing and not weight.modes_turn:
        return Classification(
            CoreKind.INCREMENTAL, "exponential decay by age: one factor ages all", CoreMethod.DELTA, 1
        )
    uses = "age" if weight.variable == AGE else "position i"
    unstable = weight.shrinking if weight.variable == POSITION else weight.growing
    if unstable:
        reason = (
            f"not uniform: uses {uses}; weights {core.weight_expr} are closed under shifts, but favour the "
            f"oldest, so that undoing them would magnify rounding errors"
        )
        if weight.variable != POSITION or weight.modes_turn:
            return Classification(CoreKind.BLOCKING, reason, CoreMethod.RECOMPUTE)
        return Classification(
            CoreKind.TWO_STACK, reason, CoreMethod.TWO_STACK, state=count, per_element=count
        )
    values = f"{count} value{'s' * (count != 1)}"
    reason = f"not uniform: uses {uses}, but weights {core.weight_expr} are closed under shifts with {values}"
    return Classification(CoreKind.SHIFT_INCREMENTAL, reason, CoreMethod.DELTA, count)


def worst(classes: Sequence[Classification]) -> Classification:
    """Return the class of a model: the worst class of its core statistics."""
    if not classes:
        return Classification(CoreKind.INCREMENTAL, "a constant: reads no element", CoreMethod.DELTA)
    hardest = max(classes, key=lambda each: each.kind.rank)
    state = sum(each.state for each in classes)
    return Classification(
        hardest.kind, hardest.reason, hardest.way, state, sum(each.per_element for each in classes)
    )


# Centring: computation of shift-invariant formulas from distances to a pivot (C24)
#
# A pivot is a number p close to the elements. n·Σx² - (Σx)² has the same value for x and for x - p. With
# distances x - p, the sums of powers are small, so that subtracting them loses few digits. For example, the
# kurtosis of 1e9 + noise equals the kurtosis of the noise. A mean is not shift-invariant, and is computed
# from Σx itself.
#
# In a formula, `c3` is the value of core statistic 3, and `d3` is its value if distances from the pivots
# replace the elements. `u3` is the same for a sum of first degree. No separate sum is stored for `u3`,
# because Σ(x - p) is Σx - n·p.


_PIVOT = "pivot of "


def powers(core: Core) -> Monomial | None:
    """Return what a core statistic sums up as a product of integer powers, such as x^2·y.

    Return None if it is not a plain sum of such a product.
    """
    if core.aggregate != "sum" or core.weight is not None or core.blocked or core.transform == ONE:
        return None
    ((monomial, factor), *more) = polynomial(core.transform).terms
    plain = not more and factor == 1 and all(power > 0 for _, power in monomial)
    return monomial if plain and monomial else None


def degree(monomial: Monomial) -> int:
    return sum(power for _, power in monomial)


def centre_formula(expr: Expr, cores: Sequence[Core]) -> Expr:
    """Rewrite the shift-invariant parts of a formula to distances from pivots (C24).

    A pivot is a number close to the elements. In the result, `d2` is core statistic 2 over distances from the
    pivots, and `u0` is the sum 0 over distances from a pivot.

    >>> from slicemill.extensions.models.model import expression
    >>> model = expression("mean(x) + var_pop(x)")
    >>> [str(core) for core in model.cores], centre_formula(model.result, model.cores)
    (['sum(x)', 'sum(1)', 'sum(x^2)'], c0/c1 + nonnegative(c1*d2 - u0*u0)/c1^2)
    """
    if not isinstance(expr, Apply) or not any(_degree(part, cores) > 1 for part in walk(expr)):
        return expr
    if _is_shift_invariant(expr, tuple(cores)):
        return replace_parts(expr, lambda part: _near(part, cores))
    return Apply(expr.function, tuple(centre_formula(argument, cores) for argument in expr.arguments))


def core_number(expr: Expr) -> int | None:
    """Return the index of the core statistic to which a symbol such as `c3`, `d3` or `u3` refers."""
    if isinstance(expr, Symbol) and expr.name[0] in "cdu" and expr.name[1:].isdigit():
        return int(expr.name[1:])
    return None


def _degree(expr: Expr, cores: Sequence[Core]) -> int:
    number = core_number(expr)
    monomial = None if number is None else powers(cores[number])
    return 0 if monomial is None else degree(monomial)


def _near(expr: Expr, cores: Sequence[Core]) -> Expr | None:
    degree = _degree(expr, cores)
    return None if not degree else Symbol(f"{'u' if degree == 1 else 'd'}{core_number(expr)}")


@cache
def _is_shift_invariant(expr: Expr, cores: tuple[Core, ...]) -> bool:
    """Return True if adding a constant to all elements does not change the expression's value."""
    moved = replace_parts(expr, lambda part: _expand_shift(part, cores))
    return not any(
        isinstance(part, Symbol) and part.name.startswith(_PIVOT)
        for monomial, _ in polynomial(moved).terms
        for atom, _ in monomial
        for part in walk(atom)
    )


def _expand_shift(expr: Expr, cores: Sequence[Core]) -> Expr | None:
    """Expand a symbol such as `c3`, a sum of powers of x, for elements x + pivot in place of x."""
    number_of_core = core_number(expr)
    if number_of_core is None:
        return None
    if cores[number_of_core].counts:
        return DIMENSION
    monomial = powers(cores[number_of_core])
    if monomial is None:
        return None
    result: Expr = ZERO
    for left in combinations(*(range(power + 1) for _, power in monomial)):
        of = tuple((atom, rest) for (atom, _), rest in zip(monomial, left, strict=True) if rest)
        term: Expr = Symbol(f"sum of {expression_text(monomial_expression(of))}") if of else DIMENSION
        for (atom, power), rest in zip(monomial, left, strict=True):
            if rest < power:
                moved_by = Apply("^", (Symbol(f"{_PIVOT}{expression_text(atom)}"), number(power - rest)))
                term = multiply(multiply(number(comb(power, rest)), moved_by), term)
        result = add(result, term)
    return result
