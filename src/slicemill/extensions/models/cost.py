"""Cost of a slide and state size, known before execution (C18).

Costs are calls of T, of ⊕ and of its inverse for a slide of d elements over a window of n. The
publication counts 1 addition for a blocking sum; the correct number is n - 1.
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
    """Calls per slide, and values stored besides the window's elements."""

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
    """Return the cost of reading the whole window again."""
    return SlideCost(n, max(n - 1, 0), 0, 0)


def incremental(found: Classification, n: int, d: int) -> SlideCost:
    """Return the cost of updating a core for d elements per slide.

    Calls of ⊕ are amortised.
    """
    d = min(d, n)
    kept = found.state + found.per_element * n
    match found.way:
        case CoreMethod.DELTA if found.kind is CoreKind.INCREMENTAL:
            return SlideCost(2 * d, 2 * d, d, kept)
        case CoreMethod.DELTA:
            return SlideCost(2 * d, found.state**2 * d + 2 * d, 0, kept)
        case CoreMethod.TWO_STACK:
            return SlideCost(d, 3 * d, 0, kept)
        case CoreMethod.DEQUE:
            return SlideCost(d, 2 * d, 0, kept)
        case CoreMethod.QUEUE:
            return SlideCost(d, 0, 0, kept)
        case CoreMethod.RANKED:
            return SlideCost(2 * d, 2 * d * max(n.bit_length(), 1), 0, kept)
    return blocking(n)


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """Cost of a model, blocking and incremental."""

    n: int
    d: int
    blocking: SlideCost
    incremental: SlideCost

    @property
    def pays(self) -> bool:
        """Return True if updating is cheaper than reading the window again.

        For one sum, this holds roughly if 2d < n.
        """
        return self.incremental.calls < self.blocking.calls


def estimate(model: Model, n: int, d: int = 1) -> CostEstimate:
    """Estimate the cost of a slide.

    >>> from slicemill.extensions.models.model import expression
    >>> found = estimate(expression("sum(x^2)"), n=1000)
    >>> found.blocking.transforms, found.incremental.transforms
    (1000, 2)
    """
    again = kept = NOTHING
    for found in model.classes:
        again += blocking(n)
        kept += incremental(found, n, d)
    return CostEstimate(n, d, again, kept)


def cost_table(model: Model, n: int, d: int = 1) -> list[tuple[str, ...]]:
    """Return a table with a header, one line per core, and the totals."""
    rows: list[tuple[str, ...]] = [("core", "class", "T", "⊕", "inverse", "stored beside n elements")]
    for core, found in zip(model.cores, model.classes, strict=True):
        cost = incremental(found, n, d)
        calls = map(str, (cost.transforms, cost.combinations, cost.inverses))
        rows.append((str(core), found.kind.value, *calls, found.state_text))
    total = estimate(model, n, d)
    for name, cost in (("incremental", total.incremental), ("blocking", total.blocking)):
        numbers = (cost.transforms, cost.combinations, cost.inverses, cost.stored)
        rows.append((name, "", *map(str, numbers)))
    return rows


@dataclass(frozen=True, slots=True)
class PricedCore:
    """Nanoseconds per slide of a core, and the chosen method.

    `kept_ns` is None if the core is always blocking.
    """

    core: str
    way: str
    kept_ns: float | None
    blocking_ns: float
    chosen: str


def price_cores(model: Model, n: int, d: int, costs: CoreCosts) -> list[PricedCore]:
    """Return the price of each core.

    Sums about a pivot are always incremental (C24).
    """
    found = []
    about_pivots = _about_pivots(model)
    for number, (core, of_core) in enumerate(zip(model.cores, model.classes, strict=True)):
        kept = costs.kept(of_core, n, d)
        pinned = number in about_pivots
        chosen = of_core.way if pinned else costs.choice(core, of_core, n, d)
        name = f"{core} about a pivot" if pinned else str(core)
        known = None if math.isinf(kept) else kept
        found.append(PricedCore(name, of_core.way, known, costs.again(core, n, d), chosen))
    return found


