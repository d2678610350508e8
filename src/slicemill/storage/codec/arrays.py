"""NumPy and Arrow data in a checkpoint: JSON description and buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.rec  # imported by name, because records are found by their module
import pyarrow as pa

from slicemill.storage.codec.registry import StorageError

# Bytes of one buffer, or a table that is not yet serialized as an Arrow IPC stream.
Payload: TypeAlias = pa.Buffer | pa.Table

_COLUMN = "value"


# -- NumPy --------------------------------------------------------------------------------------------------


def dtype_tree(dtype: np.dtype[Any]) -> object:
    """Return a data type as JSON.

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

    Kernels change arrays in place, so the bytes are copied unless they are written before the next run.
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
    """Return a new, writable array."""
    if not data.size:
        return empty_array(tree)
    flat = np.frombuffer(data, np.uint8).copy()
    made = flat.view(dtype_of(tree["dtype"])).reshape(tree["shape"], order=tree.get("order", "C"))
    return made.view(np.recarray) if tree.get("recarray") else made


def empty_array(tree: Any) -> np.ndarray[Any, Any]:
    """Return an array whose fields or items are filled one by one."""
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

    One batch gives kernels each column as one vector.
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
    """Return the table of a stream, as a view of its bytes."""
    return pa.ipc.open_stream(data).read_all()


def column_of(data: pa.Buffer) -> pa.ChunkedArray:
    return table_of(data).column(0)


def buffers_of(payloads: Sequence[Payload]) -> list[pa.Buffer]:
    """Serialize all payloads, in the thread that writes the file."""
    return [stream_of(each) if isinstance(each, pa.Table) else each for each in payloads]
