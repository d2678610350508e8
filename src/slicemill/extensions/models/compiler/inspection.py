"""Current values of models, computed from stored state for display (C19).

A core statistic is a sum, count or extreme over the window from which a model's result is computed. The
generated code that computes results runs once, as Python.
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
    """Current value of a core statistic, with its text and its node in the model's graph."""

    node: str
    core: str
    value: float | None


@dataclass(frozen=True, slots=True)
class ModelValue:
    """Current result of one model in one partition, with the values of its core statistics.

    `elements` is the number of rows in the window that the model includes.
    """

    elements: int
    result: float | bool | None
    cores: tuple[CoreValue, ...]


def values_of_models(module: Module, arrays: Mapping[str, Any], index: int) -> Iterator[ModelValue]:
    """Yield the current values of all models of a call in one partition.

    `arrays` is the stored state. It is copied and not changed.
    """
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
    """Generate code that computes the values of core statistics and the results of models, as lists."""
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
    """Return a copy of a structured array whose fields can be read as attributes."""
    copied = array.copy()
    return copied.view(with_attributes(copied.dtype)) if copied.dtype.names else copied


def _plain(value: Any) -> float | None:
    return float(value) if abs(value) < math.inf else None