def _about_pivots(model: Model) -> set[int]:
    formulas = [
        centre_formula(formula, model.cores)
        for formula in (model.result, *(value for _, value in model.lets))
    ]
    names = {part.name for formula in formulas for part in walk(formula) if isinstance(part, Symbol)}
    return {number for number in range(len(model.cores)) if f"d{number}" in names}


def price_table(model: Model, n: int, d: int, costs: CoreCosts) -> list[tuple[str, ...]]:
    """Return a table of prices and the chosen method of each core."""
    rows: list[tuple[str, ...]] = [("core", "kept by", "ns", "blocking ns", "chosen")]
    for core in price_cores(model, n, d, costs):
        kept = "-" if core.kept_ns is None else f"{core.kept_ns:.0f}"
        rows.append((core.core, core.way, kept, f"{core.blocking_ns:.0f}", core.chosen))
    return rows


def ways_table(
    n: int, d: int = 1, kinds: Collection[CoreKind] = (CoreKind.INCREMENTAL, CoreKind.SHIFT_INCREMENTAL)
) -> list[tuple[str, ...]]:
    """Return a table of calls and state for each method."""
    d, degree = min(d, n), 2
    once, twice, elements = str(d), str(2 * d), f"{n} elements"
    rows: list[tuple[str, ...]] = [
        ("way", "T", "⊕", "inverse", "stored"),
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


# Measured costs of a core's methods, and the cheapest choice (C18).
#
# `slicemill calibrate` measures the costs once per machine and stores them next to the compiled code. The
# defaults were measured on the development machine. A query keeps its initial costs, so a restart chooses
# the same methods.


_SORTED = frozenset({"median", "quantile", "topk"})


@dataclass(frozen=True, slots=True)
class CoreCosts:
    """Nanoseconds per arriving and expiring element, by method.

    `keep` is the cost of storing an element. `read` and `sort` are per element of a window that is read
    again. `ranked` and `sort` are multiplied by the binary logarithm of the window's size.
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

    def kept(self, found: Classification, n: int, d: int) -> float:
        """Return the cost of updating a core in a slide."""
        match found.way:
            case CoreMethod.DELTA:
                return self.delta * max(found.state, 1) * d
            case CoreMethod.DEQUE:
                return self.deque * d
            case CoreMethod.QUEUE:
                return self.queue * d
            case CoreMethod.RANKED:
                return self.ranked * d * _log(n)
            case CoreMethod.TWO_STACK:
                return self.stacks * max(found.state, 1) * d
        return math.inf

    def again(self, core: Core, n: int, d: int) -> float:
        """Return the cost of reading the window again in a slide."""
        each = self.sort * _log(n) if core.aggregate in _SORTED else self.read
        return self.keep * d + each * n

    def choice(self, core: Core, found: Classification, n: int, d: int) -> CoreMethod:
        """Return the cheapest method of a core.

        The core n is always counted. The choice depends only on the core and the window, so that results are
        bitwise equal whichever other queries run.
        """
        if core.counts or self.kept(found, n, d) <= self.again(core, n, d):
            return found.way
        return CoreMethod.RECOMPUTE


def _log(n: int) -> float:
    return max(math.log2(n), 1.0)


ASSUMED = CoreCosts(delta=36, deque=17, queue=5, ranked=31, stacks=25, keep=13, read=10, sort=5)


def costs_file() -> Path:
    return cache_folder().parent / "model_costs.json"


def core_costs() -> CoreCosts:
    """Return the costs measured on this machine, else defaults."""
    try:
        record = json.loads(costs_file().read_text(encoding="utf-8"))
        figures = {
            field.name: float(record[field.name]) for field in fields(CoreCosts) if field.name != "measured"
        }
    except (OSError, ValueError, KeyError, TypeError):
        return ASSUMED
    sound = all(0 <= figure < math.inf for figure in figures.values())
    return CoreCosts(**figures, measured=True) if sound and record.get("machine") == _machine() else ASSUMED


def store_core_costs(costs: CoreCosts) -> Path:
    """Store costs measured on this machine."""
    path = costs_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {**asdict(replace(costs, measured=True)), "machine": _machine()}
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return path


def _machine() -> str:
    return f"{platform.node()} {platform.machine()} {platform.python_version()}"
