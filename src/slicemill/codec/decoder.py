"""Decoder from JSON trees and buffers to values (format: `slicemill.codec`)."""

from __future__ import annotations

import struct
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from slicemill.codec.encoder import Tree, array_of, column_of, empty_array, table_of
from slicemill.codec.registry import Codec, StorageError, codec_named

_MISSING = object()
_TREES = (dict, list)


class Decoder:
    """Decoder of one value; `external` loads objects that are stored elsewhere."""

    def __init__(
        self,
        tree: Mapping[str, Tree],
        buffers: Sequence[pa.Buffer],
        external: Callable[[Tree], object] | None,
    ) -> None:
        if tree["buffers"] != len(buffers):
            raise StorageError(f"a state of {tree['buffers']} buffers has come with {len(buffers)}")
        self._tree = tree
        self._buffers = buffers
        self._external = external
        self._codecs = {name: (codec_named(name), version) for name, version in tree["classes"].items()}
        for codec, version in self._codecs.values():
            codec.check(version)
        self._objects: list[Any] = [_MISSING] * len(tree["objects"])
        self._loaded: dict[int, Any] = {}  # decoded arrays and tables by buffer number

    def whole(self) -> Any:
        entries = self._tree["objects"]
        # Create all objects with named fields first, because they may refer to each other.
        filled = {number: codec for number, entry in enumerate(entries) if (codec := self._filled(entry))}
        for number, codec in filled.items():
            self._objects[number] = codec.new()
        for number in range(len(entries)):
            self._resolve(number)
        for number, codec in filled.items():
            _, version = self._codecs[codec.name]
            plain = {name: self._value(item) for name, item in entries[number][codec.name].items()}
            codec.fill(self._objects[number], codec.upgrade(plain, version))
        return self._value(self._tree["value"])

    def _filled(self, entry: Tree) -> Codec | None:
        if type(entry) is not dict:
            return None
        (name,) = entry
        codec, _ = self._codecs.get(name, (None, 0))
        return codec if codec is not None and codec.from_plain is None and not codec.by_value else None

    def _resolve(self, wanted: int) -> None:
        """Decode an entry of `objects`, after the entries that it refers to.

        An explicit stack avoids deep recursion in long chains.
        """
        left, begun = [wanted], set()
        while left:
            number = left[-1]
            if self._objects[number] is not _MISSING:
                left.pop()
                continue
            entry = self._tree["objects"][number]
            missing = [each for each in _references(entry) if self._objects[each] is _MISSING]
            if not missing:
                self._objects[number] = self._value(entry)
            elif number in begun:
                raise StorageError("a stored state has an object that needs itself to be made")
            begun.add(number)
            left += missing

    def _object(self, number: int) -> Any:
        return self._objects[number]

    def _value(self, tree: Tree) -> Any:
        kind = type(tree)
        if kind is list:
            return self._list(tree)
        if kind is not dict:
            return tree
        ((tag, body),) = tree.items()
        read = _READERS.get(tag)
        if read is not None:
            return read(self, body)
        if tag not in self._codecs:
            raise StorageError(f"a stored state has the form {tag}, which this slicemill does not know")
        return self._registered(*self._codecs[tag], body)

    def _registered(self, codec: Codec, version: int, body: Tree) -> Any:
        if codec.from_plain is not None:
            plain = codec.upgrade(self._value(body), version)
            try:
                return codec.from_plain(plain)
            except (KeyError, TypeError, ValueError) as problem:
                raise StorageError(f"the state {codec.name} cannot be read: {problem!r}") from problem
        plain = codec.upgrade({name: self._value(item) for name, item in body.items()}, version)
        if codec.named_tuple:
            return codec.named(plain)
        made = codec.new()
        codec.fill(made, plain)
        return made

    # -- JSON objects with a key that starts with $ ------------------------------------------------------

    def _list(self, body: Tree) -> Any:
        return [self._value(item) if type(item) in _TREES else item for item in body]

    def _tuple(self, body: Tree) -> Any:
        return tuple(self._list(body))

    def _map(self, body: Tree) -> Any:
        return {key: self._value(item) for key, item in body.items()}

    def _dict(self, body: Tree) -> Any:
        return {self._value(key): self._value(item) for key, item in body}

    def _counter(self, body: Tree) -> Any:
        return Counter(self._dict(body))

    def _deque(self, body: Tree) -> Any:
        most, items = body
        return deque(self._list(items), most)

    def _set(self, body: Tree) -> Any:
        return set(self._list(body))

    def _frozenset(self, body: Tree) -> Any:
        return frozenset(self._set(body))

    def _int(self, body: Tree) -> Any:
        return int(body, 16)

    def _float(self, body: Tree) -> Any:
        return struct.unpack(">d", bytes.fromhex(body))[0]

    def _bytes(self, body: Tree) -> Any:
        return bytes.fromhex(body)

    def _blob(self, body: Tree) -> Any:
        return self._buffers[body].to_pybytes()

    def _decimal(self, body: Tree) -> Any:
        return Decimal(body)

    def _fraction(self, body: Tree) -> Any:
        numerator, denominator = body
        return Fraction(int(numerator, 16), int(denominator, 16))

    def _array(self, body: Tree) -> Any:
        return self._once(body["buffer"], lambda data: array_of(body, data))

    def _scalar(self, body: Tree) -> Any:
        return self._value(body)[()]

    def _objects_array(self, body: Tree) -> Any:
        made = empty_array(body)
        if "items" in body:
            flat = np.empty(len(body["items"]), np.object_)
            for index, item in enumerate(body["items"]):
                flat[index] = self._value(item)
            return flat.reshape(body["shape"])
        for name, column in body["columns"].items():
            np.asarray(made)[name] = self._value(column)
        return made

    def _table(self, body: Tree) -> Any:
        return self._once(body, table_of)

    def _chunked(self, body: Tree) -> Any:
        return self._once(body, column_of)

    def _arrow(self, body: Tree) -> Any:
        return self._once(body, _one_array)

    def _arrow_scalar(self, body: Tree) -> Any:
        return self._once(body, lambda data: column_of(data)[0])

    def _once(self, number: int, make: Callable[[pa.Buffer], Any]) -> Any:
        if number not in self._loaded:
            self._loaded[number] = make(self._buffers[number])
        return self._loaded[number]

    def _outside(self, body: Tree) -> Any:
        if self._external is None:
            raise StorageError("a state that is stored in several files was given without the others")
        return self._external(body)


