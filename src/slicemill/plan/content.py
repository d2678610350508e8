"""Stable digests (hashes) of operators and expressions; node ids end in these digests.

A digest is the same in every process, whatever the order in which queries are registered. State is stored
under node ids. So a digest depends only on the computation of a node: it uses neither `hash()` nor set order,
and ignores fields that are excluded from comparison. It also ignores fields that have their default value,
so that a later version can add fields without changing the ids of stored state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields, is_dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any

from slicemill.catalog.aggregates import CONTENT_NAME
from slicemill.catalog.catalog import Catalog
from slicemill.catalog.queries import AggregateCall, RelationInput, WindowCall

_DIGITS = 10
_PLAIN = frozenset((str, bool, int, float, bytes, type(None), Decimal, Fraction))

_fields: dict[type, tuple[tuple[str, str, object], ...] | None] = {}


def digest(*parts: object) -> str:
    """Return a digest of operators or expressions, as ten hexadecimal digits.

    >>> digest("a", ("b",)) == digest("a", ["b"])
    True
    """
    return _hash_text(ContentWriter().written(parts))


def digest_of_calls(catalog: Catalog, *parts: object) -> str:
    """Return a digest that includes the definitions of the user-defined aggregates that are called.

    Aggregates are included if the content calls them directly or indirectly.
    """
    writer = ContentWriter()
    text = writer.written(parts)
    included: set[str] = set()
    while left := sorted(writer.called - included):
        for name in left:
            included.add(name)
            defined = [version for version in catalog.declared_versions(name) if version is not None]
            text += writer.written(defined)
    return _hash_text(text)


def short_name(words: Sequence[str], what: object, longest: int = 60) -> str:
    """Join words into a part of a node's name, or return a digest if the name would be too long.

    If the result is longer than `longest`, return a digest of `what` instead.
    """
    text = ", ".join(words)
    return f"#{digest(what)}" if len(text) > longest else text


def quote_name(name: str) -> str:
    """Quote a name if it is not an identifier.

    >>> quote_name("bid"), quote_name("bid by item")
    ('bid', '"bid by item"')
    """
    if name.isidentifier():
        return name
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _hash_text(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=_DIGITS // 2).hexdigest()


class ContentWriter:
    """Serializer of operators and expressions, whose text is hashed into a digest.

    The serializer also collects the called aggregates and the relations read.
    """

    def __init__(self) -> None:
        self.called: set[str] = set()
        self.relations: set[str] = set()

    def written(self, what: Any) -> str:
        kind = type(what)
        if kind in _PLAIN:
            return f"{kind.__name__}:{what!r}"
        if kind is tuple or kind is list:
            return f"[{','.join(map(self.written, what))}]"
        compared = _comparison_fields(kind)
        if compared is not None:
            if kind is AggregateCall or kind is WindowCall:
                self.called.add(what.name.lower())
            elif kind is RelationInput and what.query is None:
                self.relations.add(what.relation)
            parts = []
            for name, content_name, default in compared:
                value = getattr(what, name)
                if value is not default and value != default:
                    parts.append(f"{content_name}={self.written(value)}")
            return f"{kind.__name__}({','.join(parts)})"
        if isinstance(what, Enum):
            return f"{kind.__name__}.{what.name}"
        if isinstance(what, dict):
            return _serialize_set(f"{self.written(key)}:{self.written(value)}" for key, value in what.items())
        if isinstance(what, (set, frozenset)):
            return _serialize_set(map(self.written, what))
        raise TypeError(f"{kind.__name__} cannot be part of a plan: a digest has no rule for it")


def _serialize_set(parts: Iterable[str]) -> str:
    return f"{{{','.join(sorted(parts))}}}"


def _comparison_fields(kind: type) -> tuple[tuple[str, str, object], ...] | None:
    """Return the compared fields of a dataclass, or None for any other type.

    Each field has its name, its name in digests, and its default.
    """
    if kind not in _fields:
        _fields[kind] = _fields_of(kind) if is_dataclass(kind) else None
    return _fields[kind]


def _fields_of(kind: type) -> tuple[tuple[str, str, object], ...]:
    found = []
    for field in fields(kind):
        if field.compare:
            made = field.default_factory
            default = field.default if made is MISSING else made()
            found.append((field.name, field.metadata.get(CONTENT_NAME, field.name), default))
    return tuple(found)
