"""What operators keep between runs, as JSON and buffers: explicit, versioned, without pickles.

    encoded = encode(value)                       # fast: copies only what may still change
    decode(encoded.tree, encoded.buffers())       # the same value again

The tree is JSON that a person can read. Numbers, strings and lists stand for themselves; everything else is
an object with one key that says what it is:

    {"$tuple": [1, 2.5]}   {"$map": {"a": 1}}   {"$dict": [[1, "one"]]}   {"$float": "7ff8000000000000"}
    {"$array": {"dtype": "<i8", "shape": [3], "buffer": 0}}               {"$table": 1}
    {"column": {"name": "price", "type": {"type": {...}}}}                a registered class, by value
    {"$ref": 4}                                                           entry 4 of "objects"

The tree has four parts: `classes` names the registered classes in it with their versions; `objects` has the
registered objects that may be referred to more than once, and what lies deep inside something else (so that
depth is bounded, however long a linked structure is); `value` is the value; `buffers` counts the buffers.
Identity is kept for registered objects, arrays and tables, not for lists and dictionaries.
"""

from __future__ import annotations

import gc
import math
import struct
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from slicemill.storage.codec_arrays import (
    Payload,
    array_bytes,
    array_of,
    as_table,
    buffers_of,
    column_of,
    dtype_tree,
    empty_array,
    table_of,
)
from slicemill.storage.codec_registry import (
    Codec,
    StorageError,
    codec_named,
    codec_of,
    register,
    registered_names,
    stored_as,
)

__all__ = [
    "Encoded",
    "External",
    "StorageError",
    "decode",
    "encode",
    "register",
    "registered_names",
    "stored_as",
]

Tree: TypeAlias = Any  # what JSON holds

# Stores objects of a class somewhere else: gives what stands for them in the tree.
External: TypeAlias = Mapping[type, Callable[[Any], Tree]]

_DEPTH = 40
_LARGE = 2**63
_FEW_BYTES = 64
_PLAIN = frozenset((str, bool, type(None)))
_NONE: External = {}


@dataclass(slots=True)
class Encoded:
    """A value as a JSON tree and payloads: buffers, or tables that become buffers when they are written."""

    tree: dict[str, Tree]
    payloads: list[Payload] = field(default_factory=list)

    def buffers(self) -> list[pa.Buffer]:
        return buffers_of(self.payloads)


def encode(value: object, external: External = _NONE) -> Encoded:
    """A value as JSON and buffers; StorageError where it has an object of a class that is not registered."""
    with _no_collection():
        return _Encoder(external).whole(value)


def decode(
    tree: Mapping[str, Tree],
    buffers: Sequence[pa.Buffer],
    external: Callable[[Tree], object] | None = None,
) -> Any:
    """The value of a tree. Tables lie over the buffers; arrays are copies, which may be written to."""
    with _no_collection():
        return _Decoder(tree, buffers, external).whole()


