"""Cost of computing a model when its window slides, and size of the state, known before execution (C18).

A core statistic is a sum, count or extreme over the window from which a model's result is computed. A slide
removes the d oldest of n elements and appends d new ones. A core statistic is either recomputed from all n
elements (blocking), or updated from the d expired and d new elements (incremental). Costs are calls of three
functions: T, which transforms an element; ⊕, which combines two values; and the inverse of ⊕. The publication
counts 1 addition for a recomputed sum. The correct number is n - 1.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Collection
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from slicemill.extensions.models.cores import Classification, Core, CoreKind, CoreMethod, centre_formula
from slicemill.extensions.models.model import Model
from slicemill.extensions.models.terms import Symbol, walk
from slicemill.kernels.store import cache_folder


@dataclass(frozen=True, slots=True)
class SlideCost:
    """Function calls per slide of a window, and number of values stored besides the window's elements."""

    transforms: int
    combinations: int
    inverses: int
    stored: int

    @property
    def calls(self) -> int:
        return self.transforms + self.combinations + self.inverses

    def __add__(self, other: SlideCost) -> SlideCost:
        return SlideCost(
            self.transforms + other.transforms,
            self.combinations + other.combinations,
            self.inverses + other.inverses,
            self.stored + other.stored,
        )


NOTHING = SlideCost(0, 0, 0, 0)


def blocking(n: int) -> SlideCost:
    """Return the cost of recomputing a core statistic from all n elements of the window."""
    return SlideCost(n, max(n - 1, 0), 0, 0)


def incremental(class_: Classification, n: int, d: int) -> SlideCost:
    """Return the cost of updating a core statistic when a window of n elements slides by d elements.

    The number of combinations is an average over many slides.
    """
    d = min(d, n)
    stored = class_.state + class_.per_element * n
    match class_.way:
        case CoreMethod.DELTA if class_.kind is CoreKind.INCREMENTAL:
            return SlideCost(2 * d, 2 * d, d, stored)
        case CoreMethod.DELTA:
            return SlideCost(2 * d, class_.state**2 * d + 2 * d, 0, stored)
        case CoreMethod.TWO_STACK:
            return SlideCost(d, 3 * d, 0, stored)
        case CoreMethod.DEQUE:
            return SlideCost(d, 2 * d, 0, stored)
        case CoreMethod.QUEUE:
            return SlideCost(d, 0, 0, stored)
        case CoreMethod.RANKED:
            return SlideCost(2 * d, 2 * d * max(n.bit_length(), 1), 0, stored)
    return blocking(n)


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """Cost of a model per slide of its window: recomputed (blocking) and updated (incremental)."""

    n: int
    d: int
    blocking: SlideCost
    incremental: SlideCost

    @property
    def pays(self) -> bool:
        """Return True if updating the model costs fewer calls than recomputing it.

        For one sum, updating is cheaper roughly if 2d < n.
        """
        return self.incremental.calls < self.blocking.calls


def estimate(model: Model, n: int, d: int = 1) -> CostEstimate:
    """Estimate the cost of a model when a window of n elements slides by d elements.

    >>> from slicemill.extensions.models.model import expression
    >>> cost = estimate(expression("sum(x^2)"), n=1000)
    >>> cost.blocking.transforms, cost.incremental.transforms
    (1000, 2)
    """
    recomputed = updated = NOTHING
    for class_ in model.classes:
        recomputed += blocking(n)
        updated += incremental(class_, n, d)
    return CostEstimate(n, d, recomputed, updated)


def cost_table(model: Model, n: int, d: int = 1) -> list[tuple[str, ...]]:
    """Return a table of function calls per slide: a header, one line per core statistic, and the totals."""
    rows: list[tuple[str, ...]] = [("core", "class", "T", "⊕", "inverse", "stored besides n elements")]
    for core, class_ in zip(model.cores, model.classes, strict=True):
        cost = incremental(class_, n, d)
        calls = map(str, (cost.transforms, cost.combinations, cost.inverses))
        rows.append((str(core), class_.kind.value, *calls, class_.state_text))
    total = estimate(model, n, d)
    for name, cost in (("incremental", total.incremental), ("blocking", total.blocking)):
        numbers = (cost.transforms, cost.combinations, cost.inverses, cost.stored)
        rows.append((name, "", *map(str, numbers)))
    return rows


@dataclass(frozen=True, slots=True)
class PricedCore:
    """Nanoseconds per slide that a core statistic costs with each method, and the chosen method.

    `kept_ns` is the cost of updating the core statistic, None if it cannot be updated. `blocking_ns` is the
    cost of recomputing it.
    """

    core: str
    way: str
    kept_ns: float | None
    blocking_ns: float
    chosen: str


def price_cores(model: Model, n: int, d: int, costs: CoreCosts) -> list[PricedCore]:
    """Return the cost in nanoseconds per slide of each core statistic, and the chosen method.

    Sums of distances from a pivot, a number close to the elements, are always updated (C24).
    """
    priced = []
    about_pivots = _about_pivots(model)
    for number, (core, of_core) in enumerate(zip(model.cores, model.classes, strict=True)):
        update_ns = costs.update_cost(of_core, n, d)
        pinned = number in about_pivots
        chosen = of_core.way if pinned else costs.cheapest_method(core, of_core, n, d)
        name = f"{core} about a pivot" if pinned else str(core)
        known = None if math.isinf(update_ns) else update_ns
        priced.append(PricedCore(name, of_core.way, known, costs.recompute_cost(core, n, d), chosen))
    return priced


