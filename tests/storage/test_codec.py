"""Values as JSON and buffers, and back: Python types, arrays, tables, registered classes."""

from __future__ import annotations

import json
import math
import struct
from collections import Counter, deque
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, StrEnum
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from slicemill.codec import registry as codec_registry
from slicemill.codec.registry import StorageError, register, registered_names, stored_as
from slicemill.codec.state import decode, encode
from slicemill.columns.pieces import Slice
from support.stored import stored


@stored_as("test.link", version=1)
@dataclass(slots=True, eq=False)
class Link:
    value: Any
    next: Link | None = None


@stored_as("test.point", version=1)
@dataclass(frozen=True, slots=True)
class Point:
    x: Any
    y: Any = None


@stored_as("test.pair", version=1)
class Pair(NamedTuple):
    left: Any
    right: Any


@stored_as("test.colour", version=1)
class Colour(StrEnum):
    RED = "red!"


@stored_as("test.slots", version=1)
class Slots:
    __slots__ = ("a", "b")


class Bag:
    def __init__(self, items: list[Any]) -> None:
        self.items = items


register("test.bag", 1, Bag, lambda bag: bag.items, Bag)


def same(left: Any, right: Any) -> bool:
    """Return True if two values are equal in type and bits, at every depth."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return struct.pack(">d", left) == struct.pack(">d", right)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, deque):
        return left.maxlen == right.maxlen and same(list(left), list(right))
    if isinstance(left, (dict, Counter)):
        return same(list(left), list(right)) and same(list(left.values()), list(right.values()))
    if isinstance(left, (set, frozenset)):
        return repr(sorted(map(repr, left))) == repr(sorted(map(repr, right)))
    if isinstance(left, Point):
        return same([left.x, left.y], [right.x, right.y])
    if isinstance(left, Decimal):
        return left.as_tuple() == right.as_tuple()
    return bool(left == right)


floats = st.floats() | st.builds(
    lambda bits: struct.unpack(">d", bits.to_bytes(8, "big"))[0], st.integers(0x7FF0000000000001, 2**63 - 1)
)
atoms = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**5_000), 2**5_000)
    | floats
    | st.text(st.characters())
    | st.binary(max_size=200)
    | st.decimals()
    | st.fractions()
    | st.just(Colour.RED)
)
keys = st.none() | st.booleans() | st.integers() | st.text() | st.tuples(st.integers(), st.text())
values = st.recursive(
    atoms,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.lists(inner, max_size=4).map(deque)
        | st.dictionaries(st.text(), inner, max_size=4)
        | st.dictionaries(keys, inner, max_size=4)
        | st.builds(Point, inner, inner)
        | st.builds(Pair, inner, inner)
    ),
    max_leaves=20,
)


@given(values)
@example([2**63, -(2**63), 2**63 - 1, -0.0, math.inf, -math.inf, math.nan])
@example(["\ud800", "$ref", {"$ref": 1}, {"": None}, b"", bytes(100)])
@example([Decimal("1.10"), Decimal("-0"), Decimal("sNaN12"), Fraction(-1, 3), Fraction(10**4000, 7)])
@example([{1, 2}, frozenset({"a"}), {(1, "x"): {None: 2}}, deque([1, 2], 2), Counter({3: 1})])
def test_python_values_survive_a_round_trip(value: Any) -> None:
    assert same(stored(value), value)


def test_numbers_with_more_digits_than_python_prints_survive_a_round_trip() -> None:
    assert stored([7**20_000, Fraction(7**20_000, 3)]) == [7**20_000, Fraction(7**20_000, 3)]


@given(
    hnp.arrays(
        hnp.scalar_dtypes()
        | st.sampled_from([np.dtype("<U3"), np.dtype([("a", "i2"), ("b", "f8", (2,))], align=True)]),
        hnp.array_shapes(min_dims=0, min_side=0, max_side=4),
    )
)
def test_arrays_survive_a_round_trip_bit_by_bit_and_are_writable(array: np.ndarray[Any, Any]) -> None:
    back = stored(array)
    assert back.dtype == array.dtype and back.shape == array.shape
    assert back.tobytes() == array.tobytes()
    assert back.flags.writeable


def test_record_arrays_keep_the_memory_layout_that_compiled_code_needs() -> None:
    aligned = np.dtype([("flag", "?"), ("count", "i8"), ("pair", "f4", (2,))], align=True)
    packed = np.dtype([("flag", "?"), ("count", "i8")])
    for dtype in (aligned, packed):
        made = np.zeros(3, dtype)
        made["count"] = [1, 2, 3]
        back = stored(made)
        assert back.dtype == dtype and back.dtype.isalignedstruct == dtype.isalignedstruct
        assert back.tobytes() == made.tobytes()
    records = np.zeros(2, packed).view(np.recarray)
    assert type(stored(records)) is np.recarray and stored(records).dtype == records.dtype


def test_arrays_of_objects_and_of_records_with_objects_survive_a_round_trip() -> None:
    objects = np.empty((2, 2), np.object_)
    objects[:] = [[None, (1, 2.5)], ["a", [Decimal("1.0")]]]
    assert stored(objects).tolist() == objects.tolist()
    records = np.zeros(2, np.dtype([("n", "i8"), ("object", "O")])).view(np.recarray)
    records[1].n, records.object[1] = 7, ("x",)
    back = stored(records)
    assert type(back) is np.recarray and back.tolist() == [(0, 0), (7, ("x",))]


def test_the_memory_order_of_an_array_survives_a_round_trip() -> None:
    array = np.asfortranarray(np.arange(6).reshape(2, 3))
    assert stored(array).flags.f_contiguous and stored(array).tolist() == array.tolist()
    assert stored(np.arange(12).reshape(3, 4)[::2, 1:]).tolist() == [[1, 2, 3], [9, 10, 11]]


def test_numpy_and_arrow_scalars_survive_a_round_trip() -> None:
    for value in (np.int32(4), np.float64("-0.0"), np.bool_(True), pa.scalar(5, pa.int8()), pa.scalar(None)):
        back = stored(value)
        assert type(back) is type(value) and repr(back) == repr(value)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None, 3]),
        pa.array(["a", None, ""]),
        pa.array([], pa.string()),
        pa.nulls(3),
        pa.array([Decimal("1.10"), None], pa.decimal128(10, 2)),
        pa.array([True, None, False]).slice(1),
        pa.array([{"begin": 1, "end": 2}, None]),
        pa.array(["x", "y", "x"]).dictionary_encode(),
        pa.array([[1], None, [2, 3]]),
    ],
    ids=lambda column: str(column.type),
)
def test_arrow_data_survives_a_round_trip_with_types_and_nulls(column: pa.Array) -> None:
    assert stored(column).equals(column) and stored(column).type == column.type
    chunked = pa.chunked_array([column, column])
    assert stored(chunked).equals(chunked)
    table = pa.table({"x": chunked}, metadata={"told": "yes"})
    assert stored(table).equals(table) and stored(table).schema.equals(table.schema, check_metadata=True)


def test_a_decoded_table_uses_the_buffers_without_a_copy() -> None:
    encoded = encode(pa.table({"x": np.arange(1000)}))
    (buffer,) = encoded.buffers()
    back = decode(encoded.tree, [buffer])
    address = back.column("x").chunk(0).buffers()[1].address
    assert buffer.address <= address < buffer.address + buffer.size


def test_later_changes_of_an_array_do_not_change_its_encoded_value() -> None:
    array = np.arange(3)
    encoded = encode({"array": array})
    array[:] = 9
    assert decode(encoded.tree, encoded.buffers())["array"].tolist() == [0, 1, 2]


# -- Registered classes -------------------------------------------------------------------------------------


def test_shared_references_are_one_object_after_a_round_trip() -> None:
    link, array, table, bag = Link(1), np.zeros(2), pa.table({"x": [1]}), Bag([1])
    for shared in (link, array, table, bag):
        first, second, inner = stored([shared, (shared,), Link({"deep": [shared]})])
        assert first is second[0] is inner.value["deep"][0]


def test_a_long_linked_structure_with_a_cycle_survives_a_round_trip() -> None:
    last = first = Link(0)
    for number in range(1, 20_000):
        last.next = Link(number)
        last = last.next
    last.next = first
    back = stored(first)
    seen, current = [], back
    while not seen or current is not back:
        seen.append(current.value)
        current = current.next
    assert seen == list(range(20_000))


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: (v,), lambda v: {"k": v}, Point], ids=str)
def test_deeply_nested_values_survive_a_round_trip(wrap: Any) -> None:
    value: Any = "core"
    for _ in range(3_000):
        value = wrap(value)
    depth, back = 0, stored(value)
    while back != "core":
        back = back.x if isinstance(back, Point) else back["k"] if isinstance(back, dict) else back[0]
        depth += 1
    assert depth == 3_000


def test_nested_objects_are_encoded_with_bounded_recursion() -> None:
    points = [Point(0)]
    for number in range(300):
        points.append(Point(number, points[-1]))
    assert stored(points) == points


def test_registered_values_can_be_dictionary_keys() -> None:
    keys_ = {Point(1, (Point(2),)): "a", (Pair(1, 2),): "b", Colour.RED: "c"}
    assert stored(keys_) == keys_
    assert stored(Link({Point(0): 1})).value[Point(0)] == 1


def test_classes_with_slots_or_converters_survive_a_round_trip() -> None:
    slots = Slots()
    slots.a, slots.b = [1], None
    assert (stored(slots).a, stored(slots).b) == ([1], None)
    assert stored(Bag([1, (2,)])).items == [1, (2,)]


def test_the_encoded_tree_is_readable_json() -> None:
    tree = encode({"a": (1, Point(2.5, Colour.RED)), "b": Link("x")}).tree
    assert json.loads(json.dumps(tree)) == {
        "classes": {"test.colour": 1, "test.link": 1, "test.point": 1},
        "objects": [{"test.link": {"value": "x", "next": None}}],
        "value": {
            "$map": {
                "a": {"$tuple": [1, {"test.point": {"x": 2.5, "y": {"test.colour": "RED"}}}]},
                "b": {"$ref": 0},
            }
        },
        "buffers": 0,
    }


class Unknown:
    pass


REFUSED = [Unknown(), len, lambda: 1, Unknown, object(), Slice(pa.table({}))]


@pytest.mark.parametrize("value", REFUSED, ids=lambda value: type(value).__name__)
def test_a_value_of_an_unregistered_class_is_rejected(value: Any) -> None:
    for inside in (value, [value], {"k": (value,)}, Point(value), Bag([value])):
        with pytest.raises(StorageError, match="cannot be stored"):
            encode(inside)


def test_a_subclass_of_a_registered_class_is_rejected() -> None:
    class Special(dict[str, int]):
        pass

    @dataclass
    class More(Link):
        more: int = 0

    for value in (Special(), More(1)):
        with pytest.raises(StorageError, match="cannot be stored"):
            encode(value)


def test_a_class_without_declared_fields_cannot_be_registered() -> None:
    class Vague:
        def __init__(self) -> None:
            self.x = 1

    with pytest.raises(TypeError, match="does not say what its fields are"):
        stored_as("test.vague")(Vague)
    with pytest.raises(TypeError, match="two classes are stored as"):
        stored_as("test.point")(Unknown2)
    with pytest.raises(TypeError, match="marks the codec's own forms"):
        stored_as("$mine")(Unknown2)


class Unknown2:
    __slots__ = ()


# -- Versions -----------------------------------------------------------------------------------------------


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_by_name", "_by_class"):
        monkeypatch.setattr(codec_registry, name, dict(getattr(codec_registry, name)))


def test_a_value_of_an_earlier_version_is_upgraded_step_by_step(registry: None) -> None:
    old = encode([Link(1), Point(1, 2)])
    del codec_registry._by_name["test.link"]

    @stored_as("test.link", version=3, upgrade={1: _renamed, 2: lambda plain: plain | {"extra": 0}})
    @dataclass(slots=True)
    class Link_:  # noqa: N801
        content: Any
        next: Any
        extra: int

    link, point = decode(old.tree, [])
    assert link == Link_(1, None, 0) and point == Point(1, 2)


def _renamed(plain: dict[str, Any]) -> dict[str, Any]:
    return {"content": plain["value"], "next": plain["next"]}


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ({"test.point": 2}, "stored in version 2, and this slicemill knows versions up to 1"),
        ({"test.point": 0}, "stored in version 0, which this slicemill no longer reads"),
        ({"test.nobody": 1}, "knows no state called test.nobody"),
    ],
)
def test_an_unknown_class_name_or_version_is_reported_with_a_hint(
    classes: dict[str, int], message: str
) -> None:
    tree = encode(Point(1)).tree | {"classes": classes}
    with pytest.raises(StorageError, match=message) as told:
        decode(tree, [])
    assert "slicemill home upgrade" in str(told.value)


def test_missing_fields_and_unknown_forms_are_reported() -> None:
    tree = encode(Point(1)).tree
    tree["value"] = {"test.point": {"x": 1}}
    with pytest.raises(StorageError, match=r"other fields than were stored \(y\)"):
        decode(tree, [])
    tree["value"] = {"test.point": {"x": {"test.nobody": 1}, "y": 1}}
    with pytest.raises(StorageError, match="has the form"):
        decode(tree, [])
    with pytest.raises(StorageError, match="0 buffers has come with 1"):
        decode(tree, [pa.py_buffer(b"")])


def test_an_unknown_enum_member_and_a_damaged_value_are_reported() -> None:
    tree = encode(Colour.RED).tree
    for value in ({"test.colour": "BLUE"}, {"test.colour": 5}):
        tree["value"] = value
        with pytest.raises(StorageError, match=r"test\.colour cannot be read"):
            decode(tree, [])


def test_a_renamed_or_moved_class_reads_old_values(registry: None) -> None:
    old = encode(Point(1, "a"))

    class Moved(Enum):
        RED = 1

    @dataclass(frozen=True)
    class Elsewhere:
        y: Any
        x: Any

    Elsewhere.__qualname__ = Point.__qualname__
    stored_as("test.point")(Elsewhere)
    assert decode(old.tree, []) == Elsewhere("a", 1)


def test_every_state_class_of_the_engine_has_a_name_and_a_version() -> None:
    names = registered_names()
    for name in ("join", "panes", "over", "coalesce", "group", "classify", "merge", "drop", "calls", "rows"):
        assert names[name] >= 1


@dataclass
class Untouched:
    items: list[int] = field(default_factory=list)


def test_an_unregistered_dataclass_cannot_be_encoded() -> None:
    with pytest.raises(StorageError):
        encode(Untouched())