def _references(tree: Tree) -> list[int]:
    """Return the numbers of the entries of `objects` that a JSON tree references."""
    found, left = [], [tree]
    while left:
        each = left.pop()
        if type(each) is list:
            left += each
        elif type(each) is dict:
            if "$ref" in each:
                found.append(each["$ref"])
            else:
                left += each.values()
    return found


def _one_array(data: pa.Buffer) -> pa.Array:
    column = column_of(data)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


_READERS: dict[str, Callable[[Decoder, Tree], Any]] = {
    "$ref": Decoder._object,
    "$tuple": Decoder._tuple,
    "$map": Decoder._map,
    "$dict": Decoder._dict,
    "$counter": Decoder._counter,
    "$deque": Decoder._deque,
    "$set": Decoder._set,
    "$frozenset": Decoder._frozenset,
    "$int": Decoder._int,
    "$float": Decoder._float,
    "$bytes": Decoder._bytes,
    "$blob": Decoder._blob,
    "$decimal": Decoder._decimal,
    "$fraction": Decoder._fraction,
    "$array": Decoder._array,
    "$scalar": Decoder._scalar,
    "$objects": Decoder._objects_array,
    "$table": Decoder._table,
    "$chunked": Decoder._chunked,
    "$arrow": Decoder._arrow,
    "$arrow_scalar": Decoder._arrow_scalar,
    "$external": Decoder._outside,
}
