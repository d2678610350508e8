"""Encoder from values to JSON trees and payloads (format: `slicemill.codec`)."""

from __future__ import annotations

import math
import struct
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.rec
import pyarrow as pa

from slicemill.codec.registry import Codec, StorageError, codec_of

Tree: TypeAlias = Any  # JSON value that represents an encoded value

# Encoders by class, for objects that are stored in other files. An encoder returns a reference to the file.
External: TypeAlias = Mapping[type, Callable[[Any], Tree]]

_DEPTH = 40
_LARGE = 2**63
_FEW_BYTES = 64
_PLAIN = frozenset((str, bool, type(None)))


@dataclass(slots=True)
class Encoded:
    """Encoded value: a JSON tree, with buffers, and with tables to serialize later."""

    tree: dict[str, Tree]
    payloads: list[Payload] = field(default_factory=list)

    def buffers(self) -> list[pa.Buffer]:
        return buffers_of(self.payloads)


class Encoder:
    """Encoder of one value.

    `external` has the encoders of classes that are stored elsewhere. Without `copied`, arrays must not change
    before the value is written.
    """

    def __init__(self, external: External, copied: bool) -> None:
        self._external = external
        self._copied = copied
        self._classes: dict[str, int] = {}
        self._objects: list[Tree] = []
        self._payloads: list[Payload] = []
        # Entries of `objects` to encode later: the index of an entry, and the function that encodes
        # its content.
        self._open: deque[tuple[int, Callable[[], Tree]]] = deque()
        # JSON references by `id` of the object.
        # `_alive` holds the objects, so that Python does not reuse an id.
        self._known: dict[int, Tree] = {}
        # JSON trees of objects stored by value, with their nesting depth, by `id` of the object.
        self._values: dict[int, tuple[Tree, int]] = {}
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
        """Reserve an entry of `objects`, whose content is encoded later; return a reference."""
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
        # The check for plain values is inlined for speed, because most items of rows are plain values.
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
        # The items of a set are sorted if possible, so that their order does not depend on the process.
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
            # An encoded tree is reused only at the same or a smaller depth, so the total depth stays bounded.
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

    # -- arrays, tables and other values ---------------------------------------------------------------

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
            f"plain values, arrays, tables and registered classes can (slicemill.codec). A class of "
            f"a user's aggregate may say with __getstate__ and __setstate__ which plain values it keeps"
        )

    def _array(self, value: np.ndarray[Any, Any]) -> Tree:
        if type(value) not in (np.ndarray, np.recarray):
            raise StorageError(f"an array of class {type(value).__qualname__} cannot be stored")
        if not value.dtype.hasobject:
            tree, data = array_bytes(value, self._copied)
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


_CONTAINERS: dict[type, Callable[[Encoder, Any, int], Tree]] = {
    list: Encoder._list,
    tuple: Encoder._tuple,
    dict: Encoder._dict,
    deque: Encoder._deque,
    set: Encoder._set,
    frozenset: Encoder._frozenset,
    Counter: Encoder._counter,
    bytes: Encoder._bytes,
    Decimal: Encoder._decimal,
    Fraction: Encoder._fraction,
}


# NumPy and Arrow data in a checkpoint: JSON description and buffers


# Content of one buffer: its bytes, or a table to serialize later as an Arrow IPC stream.
Payload: TypeAlias = pa.Buffer | pa.Table

_COLUMN = "value"


# -- NumPy --------------------------------------------------------------------------------------------------


def dtype_tree(dtype: np.dtype[Any]) -> object:
    """Return a NumPy data type as JSON.

    Records keep their field offsets, because compiled code relies on these.
    """
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return {"of": dtype_tree(base), "shape": list(shape)}
    if dtype.fields is None or dtype.names is None:
        return dtype.str
    formats = {name: dtype.fields[name] for name in dtype.names}
    if any(len(field) > 2 for field in formats.values()):
        raise StorageError(f"an array of {dtype} cannot be stored: its fields have titles")
    return {
        "fields": {name: [dtype_tree(field[0]), field[1]] for name, field in formats.items()},
        "bytes": dtype.itemsize,
        "aligned": dtype.isalignedstruct,
        "record": dtype.type is np.record,
    }


