"""Digests of plan content: the same in every process, session and order of queries.

State is kept under the ids of nodes, and ids end in these digests. So a digest depends on what is computed
and on nothing else: no `hash()`, no order of a set, no field that is not compared. A field that has its
default is left out, so that a later version may add fields and still find what was kept under the old ids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields, is_dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any

from slicemill.esl.types.catalog import Catalog
from slicemill.esl.types.query import WindowCall
from slicemill.esl.types.relation import AggregateCall, RelationInput

_DIGITS = 10
_PLAIN = frozenset((str, bool, int, float, bytes, type(None), Decimal, Fraction))

_fields: dict[type, tuple[tuple[str, object], ...] | None] = {}


def digest(*parts: object) -> str:
    """Ten hexadecimal digits that stand for some content.

    >>> digest("a", ("b",)) == digest("a", ["b"])
    True
    """
    return _hashed(ContentWriter().written(parts))


def digest_of_calls(catalog: Catalog, *parts: object) -> str:
    """The same, with the definitions of users' aggregates that are called, and of those that these call."""
    writer = ContentWriter()
    text = writer.written(parts)
    told: set[str] = set()
    while left := sorted(writer.called - told):
        for name in left:
            told.add(name)
            defined = [version for version in catalog.declared_versions(name) if version is not None]
            text += writer.written(defined)
    return _hashed(text)


def short(words: Sequence[str], what: object, longest: int = 60) -> str:
    """The words as a part of a name; where they are too many, a digest of what they stand for."""
    text = ", ".join(words)
    return f"#{digest(what)}" if len(text) > longest else text


def quoted(name: str) -> str:
    """A name as one word among others.

    >>> quoted("bid"), quoted("bid by item")
    ('bid', '"bid by item"')
    """
    if name.isidentifier():
        return name
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _hashed(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=_DIGITS // 2).hexdigest()


class ContentWriter:
    """Writes content as text, and notes which aggregates are called in it, and which relations are read."""

    def __init__(self) -> None:
        self.called: set[str] = set()
        self.relations: set[str] = set()

    def written(self, what: Any) -> str:
        kind = type(what)
        if kind in _PLAIN:
            return f"{kind.__name__}:{what!r}"
        if kind is tuple or kind is list:
            return f"[{','.join(map(self.written, what))}]"
        compared = _compared(kind)
        if compared is not None:
            if kind is AggregateCall or kind is WindowCall:
                self.called.add(what.name.lower())
            elif kind is RelationInput and what.query is None:
                self.relations.add(what.relation)
            told = []
            for name, default in compared:
                value = getattr(what, name)
                if value is not default and value != default:
                    told.append(f"{name}={self.written(value)}")
            return f"{kind.__name__}({','.join(told)})"
        if isinstance(what, Enum):
            return f"{kind.__name__}.{what.name}"
        if isinstance(what, dict):
            return _sorted(f"{self.written(key)}:{self.written(value)}" for key, value in what.items())
        if isinstance(what, (set, frozenset)):
            return _sorted(map(self.written, what))
        raise TypeError(f"{kind.__name__} is no content of a plan")


def _sorted(parts: Iterable[str]) -> str:
    return f"{{{','.join(sorted(parts))}}}"


def _compared(kind: type) -> tuple[tuple[str, object], ...] | None:
    """The fields of a dataclass that tell two values apart, with their defaults; None for another class."""
    if kind not in _fields:
        _fields[kind] = _fields_of(kind) if is_dataclass(kind) else None
    return _fields[kind]


def _fields_of(kind: type) -> tuple[tuple[str, object], ...]:
    found = []
    for field in fields(kind):
        if field.compare:
            made = field.default_factory
            found.append((field.name, field.default if made is MISSING else made()))
    return tuple(found)
