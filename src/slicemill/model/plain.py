"""Functions for machine code, run as Python: where nothing is to be compiled, or records hold objects."""

from __future__ import annotations

from types import FunctionType, SimpleNamespace
from typing import Any


def as_python(names: dict[str, Any]) -> SimpleNamespace:
    """The compiled functions among the names of a module as Python, down to those that they call."""
    found = {name: value.py_func for name, value in names.items() if hasattr(value, "py_func")}
    inside = dict(names)
    made = {name: FunctionType(function.__code__, inside) for name, function in found.items()}
    inside.update(made)
    return SimpleNamespace(**made)
