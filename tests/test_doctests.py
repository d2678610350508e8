"""Examples in docstrings."""

from __future__ import annotations

import doctest
import importlib.util
import pkgutil
from itertools import chain
from pathlib import Path

import pytest

import slicemill
import slicemill_lab


def modules_with_examples() -> list[str]:
    """Return all modules with a doctest except those that need Spark, whose start takes too long."""
    found = []
    walks = (pkgutil.walk_packages(each.__path__, f"{each.__name__}.") for each in (slicemill, slicemill_lab))
    for module in chain.from_iterable(walks):
        spec = importlib.util.find_spec(module.name)
        if spec is None or spec.origin is None:
            continue
        text = Path(spec.origin).read_text(encoding="utf-8")
        if ">>> " in text and "pyspark" not in text:
            found.append(module.name)
    return found


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_in_docstrings_hold(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
