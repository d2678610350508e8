"""State of a compiled call: arrays of records and pools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.rec
from numpy.lib.recfunctions import repack_fields

from slicemill.aggregate.compiler.external import objects_of
from slicemill.aggregate.compiler.layout import MACHINE, PYTHON
from slicemill.aggregate.compiler.models.code import ModelCode
from slicemill.aggregate.compiler.module import Module
from slicemill.aggregate.compiler.texts import Texts
from slicemill.aggregate.interpreter.external import import_class, object_state, restore_object
from slicemill.storage.codec import register, stored_as
from slicemill.storage.objects_by_key import ObjectsByKey

_FEW = 16


def no_objects() -> ObjectsByKey[int, Any]:
    """Return storage for objects of users."""
    return ObjectsByKey(_stored_object, _loaded_object)


@dataclass(slots=True)
class CompiledState:
    """State of a compiled call.

    The keys of `arrays` are the names in the generated code. `objects` has the user's objects in the records
    of these arrays, in parts by array, with the place of the record as key.
    """

    arrays: dict[str, Any]
    texts: Texts
    arrivals: int = 0
    nullable: bool = False  # has any argument been NULL so far?
    objects: ObjectsByKey[int, Any] = field(default_factory=no_objects)

    @property
    def waiting(self) -> int:
        """Return the number of open slots, or of tuples that will expire."""
        slot = self.arrays["slot"]
        return int(slot[0] if "opened" in self.arrays else slot[1] - slot[0])


@stored_as("uda.object", version=1)
@dataclass(frozen=True, slots=True)
class UserObject:
    """Stored form of a user's object: its class and its state."""

    where: str
    kept: Any


def _plain(kept: CompiledState) -> dict[str, Any]:
    return {
        "arrays": {name: _without_objects(array) for name, array in kept.arrays.items()},
        "layouts": {name: _layout(array) for name, array in kept.arrays.items() if has_objects(array)},
        "objects": kept.objects,
        "texts": kept.texts,
        "arrivals": kept.arrivals,
        "nullable": kept.nullable,
    }


def _restored(plain: dict[str, Any]) -> CompiledState:
    objects = plain["objects"].opened(_stored_object, _loaded_object)
    arrays: dict[str, Any] = dict(plain["arrays"])
    for name, (layout, length) in plain["layouts"].items():
        arrays[name] = made = rows(layout.dtype, length, PYTHON)
        for column in plain["arrays"][name].dtype.names or ():
            made[column] = plain["arrays"][name][column]
        for place, thing in objects.items(name):
            made["object"][place] = thing
    return CompiledState(arrays, plain["texts"], plain["arrivals"], plain["nullable"], objects)


def has_objects(array: Any) -> bool:
    """Return True if the records of an array have objects of users."""
    return "object" in (array.dtype.names or ())


def _layout(array: Any) -> tuple[Any, int]:
    """Return no records of the same type, and the number of records."""
    return array[:0].copy(), len(array)


def _without_objects(array: Any) -> Any:
    """Return the records without the field of the user's objects."""
    if not has_objects(array):
        return array
    others = [name for name in array.dtype.names if name != "object"]
    return repack_fields(np.asarray(array)[others]) if others else np.zeros(0, np.int8)


def _with_failures(old: dict[str, Any]) -> dict[str, Any]:
    """Rename records of the first version, whose names began with `trouble_`."""
    arrays = {name.replace("trouble_", "failure_"): array for name, array in old["arrays"].items()}
    return old | {"arrays": arrays}


def _with_objects(old: dict[str, Any]) -> dict[str, Any]:
    """Take the user's objects from the records, where the second version has stored them."""
    objects, layouts, arrays = no_objects(), {}, dict(old["arrays"])
    for name, array in old["arrays"].items():
        if has_objects(array):
            for place, thing in enumerate(array["object"].tolist()):
                if isinstance(thing, UserObject):
                    objects.put(place, _loaded_object(thing), name)
            arrays[name], layouts[name] = _without_objects(array), _layout(array)
    return old | {"arrays": arrays, "layouts": layouts, "objects": objects}


register("uda.compiled", 3, CompiledState, _plain, _restored, upgrade={1: _with_failures, 2: _with_objects})


def _stored_object(thing: Any) -> UserObject:
    return UserObject(f"{type(thing).__module__}:{type(thing).__qualname__}", object_state(thing))


def _loaded_object(kept: UserObject) -> Any:
    made = import_class(kept.where)()
    restore_object(made, kept.kept)
    return made


def before_change(state: CompiledState, places: Any) -> None:
    """Prepare the user's objects in these records for a run that may change them."""
    for name, array in state.arrays.items():
        if has_objects(array):
            for place in _within(array, places):
                state.objects.change(place, name)


def after_change(state: CompiledState, places: Any) -> None:
    """Store the user's objects that a run has created in these records."""
    for name, array in state.arrays.items():
        if has_objects(array):
            objects = array["object"]
            for place in _within(array, places):
                thing = objects[place]
                if not isinstance(thing, int) and thing is not state.objects.get(place, name):
                    state.objects.put(place, thing, name)


def _within(array: Any, places: Any) -> list[int]:
    """Return the places in an array, or its only place."""
    found: list[int] = places[places < len(array)].tolist() if len(array) > 1 else [0]
    return found


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
    """Return zeroed rows of a record.

    In Python they are record arrays, whose fields are attributes as in machine code.
    """
    made = np.zeros(count, dtype)
    return made if form == MACHINE else made.view(numpy.rec.recarray)


def allow_nulls(state: CompiledState, plain: Module, module: Module) -> None:
    """Convert the state to the module with nullable arguments."""
    state.nullable = True
    move(state, plain, module)


def move(state: CompiledState, before: Module, after: Module, models: Sequence[int] | None = None) -> None:
    """Move the state of one module to the layout of another module.

    `models` are the numbers of its models in the module before, unless it has all of them. Models that shared
    state may have separate state afterwards; each then has a copy.
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
            for place, thing in enumerate(new["object"].tolist()):
                state.objects.put(place, thing, name)
        state.arrays[name] = new
        if name in after.pools:
            state.arrays[f"{name}_top"] = old_arrays[f"{origin}_top"].copy()


def _origins(
    before: Module, after: Module, models: Sequence[int] | None
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the earlier names of fields and pools that models use."""
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
    """Extend the arrays for so many partitions, and so many additional tuples."""
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
    """Return True if an array has one record for all partitions.

    Failure records have one record, and so has a base version that is recomputed over the window.
    """
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
