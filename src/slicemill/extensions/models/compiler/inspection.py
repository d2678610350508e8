"""Inspection of running models: core values, read from the state (C19).

The code that computes results runs once as Python, for display.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from slicemill.aggregates import exact as accumulator
from slicemill.aggregates.udf.compiler import state as support
from slicemill.aggregates.udf.compiler.layout import Writer
from slicemill.aggregates.udf.compiler.module import Module
from slicemill.aggregates.udf.compiler.version import Version
from slicemill.extensions.models import numerics
from slicemill.extensions.models import numerics as heaps
from slicemill.extensions.models.canonical_graphs import core_node_id
from slicemill.extensions.models.compiler.code import ModelCode
from slicemill.kernels.kernel import inside_python, with_attributes


@dataclass(frozen=True, slots=True)
class CoreValue:
    """Value of a core, with its node in the model's graph and its text."""

    node: str
    core: str
    value: float | None


@dataclass(frozen=True, slots=True)
class ModelValue:
    """Current state of one model in one partition.

    `elements` is the number of elements in its window.
    """

    elements: int
    result: float | bool | None
    cores: tuple[CoreValue, ...]


def values_of_models(module: Module, arrays: Mapping[str, Any], index: int) -> Iterator[ModelValue]:
    """Yield the values of all models in a partition, from a copy of the arrays."""
    (made,) = (code for code in module.codes.values() if isinstance(code, ModelCode))
    if index >= len(arrays[made.record.upper()]):
        return
    code = _display_code(made)
    parts: dict[str, Any] = {"p": index, "math": math, "np": np, "dd": numerics, "heaps": heaps}
    parts |= {"ops": support, "exact": accumulator}
    parts |= {name: _copy_with_attributes(array) for name, array in arrays.items()}
    with inside_python():
        exec("\n".join(code.out.lines), parts)
    values, results = parts["values"], parts["results"]
    for number, model in enumerate(code.models):
        vector = code.joint.condition_sets.index(code.joint.conditions[number])
        placed = zip(code.joint.indices[number], code.joint.numbers[number], strict=True)
        cores = tuple(
            CoreValue(core_node_id("ac", core), str(code.joint.cores[at]), _plain(values[at]))
            for at, core in placed
        )
        value = _plain(results[number])
        truth = value if value is None or not model.is_condition else value != 0
        yield ModelValue(int(parts["elements"][vector]), truth, cores)


def _display_code(made: ModelCode) -> ModelCode:
    """Return code that writes core values and results into lists."""
    of = made.version
    code = ModelCode(Version(of.definition, of.shared, Writer(), of.record, of.index, of.window, frozenset()))
    out, record = code.out, made.record
    out.line(f"{record} = k = {record.upper()}[p]")
    vectors = range(len(code.joint.condition_sets))
    out.line(f"elements = [{', '.join(f'{record}.count{vector}' for vector in vectors)}]")
    pairs, formulas = code.write_values()
    out.line(f"values = [{', '.join(f'{high} + {low}' for high, low in pairs)}]")
    highs = [formulas.pair(result)[0] for result in code.joint.results]
    out.line(f"results = [{', '.join(highs)}]")
    return code


def _copy_with_attributes(array: Any) -> Any:
    """Return a copy, with fields as attributes."""
    copied = array.copy()
    return copied.view(with_attributes(copied.dtype)) if copied.dtype.names else copied


def _plain(value: Any) -> float | None:
    return float(value) if abs(value) < math.inf else None
