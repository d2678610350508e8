"""The state of a compiled call: records and pools of all partitions, in arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slicemill.uda.external import objects_of
from slicemill.uda.layout import MACHINE
from slicemill.uda.module import Module
from slicemill.uda.texts import Texts

_FEW = 16


@dataclass(slots=True)
class CompiledState:
    """`arrays` by the names that generated code knows them by."""

    arrays: dict[str, Any]
    texts: Texts
    arrivals: int = 0
    partitions: int = 0
    nullable: bool = False  # has any argument been NULL so far?
    times: list[int] = field(default_factory=list)

    @property
    def waiting(self) -> int:
        """How many slots of partitions are open, or how many tuples will expire."""
        slot = self.arrays["slot"]
        return int(slot[0] if "opened" in self.arrays else slot[1] - slot[0])


def start(module: Module, literals: dict[str, int], timed: bool, active: bool) -> CompiledState:
    arrays: dict[str, Any] = {}
    for name, dtype in module.records.items():
        single = name.startswith("trouble") or (name != "K" and module.procedures[name.lower()].place == "0")
        arrays[name] = rows(dtype, 1 if single else _FEW, module.form)
    for name, dtype in module.pools.items():
        arrays[name] = rows(dtype, _FEW, module.form)
        arrays[f"{name}_top"] = np.zeros(1, np.int64)
    arrays["slot"] = np.zeros(2, np.int64)
    if active:
        arrays |= {f"negative_{name}": np.zeros(_FEW, np.int64) for name in ("number", "ts", "p")}
    elif timed:
        arrays["opened"] = np.zeros(_FEW, np.int64)
    return CompiledState(arrays, Texts(literals))


def rows(dtype: np.dtype[Any], count: int, form: str) -> Any:
    """Rows of a record; Python reads their fields as attributes, as machine code does."""
    made = np.zeros(count, dtype)
    return made if form == MACHINE else made.view(np.recarray)


def allow_nulls(state: CompiledState, module: Module) -> None:
    """Gives the records flags for NULL, as the module for arguments that may be NULL has them."""
    state.nullable = True
    for name, dtype in (module.records | module.pools).items():
        old = state.arrays[name]
        new = rows(dtype, len(old), module.form)
        for field_name in set(old.dtype.names) & set(dtype.names or ()):
            new[field_name] = old[field_name]
        if "object" in (dtype.names or ()):
            new["object"] = objects_of(module.procedures[name.lower()].definition, old)
        state.arrays[name] = new


def make_room(state: CompiledState, module: Module, partitions: int, tuples: int) -> None:
    """Lets the arrays take so many partitions, and so many tuples more."""
    state.partitions = max(state.partitions, partitions)
    for name in ("K", "S", "B", "C", "opened"):
        array = state.arrays.get(name)
        fixed = name in ("S", "B", "C") and name.lower() in module.procedures and _is_single(module, name)
        if array is not None and len(array) < partitions and not fixed:
            longer = np.zeros(max(partitions, 2 * len(array)), array.dtype)
            longer[: len(array)] = array
            state.arrays[name] = (
                longer if isinstance(array, np.recarray) is False else longer.view(np.recarray)
            )
    if "negative_ts" in state.arrays:
        _room_for_negatives(state, tuples)


def _is_single(module: Module, name: str) -> bool:
    return module.procedures[name.lower()].place == "0"


def _room_for_negatives(state: CompiledState, tuples: int) -> None:
    slot = state.arrays["slot"]
    first, end = int(slot[0]), int(slot[1])
    if end + tuples <= len(state.arrays["negative_ts"]):
        return
    for name in ("negative_number", "negative_ts", "negative_p"):
        longer = np.zeros(2 * (end - first) + tuples + _FEW, np.int64)
        longer[: end - first] = state.arrays[name][first:end]
        state.arrays[name] = longer
    slot[:] = 0, end - first
