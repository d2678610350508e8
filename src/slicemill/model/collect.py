"""Extraction of cores from an expression (C20): level check, collection, sharing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from slicemill.model.algebra import Monomial, canonical, monomial_expression, polynomial
from slicemill.model.core import Core
from slicemill.model.flow import in_letters
from slicemill.model.terms import (
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
    multiply,
    shown,
    transformed,
    walk,
)
from slicemill.model.weights import symbols_of, weight_of

_PLACES = frozenset({"i", "j", "age"})


@dataclass(slots=True)
class CollectedCores:
    """Cores in order of first use, and expressions over their values.

    `result` refers to cores by `Symbol("c0")` and so on. `lets` are the values that blocked cores need, in
    order of evaluation. `effects` describe applications of the rules R9 and R10.
    """

    cores: list[Core] = field(default_factory=list)
    lets: dict[str, Expr] = field(default_factory=dict)
    result: Expr = ZERO
    effects: dict[tuple[str, str], None] = field(default_factory=dict)

    def reference(self, core: Core) -> Expr:
        if core not in self.cores:
            self.cores.append(core)
        else:
            self.effects["R9", f"{'n' if core.counts else core} is kept once"] = None
        return Symbol(f"c{self.cores.index(core)}")

    def pulled(self, factor: Expr, core: Core) -> None:
        """Record that a factor was moved out of a sum."""
        if factor != ONE:
            written = WindowAggregation("sum", multiply(factor, core.argument))
            before = multiply(factor, Symbol("n") if core.counts else Symbol(str(core)))
            self.effects["R10", f"{shown(written)} is {shown(before)}"] = None


def collect(expr: Expr) -> CollectedCores:
    """Extract the cores of an expression.

    >>> from slicemill.model.parse import parse
    >>> found = collect(parse("let m = mean(x) in sum((x - m)^2)"))
    >>> [str(core) for core in found.cores]
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
    """Replace aggregates in an expression by references to cores."""
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
                into.pulled(outside, core)
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
                raise ModelError(f"{expr.name} asks for a condition, as in {expr.name}({argument} > 0)")
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
    """Expand an argument into terms that separate elements, weights and window values."""
    separated = polynomial(transformed(canonical(argument), _addition_formula))
    terms: list[tuple[Monomial, Fraction]] = []
    for monomial, factor in separated.terms:
        if _grows(monomial):
            # Growing weights become decaying weights if counted from the newest element. Decaying weights
            # neither overflow nor magnify rounding errors.
            turned = transformed(monomial_expression(monomial, factor), _from_newest)
            terms += polynomial(transformed(canonical(turned), _addition_formula)).terms
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
    """Expand cos(a + b) and sin(a + b) where only b varies."""
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
    """Return the outer factor and the core, or why there is none."""
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
                return f"{_why_not_uniform(used)}, which cannot be told from the element in {shown(atom)}"
            places.append((atom, power))
        elif used & _PLACES:
            return f"not uniform: in {shown(atom)} the weight of each position changes with the dimension n"
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
        return f"not uniform: {shown(weight_expr)} uses both position and age"
    weight = weight_of(tuple(places), Symbol(next(iter(variables))))
    if weight is None:
        name, weights = _name(variables), shown(weight_expr)
        return f"not uniform: uses {name}, and weights {weights} are not closed under shifts"
    return scale, Core("sum", transform, weight_expr=weight_expr, weight=weight)


def _name(variables: frozenset[str]) -> str:
    return "age" if "age" in variables else "position i"


def _tidy(expr: Expr) -> Expr:
    """Remove factors of 1."""

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

    return transformed(expr, change)


def _drop_unused(collected: CollectedCores) -> None:
    """Drop `let` values that no blocked core needs."""
    needed: set[str] = set()
    for core in collected.cores:
        needed |= set(core.scalars)
    for name in reversed(collected.lets):
        if name in needed:
            needed |= symbols_of(collected.lets[name])
    collected.lets = {name: value for name, value in collected.lets.items() if name in needed}