@contextmanager
def _no_collection() -> Iterator[None]:
    """No search for garbage: of a large state it would look through all that was made, over and over."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


# -- encoding -----------------------------------------------------------------------------------------------


class _Encoder:
    def __init__(self, external: External) -> None:
        self._external = external
        self._classes: dict[str, int] = {}
        self._objects: list[Tree] = []
        self._payloads: list[Payload] = []
        # Entries of `objects` that are known by number but not encoded yet: functions that do it.
        self._open: deque[tuple[int, Callable[[], Tree]]] = deque()
        # By identity, what stands for an object; and the objects, so that none goes and gives its id away.
        self._known: dict[int, Tree] = {}
        self._values: dict[int, tuple[Tree, int]] = {}  # the same of those stored by value, and how deep
        self._alive: list[object] = []

    def whole(self, value: object) -> Encoded:
        tree = self._value(value, 0)
        while self._open:
            number, make = self._open.popleft()
            self._objects[number] = make()
        content = {
            "classes": dict(sorted(self._classes.items())),
            "objects": self._objects,
            "value": tree,
            "buffers": len(self._payloads),
        }
        return Encoded(content, self._payloads)

    def _value(self, value: Any, depth: int) -> Tree:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is int:
            return value if -_LARGE <= value < _LARGE else {"$int": hex(value)}
        if kind is float:
            return value if math.isfinite(value) else {"$float": struct.pack(">d", value).hex()}
        if depth > _DEPTH:
            return self._entry(lambda: self._value(value, 0))
        make = _CONTAINERS.get(kind)
        if make is not None:
            return make(self, value, depth + 1)
        codec = codec_of(kind)
        if codec is not None:
            return self._registered(codec, value, depth + 1)
        return self._other(value)

    def _entry(self, make: Callable[[], Tree]) -> Tree:
        """A new entry of `objects`, encoded after what is being encoded now."""
        number = len(self._objects)
        self._objects.append(None)
        self._open.append((number, make))
        return {"$ref": number}

    def _note(self, value: object, tree: Tree) -> Tree:
        self._known[id(value)] = tree
        self._alive.append(value)
        return tree

    def _payload(self, payload: Payload) -> int:
        self._payloads.append(payload)
        return len(self._payloads) - 1

    # -- containers ------------------------------------------------------------------------------------

    def _list(self, value: Iterable[Any], depth: int) -> Tree:
        # Most rows consist of what stands for itself: that is not worth a call for each.
        return [
            item
            if (kind := type(item)) in _PLAIN
            or (kind is int and -_LARGE <= item < _LARGE)
            or (kind is float and math.isfinite(item))
            else self._value(item, depth)
            for item in value
        ]

    def _tuple(self, value: tuple[Any, ...], depth: int) -> Tree:
        return {"$tuple": self._list(value, depth)}

    def _deque(self, value: deque[Any], depth: int) -> Tree:
        return {"$deque": [value.maxlen, self._list(value, depth)]}

    def _set(self, value: set[Any], depth: int) -> Tree:
        return {"$set": self._unordered(value, depth)}

    def _frozenset(self, value: frozenset[Any], depth: int) -> Tree:
        return {"$frozenset": self._unordered(value, depth)}

    def _unordered(self, value: Any, depth: int) -> Tree:
        # In an order that does not depend on the process, where there is one.
        try:
            items = sorted(value)
        except TypeError:
            items = list(value)
        return self._list(items, depth)

    def _dict(self, value: dict[Any, Any], depth: int) -> Tree:
        if all(type(key) is str for key in value):
            return {"$map": {key: self._value(item, depth) for key, item in value.items()}}
        return {"$dict": self._pairs(value, depth)}

    def _counter(self, value: Counter[Any], depth: int) -> Tree:
        return {"$counter": self._pairs(value, depth)}

    def _pairs(self, value: Mapping[Any, Any], depth: int) -> Tree:
        return [[self._value(key, depth), self._value(item, depth)] for key, item in value.items()]

    def _bytes(self, value: bytes, depth: int) -> Tree:  # noqa: ARG002
        if len(value) <= _FEW_BYTES:
            return {"$bytes": value.hex()}
        return {"$blob": self._payload(pa.py_buffer(value))}

    def _decimal(self, value: Decimal, depth: int) -> Tree:  # noqa: ARG002
        return {"$decimal": str(value)}

    def _fraction(self, value: Fraction, depth: int) -> Tree:  # noqa: ARG002
        return {"$fraction": [hex(value.numerator), hex(value.denominator)]}

    # -- registered classes ----------------------------------------------------------------------------

    def _registered(self, codec: Codec, value: Any, depth: int) -> Tree:
        if codec.named_tuple:
            self._classes[codec.name] = codec.version
            return {codec.name: dict(zip(codec.names, self._list(value, depth), strict=True))}
        if codec.by_value:
            # A tree may stand again where it is no deeper than before: so depth stays bounded.
            tree, deepest = self._values.get(id(value), (None, -1))
            if depth > deepest:
                self._classes[codec.name] = codec.version
                tree = {codec.name: self._plain(codec, value, depth)}
                self._values[id(value)] = tree, depth
                self._alive.append(value)
            return tree
        known = self._known.get(id(value))
        if known is not None:
            return known
        self._classes[codec.name] = codec.version
        return self._note(value, self._entry(lambda: {codec.name: self._plain(codec, value, 0)}))

    def _plain(self, codec: Codec, value: Any, depth: int) -> Tree:
        plain = codec.to_plain(value)
        if codec.from_plain is None:
            return {name: self._value(item, depth) for name, item in plain.items()}
        self._alive.append(plain)
        return self._value(plain, depth)

    # -- arrays and the rest ---------------------------------------------------------------------------

    def _other(self, value: Any) -> Tree:
        known = self._known.get(id(value))
        if known is not None:
            return known
        for kind, store in self._external.items():
            if isinstance(value, kind):
                return self._note(value, {"$external": store(value)})
        if isinstance(value, np.ndarray):
            return self._note(value, self._array(value))
        if isinstance(value, np.generic):
            return {"$scalar": self._value(np.asarray(value), 0)}
        if isinstance(value, pa.Table):
            return self._note(value, {"$table": self._payload(value)})
        if isinstance(value, pa.ChunkedArray):
            return self._note(value, {"$chunked": self._payload(as_table(value))})
        if isinstance(value, pa.Array):
            return self._note(value, {"$arrow": self._payload(as_table(value))})
        if isinstance(value, pa.Scalar):
            return self._note(value, {"$arrow_scalar": self._payload(as_table(value))})
        kind = type(value)
        raise StorageError(
            f"a {kind.__module__}.{kind.__qualname__} cannot be stored with the state of an operator: only "
            f"plain values, arrays, tables and registered classes can (slicemill.storage.codec)"
        )

    def _array(self, value: np.ndarray[Any, Any]) -> Tree:
        if type(value) not in (np.ndarray, np.recarray):
            raise StorageError(f"an array of class {type(value).__qualname__} cannot be stored")
        if not value.dtype.hasobject:
            tree, data = array_bytes(value)
            return {"$array": tree | {"buffer": self._payload(data)}}
        return self._entry(lambda: self._object_array(value))

    def _object_array(self, value: np.ndarray[Any, Any]) -> Tree:
        tree: dict[str, Any] = {"dtype": dtype_tree(value.dtype), "shape": list(value.shape)}
        if isinstance(value, np.recarray):
            tree["recarray"] = True
        plain = np.asarray(value)
        if plain.dtype.names is None:
            tree["items"] = [self._value(item, 0) for item in plain.ravel().tolist()]
        else:
            tree["columns"] = {name: self._value(plain[name], 0) for name in plain.dtype.names}
        return {"$objects": tree}


_CONTAINERS: dict[type, Callable[[_Encoder, Any, int], Tree]] = {
    list: _Encoder._list,
    tuple: _Encoder._tuple,
    dict: _Encoder._dict,
    deque: _Encoder._deque,
    set: _Encoder._set,
    frozenset: _Encoder._frozenset,
    Counter: _Encoder._counter,
    bytes: _Encoder._bytes,
    Decimal: _Encoder._decimal,
    Fraction: _Encoder._fraction,
}


# -- decoding -----------------------------------------------------------------------------------------------

_MISSING = object()
_TREES = (dict, list)


class _Decoder:
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
        self._loaded: dict[int, Any] = {}  # by buffer

    def whole(self) -> Any:
        entries = self._tree["objects"]
        # Objects that are filled in field by field are all made first: they may refer to one another.
        filled = {number: codec for number, entry in enumerate(entries) if (codec := self._filled(entry))}
        for number, codec in filled.items():
            self._objects[number] = codec.new()
        for number in range(len(entries)):
            self._resolve(number)
        for number, codec in filled.items():
            _, version = self._codecs[codec.name]
            plain = {name: self._value(item) for name, item in entries[number][codec.name].items()}
            codec.fill(self._objects[number], codec.upgraded(plain, version))
        return self._value(self._tree["value"])

    def _filled(self, entry: Tree) -> Codec | None:
        if type(entry) is not dict:
            return None
        (name,) = entry
        codec, _ = self._codecs.get(name, (None, 0))
        return codec if codec is not None and codec.from_plain is None and not codec.by_value else None

    def _resolve(self, wanted: int) -> None:
        """Make an entry, after those that it refers to. A stack of our own: there may be many in a row."""
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
            plain = codec.upgraded(self._value(body), version)
            try:
                return codec.from_plain(plain)
            except (KeyError, TypeError, ValueError) as problem:
                raise StorageError(f"the state {codec.name} cannot be read: {problem!r}") from problem
        plain = codec.upgraded({name: self._value(item) for name, item in body.items()}, version)
        if codec.named_tuple:
            return codec.named(plain)
        made = codec.new()
        codec.fill(made, plain)
        return made

    # -- forms of the codec itself -----------------------------------------------------------------------

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
            for place, item in enumerate(body["items"]):
                flat[place] = self._value(item)
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
    """The entries that a tree refers to."""
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


_READERS: dict[str, Callable[[_Decoder, Tree], Any]] = {
    "$ref": _Decoder._object,
    "$tuple": _Decoder._tuple,
    "$map": _Decoder._map,
    "$dict": _Decoder._dict,
    "$counter": _Decoder._counter,
    "$deque": _Decoder._deque,
    "$set": _Decoder._set,
    "$frozenset": _Decoder._frozenset,
    "$int": _Decoder._int,
    "$float": _Decoder._float,
    "$bytes": _Decoder._bytes,
    "$blob": _Decoder._blob,
    "$decimal": _Decoder._decimal,
    "$fraction": _Decoder._fraction,
    "$array": _Decoder._array,
    "$scalar": _Decoder._scalar,
    "$objects": _Decoder._objects_array,
    "$table": _Decoder._table,
    "$chunked": _Decoder._chunked,
    "$arrow": _Decoder._arrow,
    "$arrow_scalar": _Decoder._arrow_scalar,
    "$external": _Decoder._outside,
}