def dtype_of(tree: Any) -> np.dtype[Any]:
    if isinstance(tree, str):
        return np.dtype(tree)
    if "of" in tree:
        return np.dtype((dtype_of(tree["of"]), tuple(tree["shape"])))
    fields = tree["fields"]
    layout: dict[str, Any] = {
        "names": list(fields),
        "formats": [dtype_of(format_) for format_, _ in fields.values()],
        "offsets": [offset for _, offset in fields.values()],
        "itemsize": tree["bytes"],
    }
    made: np.dtype[Any] = np.dtype(layout, align=tree["aligned"])  # type: ignore[call-overload]
    return np.dtype((np.record, made)) if tree["record"] else made


def array_bytes(array: np.ndarray[Any, Any], copied: bool) -> tuple[dict[str, Any], pa.Buffer]:
    """Return the description and the bytes of an array without objects.

    Kernels change arrays in place. So set `copied`, unless the bytes are written before the next micro-batch.
    """
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    tree: dict[str, Any] = {"dtype": dtype_tree(array.dtype), "shape": list(array.shape)}
    if order == "F":
        tree["order"] = order
    if isinstance(array, np.recarray):
        tree["recarray"] = True
    plain = np.asarray(array)
    if copied or not plain.flags.c_contiguous or not plain.size:
        return tree, pa.py_buffer(plain.tobytes(order))  # type: ignore[arg-type]
    return tree, pa.py_buffer(plain.reshape(-1).view(np.uint8))


def array_of(tree: Any, data: pa.Buffer) -> np.ndarray[Any, Any]:
    """Return a writable NumPy array, copied from its stored bytes."""
    if not data.size:
        return empty_array(tree)
    flat = np.frombuffer(data, np.uint8).copy()
    made = flat.view(dtype_of(tree["dtype"])).reshape(tree["shape"], order=tree.get("order", "C"))
    return made.view(np.recarray) if tree.get("recarray") else made


def empty_array(tree: Any) -> np.ndarray[Any, Any]:
    """Return an uninitialized array of the stored type and shape."""
    made = np.empty(tree["shape"], dtype_of(tree["dtype"]))
    return made.view(np.recarray) if tree.get("recarray") else made


# -- Arrow --------------------------------------------------------------------------------------------------


def as_table(data: Any) -> pa.Table:
    """Return an array or scalar as a one-column table, without a copy."""
    if isinstance(data, pa.Scalar):
        data = pa.array([data], data.type)
    return pa.table({_COLUMN: data})


def stream_of(table: pa.Table) -> pa.Buffer:
    """Serialize a table as an Arrow IPC stream of one batch.

    Each column of the batch is contiguous, as kernels require.
    """
    whole = table.combine_chunks() if _pieces(table) > 1 else table
    counted = pa.MockOutputStream()
    _write(counted, whole)
    # The size is computed first, because a growing buffer copies its content repeatedly.
    data = pa.allocate_buffer(counted.size())
    _write(pa.FixedSizeBufferWriter(data), whole)
    return data


def _write(sink: pa.NativeFile, table: pa.Table) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def _pieces(table: pa.Table) -> int:
    return max((column.num_chunks for column in table.columns), default=0)


def table_of(data: pa.Buffer) -> pa.Table:
    """Deserialize a table from an Arrow IPC stream, without a copy of its bytes."""
    return pa.ipc.open_stream(data).read_all()


def column_of(data: pa.Buffer) -> pa.ChunkedArray:
    return table_of(data).column(0)


def buffers_of(payloads: Sequence[Payload]) -> list[pa.Buffer]:
    """Serialize all payloads, in the thread that writes the file."""
    return [stream_of(each) if isinstance(each, pa.Table) else each for each in payloads]
