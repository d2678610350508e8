"""Measured costs of a core's methods, and the cheapest choice (C18).

`slicemill calibrate` measures the costs once per machine and stores them next to the compiled code. The
defaults were measured on the development machine. A query keeps its initial costs, so a restart chooses the
same methods.
"""

from __future__ import annotations

import json
import math
import platform
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from slicemill.machine_code.store import cache_folder
from slicemill.model.classify import Classification, CoreMethod
from slicemill.model.core import Core

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
        """Return the cheapest method; n itself is always counted.

        The choice depends only on the core and the window, so that results are bitwise equal whichever other
        queries run.
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


def keep_core_costs(costs: CoreCosts) -> Path:
    """Store costs measured on this machine."""
    path = costs_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {**asdict(replace(costs, measured=True)), "machine": _machine()}
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return path


def _machine() -> str:
    return f"{platform.node()} {platform.machine()} {platform.python_version()}"
