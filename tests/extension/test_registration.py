"""Errors about distributions that cannot be registered name the extension."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest

from slicemill import extension
from slicemill.errors import SlicemillError
from slicemill.extension import Extension, StatementHook

POT = StatementHook(kind="POT", plural="POTS", parse="kitchen:parse", bind="kitchen:bind")


@pytest.fixture(autouse=True)
def kitchen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Create a module with two extensions that declare the same statement."""
    module = ModuleType("kitchen")
    module.__dict__.update(ONE=Extension(statements=(POT,)), TWO=Extension(statements=(POT,)), NONE=1)
    monkeypatch.setitem(sys.modules, "kitchen", module)
    cached = (extension.extensions, extension.statements)
    for function in cached:
        function.cache_clear()
    yield
    for function in cached:
        function.cache_clear()


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ({"a": "kitchen:ONE", "b": "kitchen:TWO"}, "extension b: CREATE POT exists already"),
        ({"a": "kitchen:NONE"}, "extension a: kitchen:NONE is no Extension"),
        ({"a": "cellar:ONE"}, "extension a cannot be loaded: No module named 'cellar'"),
        ({"a": "kitchen:THREE"}, "extension a cannot be loaded: module 'kitchen' has no attribute 'THREE'"),
    ],
)
def test_a_registration_error_names_the_extension(
    points: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [EntryPoint(name, value, extension.GROUP) for name, value in points.items()]
    monkeypatch.setattr(extension, "entry_points", lambda group: found)
    with pytest.raises(SlicemillError, match=message):
        extension.statements()


def test_an_extension_declared_twice_by_equal_entry_points_is_registered_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    twice = [EntryPoint("a", "kitchen:ONE", extension.GROUP)] * 2
    monkeypatch.setattr(extension, "entry_points", lambda group: twice)
    assert list(extension.statements()) == ["POT"]
