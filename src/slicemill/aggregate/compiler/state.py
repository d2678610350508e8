"""The state of a compiled call: records and pools of all partitions, in arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.rec

from slicemill.aggregate.compiler.external import objects_of
from slicemill.aggregate.compiler.layout import MACHINE
from slicemill.aggregate.compiler.models.code import ModelCode
from slicemill.aggregate.compiler.module import Module
from slicemill.aggregate.compiler.texts import Texts
from slicemill.aggregate.interpreter.external import import_class, object_state, restore_object
from slicemill.storage.codec import register, stored_as

_FEW = 16


@dataclass(slots=True)
class CompiledState:
    """`arrays` by the names that generated code knows them by."""

    arrays: dict[str, Any]
    texts: Texts
    arrivals: int = 0
    nullable: bool = False  # has any argument been NULL so far?

    @property
    def waiting(self) -> int:
        """How many slots of partitions are open, or how many tuples will expire."""
        slot = self.arrays["slot"]
        return int(slot[0] if "opened" in self.arrays else slot[1] - slot[0])


@stored_as("uda.object", version=1)
@dataclass(frozen=True, slots=True)
class UserObject:
    """What is stored of an object of a user's class: where the class is found, and what the object keeps."""

    where: str
    kept: Any


def _plain(kept: CompiledState) -> dict[str, Any]:
    arrays = {name: _with_objects(array, _stored_object) for name, array in kept.arrays.items()}
    return {"arrays": arrays, "texts": kept.texts, "arrivals": kept.arrivals, "nullable": kept.nullable}


def _restored(plain: dict[str, Any]) -> CompiledState:
    arrays = {name: _with_objects(array, _loaded_object) for name, array in plain["arrays"].items()}
    return CompiledState(arrays, plain["texts"], plain["arrivals"], plain["nullable"])


def _with_failures(old: dict[str, Any]) -> dict[str, Any]:
    """The first version had another name for the records that note a failure."""
    arrays = {name.replace("trouble_", "failure_"): array for name, array in old["arrays"].items()}
    return old | {"arrays": arrays}


register("uda.compiled", 2, CompiledState, _plain, _restored, upgrade={1: _with_failures})


def _with_objects(array: Any, change: Callable[[Any], Any]) -> Any:
    """Records in which objects of a user's class are changed into something else."""
    if "object" not in (array.dtype.names or ()):
        return array
    changed = array.copy()
    for place, thing in enumerate(array["object"].tolist()):
        changed["object"][place] = change(thing)
    return changed


def _stored_object(thing: Any) -> Any:
    if isinstance(thing, int):  # a record that is not in use yet
        return thing
    return UserObject(f"{type(thing).__module__}:{type(thing).__qualname__}", object_state(thing))


def _loaded_object(thing: Any) -> Any:
    if not isinstance(thing, UserObject):
        return thing
    made = import_class(thing.where)()
    restore_object(made, thing.kept)
    return made


def start(module: Module, literals: dict[str, int], timed: bool, active: bool) -> CompiledState:
    arrays: dict[str, Any] = {}
    for name, dtype in module.records.items():
        arrays[name] = rows(dtype, 1 if _is_one_record(module, name) else _FEW, module.form)
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
    return made if form == MACHINE else made.view(numpy.rec.recarray)


def allow_nulls(state: CompiledState, plain: Module, module: Module) -> None:
    """Gives the records flags for NULL, as the module for arguments that may be NULL has them."""
    state.nullable = True
    move(state, plain, module)


def move(state: CompiledState, before: Module, after: Module, models: Sequence[int] | None = None) -> None:
    """Puts what one module has kept where another one keeps it.

    `models` are the numbers that its models have in the one before, if they are not all of them. Models that
    were kept as one may be apart from now on: then each has a copy.
    """
    fields, pools = _origins(before, after, models)
    old_arrays = state.arrays
    state.arrays = {
        name: array for name, array in old_arrays.items() if name.removesuffix("_top") not in before.pools
    }
    for name, dtype in (after.records | after.pools).items():
        origin = pools.get(name, name)
        old = old_arrays[origin]
        new = rows(dtype, len(old), after.form)
        for field_name in dtype.names or ():
            known = fields.get(field_name, field_name) if name in after.records else field_name
            if known in old.dtype.names:
                new[field_name] = old[known]
        if "object" in (dtype.names or ()):
            new["object"] = objects_of(after.codes[name.lower()].version.definition, old)
        state.arrays[name] = new
        if name in after.pools:
            state.arrays[f"{name}_top"] = old_arrays[f"{origin}_top"].copy()


def _origins(
    before: Module, after: Module, models: Sequence[int] | None
) -> tuple[dict[str, str], dict[str, str]]:
    """Fields and pools of models have other names where other models are kept."""
    fields: dict[str, str] = {}
    pools: dict[str, str] = {}
    for record, made in after.codes.items():
        known = before.codes[record]
        if isinstance(made, ModelCode) and isinstance(known, ModelCode):
            found = made.origins(known, range(len(made.models)) if models is None else models)
            fields |= found[0]
            pools |= found[1]
    return fields, pools


def make_room(state: CompiledState, module: Module, partitions: int, tuples: int) -> None:
    """Lets the arrays take so many partitions, and so many tuples more."""
    for name, dtype in module.records.items():
        array = state.arrays[name]
        if len(array) < partitions and not _is_one_record(module, name):
            longer = rows(dtype, max(partitions, 2 * len(array)), module.form)
            longer[: len(array)] = array
            state.arrays[name] = longer
    if "negative_ts" in state.arrays:
        _room_for_negatives(state, tuples)
    elif "opened" in state.arrays:
        opened = state.arrays["opened"]
        state.arrays["opened"] = np.append(opened, np.zeros(max(0, partitions - len(opened)), np.int64))


def _is_one_record(module: Module, name: str) -> bool:
    """Notes of failure, and the state of a base that is run over the window, are not kept per partition."""
    return name.startswith("failure") or (name != "K" and module.codes[name.lower()].version.place == "0")


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
