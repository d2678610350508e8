"""State of a compiled aggregate call, and functions that generated code calls.

A record has the state of one partition in a structured array. A pool is an array with the rows of one local
table for all partitions. Objects of aggregates written in Python are stored apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.rec
import pyarrow as pa
import pyarrow.compute as pc
from numpy.lib.recfunctions import repack_fields
from numpy.typing import NDArray

from slicemill.aggregates.udf.compiler.layout import MACHINE, PYTHON
from slicemill.aggregates.udf.compiler.module import Module
from slicemill.aggregates.udf.compiler.python_classes import objects_of
from slicemill.aggregates.udf.compiler.version import JointCode
from slicemill.aggregates.udf.lookup import import_class, object_state, restore_object
from slicemill.codec.registry import register, stored_as
from slicemill.columns.objects_by_key import ObjectsByKey
from slicemill.columns.order import sort_by
from slicemill.kernels.kernel import helper, kernel

_FEW = 16


def no_objects() -> ObjectsByKey[int, Any]:
    """Return empty storage for the objects of user-defined aggregates in Python."""
    return ObjectsByKey(_store_object, _load_object)


@dataclass(slots=True)
class CompiledState:
    """State of a compiled aggregate call: the arrays of the generated code, by name.

    `objects` has the objects of Python aggregates to which the records refer. Its parts are the names of the
    arrays, and its keys are the indexes of the records.
    """

    arrays: dict[str, Any]
    texts: TextDictionary
    arrivals: int = 0
    nullable: bool = False  # True after the first NULL argument
    objects: ObjectsByKey[int, Any] = field(default_factory=no_objects)

    @property
    def waiting(self) -> int:
        """Return the number of partitions with pending results, or of tuples with a pending expiry.

        Results are pending until the end of a slide interval. Expiries are counted under ACTIVE EXPIRATION.
        """
        slot = self.arrays["slot"]
        return int(slot[0] if "opened" in self.arrays else slot[1] - slot[0])


@stored_as("uda.object", version=1)
@dataclass(frozen=True, slots=True)
class UserObject:
    """Checkpoint format of an object of a Python aggregate: the name of its class, and its state."""

    where: str
    kept: Any


def _plain(state: CompiledState) -> dict[str, Any]:
    return {
        "arrays": {name: _without_objects(array) for name, array in state.arrays.items()},
        "layouts": {name: _layout(array) for name, array in state.arrays.items() if has_objects(array)},
        "objects": state.objects,
        "texts": state.texts,
        "arrivals": state.arrivals,
        "nullable": state.nullable,
    }


def _load_state(plain: dict[str, Any]) -> CompiledState:
    objects = plain["objects"].opened(_store_object, _load_object)
    arrays: dict[str, Any] = dict(plain["arrays"])
    for name, (layout, length) in plain["layouts"].items():
        arrays[name] = made = rows(layout.dtype, length, PYTHON)
        for column in plain["arrays"][name].dtype.names or ():
            made[column] = plain["arrays"][name][column]
        for index, thing in objects.items(name):
            made["object"][index] = thing
    return CompiledState(arrays, plain["texts"], plain["arrivals"], plain["nullable"], objects)


def has_objects(array: Any) -> bool:
    """Return True if the records of an array refer to objects of Python aggregates."""
    return "object" in (array.dtype.names or ())


def _layout(array: Any) -> tuple[Any, int]:
    """Return the layout of an array for a checkpoint: an empty array of the same type, and the length."""
    return array[:0].copy(), len(array)


def _without_objects(array: Any) -> Any:
    """Return a copy of the records without the field for objects of Python aggregates."""
    if not has_objects(array):
        return array
    others = [name for name in array.dtype.names if name != "object"]
    return repack_fields(np.asarray(array)[others]) if others else np.zeros(0, np.int8)


def _with_failures(old: dict[str, Any]) -> dict[str, Any]:
    """Upgrade a stored state of version 1, whose failure records have names with `trouble_`."""
    arrays = {name.replace("trouble_", "failure_"): array for name, array in old["arrays"].items()}
    return old | {"arrays": arrays}


def _with_objects(old: dict[str, Any]) -> dict[str, Any]:
    """Upgrade a stored state of version 2, which has objects of Python aggregates in the records."""
    objects, layouts, arrays = no_objects(), {}, dict(old["arrays"])
    for name, array in old["arrays"].items():
        if has_objects(array):
            for index, thing in enumerate(array["object"].tolist()):
                if isinstance(thing, UserObject):
                    objects.put(index, _load_object(thing), name)
            arrays[name], layouts[name] = _without_objects(array), _layout(array)
    return old | {"arrays": arrays, "layouts": layouts, "objects": objects}


register("uda.compiled", 3, CompiledState, _plain, _load_state, upgrade={1: _with_failures, 2: _with_objects})


def _store_object(thing: Any) -> UserObject:
    return UserObject(f"{type(thing).__module__}:{type(thing).__qualname__}", object_state(thing))


def _load_object(stored: UserObject) -> Any:
    made = import_class(stored.where)()
    restore_object(made, stored.kept)
    return made


def before_change(state: CompiledState, indices: Any) -> None:
    """Mark the objects of Python aggregates as changed, before code runs that may change these records.

    `indices` are the indexes of the records.
    """
    for name, array in state.arrays.items():
        if has_objects(array):
            for index in _within(array, indices):
                state.objects.change(index, name)


def after_change(state: CompiledState, indices: Any) -> None:
    """Register new objects of Python aggregates, after code has run that may create them in these records.

    `indices` are the indexes of the records.
    """
    for name, array in state.arrays.items():
        if has_objects(array):
            objects = array["object"]
            for index in _within(array, indices):
                thing = objects[index]
                if not isinstance(thing, int) and thing is not state.objects.get(index, name):
                    state.objects.put(index, thing, name)


def _within(array: Any, indices: Any) -> list[int]:
    """Return the indexes that are less than the length of an array, or 0 for an array of one record."""
    existing: list[int] = indices[indices < len(array)].tolist() if len(array) > 1 else [0]
    return existing


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
    return CompiledState(arrays, TextDictionary(literals))


def rows(dtype: np.dtype[Any], count: int, form: str) -> Any:
    """Return an array of `count` zeroed records.

    For generated Python, it is a record array, whose fields are attributes as in machine code.
    """
    made = np.zeros(count, dtype)
    return made if form == MACHINE else made.view(numpy.rec.recarray)


def allow_nulls(state: CompiledState, plain: Module, module: Module) -> None:
    """Convert a state from the module for non-NULL arguments to the module for nullable arguments."""
    state.nullable = True
    move(state, plain, module)


def move(state: CompiledState, before: Module, after: Module, parts: Sequence[int] | None = None) -> None:
    """Convert a state from the layout of one generated module to the layout of another module.

    For calls that share state, `parts` are the indexes in `before` of the calls that remain. None means all
    calls. Calls that shared state may have separate state afterwards. Each call then gets a copy.
    """
    fields, pools = _origins(before, after, parts)
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
            for index, thing in enumerate(new["object"].tolist()):
                state.objects.put(index, thing, name)
        state.arrays[name] = new
        if name in after.pools:
            state.arrays[f"{name}_top"] = old_arrays[f"{origin}_top"].copy()


def _origins(
    before: Module, after: Module, parts: Sequence[int] | None
) -> tuple[dict[str, str], dict[str, str]]:
    """Return, for calls that share state, the names in module `before` of the fields and pools of `after`.

    Both results map a name in `after` to a name in `before`.
    """
    fields: dict[str, str] = {}
    pools: dict[str, str] = {}
    for record, made in after.codes.items():
        known = before.codes[record]
        if isinstance(made, JointCode) and isinstance(known, JointCode):
            of_fields, of_pools = made.origins(known, range(made.parts) if parts is None else parts)
            fields |= of_fields
            pools |= of_pools
    return fields, pools


def make_room(state: CompiledState, module: Module, partitions: int, tuples: int) -> None:
    """Extend the arrays of a state, for a number of partitions and a number of additional tuples."""
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
    """Return True if an array has a single record for all partitions.

    Arrays with the arguments of a failed statement have one record. So have arrays of an aggregate that is
    evaluated over the whole window for each result.
    """
    return name.startswith("failure") or (name != "K" and module.codes[name.lower()].version.index == "0")


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


# Dictionary encoding of strings, with removal of unused strings


_FEW_TEXTS = 1024


class TextDictionary:
    """Dictionary encoding of the strings in a state: the code of a string is its index in a list.

    String literals have the first codes, which never change.
    """

    def __init__(self, literals: Iterable[str]) -> None:
        self.values = list(literals)
        self._fixed = len(self.values)
        self._codes = {text: code for code, text in enumerate(self.values)}
        self._after_last = max(_FEW_TEXTS, self._fixed)

    def plain(self) -> dict[str, Any]:
        values = pa.array(self.values, pa.string())
        return {"values": values, "fixed": self._fixed, "after_last": self._after_last}

    @staticmethod
    def restored(plain: dict[str, Any]) -> TextDictionary:
        made = TextDictionary(plain["values"].to_pylist())
        made._fixed, made._after_last = plain["fixed"], plain["after_last"]
        return made

    def encode(self, column: pa.Array) -> NDArray[np.int64]:
        """Return the code of each string in a column. Codes of NULLs are arbitrary."""
        encoded = column.dictionary_encode()
        codes = np.array([self.code(text) for text in encoded.dictionary.to_pylist()], np.int64)
        indices = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
        return codes[indices] if len(codes) else np.zeros(len(column), np.int64)

    def code(self, text: str) -> int:
        code = self._codes.get(text)
        if code is None:
            code = self._codes[text] = len(self.values)
            self.values.append(text)
        return code

    def decode(self, codes: NDArray[np.int64], valid: NDArray[np.bool_] | None) -> pa.Array:
        indices = pa.array(codes, mask=None if valid is None else ~valid)
        return pc.take(pa.array(self.values, pa.string()), indices)

    def forget(self, fields: list[Any]) -> None:
        """Remove unused strings from the dictionary, and renumber the codes in the arrays `fields`.

        Strings are removed only after the dictionary has doubled in size.
        """
        if len(self.values) < 2 * self._after_last:
            return
        used = np.unique(np.concatenate([np.arange(self._fixed), *(codes.ravel() for codes in fields)]))
        used = used[(used >= 0) & (used < len(self.values))]  # unused array rows may contain any number
        new = np.zeros(len(self.values), np.int64)
        new[used] = np.arange(len(used))
        for codes in fields:
            known = (codes >= 0) & (codes < len(new))
            codes[...] = np.where(known, new[np.where(known, codes, 0)], 0)
        self.values = [self.values[code] for code in used]
        self._codes = {text: code for code, text in enumerate(self.values)}
        self._after_last = max(_FEW_TEXTS, len(self.values))


register("uda.texts", 1, TextDictionary, TextDictionary.plain, TextDictionary.restored)


# Functions that generated code calls: allocation in pools, and checked arithmetic
#
# A pool has the rows of one table for all partitions. Each partition has a block in the pool: `begin` is the
# index of its first row, and `room` its number of rows. The partition's `n` current rows start at index `at`.
# Removing the oldest row increments `at`. If the block is a ring buffer, `at` is relative to `begin`, and the
# block continues at its first row after its last row.


MIN_INT, MAX_INT = -(2**31), 2**31 - 1
MIN_BIGINT, MAX_BIGINT = np.int64(-(2**63)), np.int64(2**63 - 1)


@helper
def more_room(pool: Any, top: Any, begin: Any, at: Any, n: Any, room: Any, p: int) -> Any:
    """Return a pool with free space after the rows of partition p.

    Rows move to the front of their block if they fill at most half of the block, and otherwise to a block of
    twice the size. If the pool is full, all blocks are copied into a new pool. Before rows are copied, at
    least as many rows have been added, so a row is copied only a few times.
    """
    if 2 * n[p] > room[p] or room[p] == 0:
        wanted = 2 * n[p] + 4
        if top[0] + wanted > len(pool):
            return _pack_pool(pool, top, begin, at, n, room, p)
        begin[p], room[p] = top[0], wanted
        top[0] += wanted
    for i in range(n[p]):
        pool[begin[p] + i] = pool[at[p] + i]
    at[p] = begin[p]
    return pool


@helper
def _pack_pool(pool: Any, top: Any, begin: Any, at: Any, n: Any, room: Any, p: int) -> Any:
    wanted = 0
    for j in range(len(at)):
        if n[j] > 0 or j == p:
            wanted += 2 * n[j] + 4
    new = np.zeros(wanted + wanted // 2, pool.dtype)
    top[0] = 0
    for j in range(len(at)):
        size = 2 * n[j] + 4 if n[j] > 0 or j == p else 0
        for i in range(n[j]):
            new[top[0] + i] = pool[at[j] + i]
        begin[j], at[j], room[j] = top[0], top[0], size
        top[0] += size
    return new


@helper
def ring_room(pool: Any, top: Any, begin: Any, at: Any, n: Any, room: Any, p: int, most: int) -> Any:
    """Return a pool of ring buffers with free space for partition p, like `more_room`.

    A ring buffer has at most `most` rows. A ring buffer of this size never grows.
    """
    wanted = min(2 * n[p] + 4, most)
    first, last, new = p, p + 1, pool
    if top[0] + wanted > len(pool):
        first, last = 0, len(at)
        for j in range(len(at)):
            wanted += min(2 * n[j] + 4, most) if n[j] > 0 else 0
        new = np.zeros(wanted + wanted // 2, pool.dtype)
        top[0] = 0
    for j in range(first, last):
        size = min(2 * n[j] + 4, most) if n[j] > 0 or j == p else 0
        for i in range(n[j]):
            index = at[j] + i
            new[top[0] + i] = pool[begin[j] + (index if index < room[j] else index - room[j])]
        begin[j], at[j], room[j] = top[0], 0, size
        top[0] += size
    return new


@helper
def longer(array: Any) -> Any:
    """Return a copy of an output array that has more than twice its length."""
    new = np.empty(2 * len(array) + 16, array.dtype)
    # Numba takes eight times as long to compile a slice assignment as this loop.
    for i in range(len(array)):
        new[i] = array[i]
    return new


@kernel
def count_from(numbers: Any, first: int) -> None:
    for i in range(len(numbers)):
        numbers[i] = first + i


@kernel
def product_overflows(a: Any, b: Any) -> Any:
    """Return True if the product a * b does not fit into a 64-bit integer."""
    if a == 0 or b == 0:
        return False
    if a == MIN_BIGINT or b == MIN_BIGINT:
        return not (a == 1 or b == 1)
    return abs(a) > MAX_BIGINT // abs(b)


@kernel
def whole_quotient(a: Any, b: Any) -> Any:
    """Divide two integers, rounding towards zero.

    `b` must not be 0, and not -1 if `a` is the smallest integer.
    """
    quotient = a // b
    if quotient < 0 and quotient * b != a:
        quotient += 1
    return quotient


@kernel
def whole_remainder(a: Any, b: Any) -> Any:
    """Return the remainder of an integer division, with the sign of `a`. `b` must not be 0."""
    if b == -1 or b == 1:
        return np.int64(0)
    return np.int64(a - whole_quotient(a, b) * b)


@kernel
def double_remainder(a: float, b: float) -> float:
    return np.nan if np.isinf(a) or np.isnan(a) or np.isnan(b) else np.fmod(a, b)


@kernel
def sorted_by(order: Any, keys: Any) -> Any:
    """Sort row indexes by an additional key, with a stable sort."""
    new = order.copy()
    sort_by(new, keys, 0, len(new))
    return new