def _about_pivots(model: Model) -> set[int]:
    formulas = [
        centre_formula(formula, model.cores)
        for formula in (model.result, *(value for _, value in model.lets))
    ]
    names = {part.name for formula in formulas for part in walk(formula) if isinstance(part, Symbol)}
    return {number for number in range(len(model.cores)) if f"d{number}" in names}


def price_table(model: Model, n: int, d: int, costs: CoreCosts) -> list[tuple[str, ...]]:
    """Return a table of the nanoseconds per slide and the chosen method of each core statistic."""
    rows: list[tuple[str, ...]] = [("core", "method", "ns", "blocking ns", "chosen")]
    for core in price_cores(model, n, d, costs):
        update_ns = "-" if core.kept_ns is None else f"{core.kept_ns:.0f}"
        rows.append((core.core, core.way, update_ns, f"{core.blocking_ns:.0f}", core.chosen))
    return rows


def ways_table(
    n: int, d: int = 1, kinds: Collection[CoreKind] = (CoreKind.INCREMENTAL, CoreKind.SHIFT_INCREMENTAL)
) -> list[tuple[str, ...]]:
    """Return a table of the possible methods for one sum: function calls per slide, and stored values.

    Only methods for the classes in `kinds` are listed.
    """
    d, degree = min(d, n), 2
    once, twice, elements = str(d), str(2 * d), f"{n} elements"
    rows: list[tuple[str, ...]] = [
        ("method", "T", "⊕", "inverse", "stored"),
        ("blocking", str(n), str(max(n - 1, 0)), "0", elements),
    ]
    if CoreKind.INCREMENTAL in kinds:
        rows.append(("incremental", twice, twice, once, f"{elements}, 1 value"))
        rows.append(("incremental, images stored", once, twice, once, f"{n} images, 1 value"))
    if CoreKind.INCREMENTAL in kinds or CoreKind.TWO_STACK in kinds:
        rows.append(("two stacks", once, f"≤ {3 * d}", "0", f"{elements}, ≤ {n} partial sums"))
    if CoreKind.SHIFT_INCREMENTAL in kinds:
        stored = f"{elements}, {degree} values"
        rows.append((f"shifted, {degree} values", twice, f"about {degree**2 * d}", "0", stored))
    return rows


# Measured costs of the methods, and choice of the cheapest method (C18)
#
# `slicemill calibrate` measures the costs once per machine and stores them next to the compiled code. The
# defaults were measured on the development machine. A query retains its initial costs, so that a restart
# chooses the same methods.


_SORTED = frozenset({"median", "quantile", "topk"})


@dataclass(frozen=True, slots=True)
class CoreCosts:
    """Nanoseconds per element of the methods that compute core statistics of models.

    `delta`, `deque`, `queue`, `ranked` and `stacks` are the costs of updating a core statistic for an
    arriving and an expiring element. `keep` is the cost of storing an element. `read` and `sort` are the
    costs per element of recomputing a core statistic. `ranked` and `sort` are multiplied by the binary
    logarithm of the window's size.
    """

    delta: float
    deque: float
    queue: float
    ranked: float
    stacks: float
    keep: float
    read: float
    sort: float
    measured: bool = False

    def update_cost(self, class_: Classification, n: int, d: int) -> float:
        """Return the nanoseconds of updating a core statistic when n elements slide by d elements."""
        match class_.way:
            case CoreMethod.DELTA:
                return self.delta * max(class_.state, 1) * d
            case CoreMethod.DEQUE:
                return self.deque * d
            case CoreMethod.QUEUE:
                return self.queue * d
            case CoreMethod.RANKED:
                return self.ranked * d * _log(n)
            case CoreMethod.TWO_STACK:
                return self.stacks * max(class_.state, 1) * d
        return math.inf

    def recompute_cost(self, core: Core, n: int, d: int) -> float:
        """Return the nanoseconds of recomputing a core statistic when n elements slide by d elements."""
        each = self.sort * _log(n) if core.aggregate in _SORTED else self.read
        return self.keep * d + each * n

    def cheapest_method(self, core: Core, class_: Classification, n: int, d: int) -> CoreMethod:
        """Return the cheapest method for a core statistic.

        The number of elements n is always counted. The choice depends only on the core statistic and the
        window, so that results are bitwise equal whichever other queries run.
        """
        if core.counts or self.update_cost(class_, n, d) <= self.recompute_cost(core, n, d):
            return class_.way
        return CoreMethod.RECOMPUTE


def _log(n: int) -> float:
    return max(math.log2(n), 1.0)


ASSUMED = CoreCosts(delta=36, deque=17, queue=5, ranked=31, stacks=25, keep=13, read=10, sort=5)


def costs_file() -> Path:
    return cache_folder().parent / "model_costs.json"


def core_costs() -> CoreCosts:
    """Return the costs of the methods measured on this machine, or defaults if none are stored."""
    try:
        record = json.loads(costs_file().read_text(encoding="utf-8"))
        figures = {
            field.name: float(record[field.name]) for field in fields(CoreCosts) if field.name != "measured"
        }
    except (OSError, ValueError, KeyError, TypeError):
        return ASSUMED
    valid = all(0 <= figure < math.inf for figure in figures.values())
    return CoreCosts(**figures, measured=True) if valid and record.get("machine") == _machine() else ASSUMED


def store_core_costs(costs: CoreCosts) -> Path:
    """Store the costs of the methods measured on this machine, and return the file."""
    path = costs_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {**asdict(replace(costs, measured=True)), "machine": _machine()}
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return path


def _machine() -> str:
    return f"{platform.node()} {platform.machine()} {platform.python_version()}"
