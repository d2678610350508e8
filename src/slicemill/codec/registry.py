"""Registry of the classes of operator state, with stable names and versions.

A class is registered once, next to its definition, under a name that never changes. So a class can be
renamed or moved, and stored state remains readable. An object is stored as its named fields, or as the plain
value that it converts to.

    @stored_as("panes", version=2, upgrade={1: lambda old: old | {"seen": 0}})
    @dataclass(slots=True)
    class PaneState: ...

    register("keys", 1, Keys, Keys.plain, Keys.from_plain)

Objects of an immutable class (a frozen dataclass, a named tuple, an enumeration) are stored by value
wherever they occur. An object of any other class is stored once; after loading, all references to it lead to
one object again.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from functools import partial
from operator import attrgetter, getitem
from typing import Any, TypeVar

from slicemill.errors import SlicemillError

T = TypeVar("T")
C = TypeVar("C", bound=type)

# Conversion of a plain value from one version to the next.
Upgrade = Callable[[Any], Any]

# This module imports all classes of operator state.
_ALL_STATES = "slicemill.operators.state_codecs"
_HINT = "run `slicemill home upgrade` with the version of slicemill that wrote it"


class StorageError(SlicemillError):
    """Error: a value cannot be stored, or this version cannot read a stored value."""


@dataclass(frozen=True, slots=True)
class Codec:
    """Codec of one class of operator state.

    An object is stored as the fields in `names`. If `from_plain` is set, the object is stored as the value
    that `to_plain` returns.
    """

    name: str
    version: int
    cls: type
    by_value: bool
    names: tuple[str, ...]
    to_plain: Callable[[Any], Any]
    from_plain: Callable[[Any], Any] | None
    upgrades: Mapping[int, Upgrade]
    named_tuple: bool = False
    # Fields that are not stored, with their constant values.
    unstored: Mapping[str, Any] = field(default_factory=dict)
    # Attribute of each stored name that differs from its attribute.
    attributes: Mapping[str, str] = field(default_factory=dict)

    def upgrade(self, plain: Any, version: int) -> Any:
        """Convert a plain value of an earlier version to the current version."""
        while version < self.version:
            plain = self.upgrades[version](plain)
            version += 1
        return plain

    def check(self, version: int) -> None:
        """Raise unless values of a stored version can be read."""
        if version > self.version:
            raise StorageError(
                f"the state {self.name} was stored in version {version}, and this slicemill knows versions "
                f"up to {self.version}: use the newer slicemill, or {_HINT}"
            )
        for number in range(version, self.version):
            if number not in self.upgrades:
                raise StorageError(
                    f"the state {self.name} was stored in version {version}, which this slicemill no longer "
                    f"reads: {_HINT}"
                )

    def new(self) -> Any:
        """Return a new object of the class, with unset fields."""
        made: Any = object.__new__(self.cls)
        return made

    def fill(self, made: Any, plain: Mapping[str, Any]) -> None:
        """Set the fields of a new object."""
        self._check_fields(plain)
        for name, value in (*plain.items(), *self.unstored.items()):
            object.__setattr__(made, self.attributes.get(name, name), value)

    def named(self, plain: Mapping[str, Any]) -> Any:
        """Return a named tuple with these fields."""
        self._check_fields(plain)
        return self.cls(**{self.attributes.get(name, name): value for name, value in plain.items()})

    def _check_fields(self, plain: Mapping[str, Any]) -> None:
        if tuple(plain) != self.names and plain.keys() != set(self.names):
            odd = ", ".join(sorted(plain.keys() ^ set(self.names)))
            raise StorageError(
                f"the state {self.name} of version {self.version} has other fields than were stored ({odd}): "
                f"{_HINT}"
            )


_by_name: dict[str, Codec] = {}
_by_class: dict[type, Codec] = {}


def stored_as(
    name: str,
    version: int = 1,
    *,
    fields: tuple[str, ...] | None = None,
    stored_names: Mapping[str, str] | None = None,
    upgrade: Mapping[int, Upgrade] | None = None,
) -> Callable[[C], C]:
    """Register the decorated class, whose fields are stored by name.

    `stored_names` has the stored name of each field that was renamed after checkpoints with its old name
    existed.

    A dataclass stores the fields that it compares; all other fields get their defaults. A named tuple stores
    its fields, any other class its `__slots__` or the given `fields`. An enumeration stores its name.
    """

    def registered(cls: C) -> C:
        if issubclass(cls, Enum):
            # `cls.__getitem__` would not work, because a string enumeration inherits this method from str.
            find = partial(getitem, cls)
            _add(Codec(name, version, cls, True, (), attrgetter("name"), find, upgrade or {}))
            return cls
        names = _fields_of(cls) if fields is None else fields
        is_tuple = issubclass(cls, tuple)
        by_value = is_tuple or _is_frozen(cls)
        renamed = stored_names or {}
        stored = tuple(renamed.get(one, one) for one in names)
        _add(
            Codec(
                name,
                version,
                cls,
                by_value,
                stored,
                _getter(names, stored),
                None,
                upgrade or {},
                is_tuple,
                _default_fields(cls) if fields is None else {},
                {old: new for new, old in renamed.items()},
            )
        )
        return cls

    return registered


def register(
    name: str,
    version: int,
    cls: type[T],
    to_plain: Callable[[T], Any],
    from_plain: Callable[[Any], T],
    *,
    by_value: bool | None = None,
    upgrade: Mapping[int, Upgrade] | None = None,
) -> None:
    """Register a class whose objects are stored as the results of `to_plain`.

    `by_value` marks an immutable class. By default, frozen dataclasses are immutable.
    """
    immutable = _is_frozen(cls) if by_value is None else by_value
    _add(Codec(name, version, cls, immutable, (), to_plain, from_plain, upgrade or {}))


def codec_of(cls: type) -> Codec | None:
    """Return the codec registered for exactly this class, ignoring base classes."""
    found = _by_class.get(cls)
    if found is None and cls.__module__.startswith("slicemill."):
        importlib.import_module(_ALL_STATES)
        found = _by_class.get(cls)
    return found


def codec_named(name: str) -> Codec:
    """Return the codec of a class name in a checkpoint."""
    if name not in _by_name:
        importlib.import_module(_ALL_STATES)
    if name not in _by_name:
        raise StorageError(f"this slicemill knows no state called {name}: {_HINT}")
    return _by_name[name]


def registered_names() -> dict[str, int]:
    """Return the registered names of all classes, with their current versions."""
    importlib.import_module(_ALL_STATES)
    return {name: codec.version for name, codec in sorted(_by_name.items())}


def _add(codec: Codec) -> None:
    known = _by_name.get(codec.name)
    # A module that is imported again redefines its classes.
    if known is not None and known.cls.__qualname__ != codec.cls.__qualname__:
        raise TypeError(f"two classes are stored as {codec.name}: {known.cls} and {codec.cls}")
    if not codec.name or codec.name.startswith("$"):
        raise TypeError(f"{codec.cls} cannot be stored as {codec.name!r}: $ marks the codec's own forms")
    _by_name[codec.name] = codec
    _by_class[codec.cls] = codec


def _fields_of(cls: type) -> tuple[str, ...]:
    if is_dataclass(cls):
        return tuple(one.name for one in fields(cls) if one.compare)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return tuple(cls._fields)
    slots = [slot for base in cls.__mro__ for slot in base.__dict__.get("__slots__", ())]
    if hasattr(cls, "__dict__") and not all("__slots__" in base.__dict__ for base in cls.__mro__[:-1]):
        raise TypeError(
            f"{cls} does not say what its fields are: make it a dataclass, give it __slots__, or name them "
            f"with fields="
        )
    return tuple(slots)


def _default_fields(cls: type) -> dict[str, Any]:
    return {one.name: one.default for one in fields(cls) if not one.compare} if is_dataclass(cls) else {}


def _is_frozen(cls: type) -> bool:
    parameters = getattr(cls, "__dataclass_params__", None)
    return parameters is not None and bool(parameters.frozen)


def _getter(names: tuple[str, ...], stored: tuple[str, ...]) -> Callable[[Any], dict[str, Any]]:
    """Return a function that returns an object's fields in a dictionary.

    The keys of the dictionary are the stored names of the fields.
    """
    if len(names) < 2:
        return lambda value: {key: getattr(value, name) for name, key in zip(names, stored, strict=True)}
    get = attrgetter(*names)
    return lambda value: dict(zip(stored, get(value), strict=True))
