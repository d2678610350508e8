"""The generated module of a call: its source, and what it must be called with."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from slicemill.aggregate.compiler.body import Procedure
from slicemill.aggregate.compiler.external import check_compiles, import_lines
from slicemill.aggregate.compiler.layout import MACHINE, Columns
from slicemill.aggregate.compiler.strategies import Boxes
from slicemill.aggregate.compiler.version import Shared, safe
from slicemill.aggregate.frame import Frame
from slicemill.aggregate.windows import Strategy
from slicemill.esl.types.aggregate import AggregateDefinition, State
from slicemill.esl.types.schema import Type

UserDefined = Callable[[AggregateDefinition], frozenset[str]]

_NUMBERS = ("preceding", "slide", "length", "pane_length", "panes_preceding", "panes_slide")
_LOOP = ("slot", "opened", "negative_number", "negative_ts", "negative_p")
_TUPLES = ("codes", "ts", "first", "complete")


@dataclass(frozen=True, slots=True)
class Routine:
    """A function of the module: its lines, its parameters, and the arrays it gives back."""

    name: str
    lines: list[str]
    parameters: tuple[str, ...]
    kept: tuple[str, ...]
    sites: list[tuple[str, State, int]]
    bound: int | None  # rows that one tuple can give; None if nobody knows
    one_each: bool  # does each tuple give exactly one row?


@dataclass(frozen=True, slots=True)
class Module:
    """All of a call that is generated, for arguments that may be NULL or never are."""

    source: str
    form: str
    run: Routine
    finish: Routine | None
    records: dict[str, np.dtype[Any]]  # by the name of their array
    pools: dict[str, np.dtype[Any]]
    texts: dict[str, list[str]]  # the fields of each of them that hold texts
    columns: dict[str, Columns]
    procedures: dict[str, Procedure]
    closures: dict[str, Any]
    null_returns: tuple[bool, ...]
    loop: str  # the array whose records also hold what the loop keeps per partition


def generate(
    versions: tuple[AggregateDefinition | None, AggregateDefinition | None],
    frame: Frame | None,
    box: Strategy | None,
    types: tuple[Type, ...],
    form: str,
    nullable: bool,
    literals: dict[str, int],
    user_defined: UserDefined,
) -> Module:
    """The module of a call; Unfit where the form cannot take it."""
    shared = Shared(form, nullable, literals=literals)
    while True:
        before = set(shared.facts)
        shared.sites, shared.closures, shared.external = [], {}, {}
        boxes = Boxes(versions, frame, box, types, shared, user_defined)
        lines = boxes.write()
        finish_boxes, finish_lines = None, []
        if box is None:
            finish_boxes = Boxes(versions, frame, box, types, shared, user_defined)
            finish_boxes.fields = boxes.fields
            finish_lines = finish_boxes.write_finish()
        if shared.facts == before:
            break
    return _module(boxes, lines, finish_boxes, finish_lines, shared)


def _module(
    boxes: Boxes, lines: list[str], finish_boxes: Boxes | None, finish_lines: list[str], shared: Shared
) -> Module:
    run = _routine("run", boxes, lines, shared)
    finish = _routine("finish", finish_boxes, finish_lines, shared) if finish_boxes is not None else None
    columns = {record.upper(): made.columns() for record, made in boxes.procedures.items()}
    columns.setdefault(boxes.loop, Columns({})).extra.extend(boxes.fields.items())
    columns |= {f"trouble_{record}": _arguments(made) for record, made in boxes.procedures.items()}
    records = {name: held.dtype(shared.form) for name, held in columns.items()}
    pool_columns = {
        made.array(table): made.pool_columns(table)
        for made in boxes.procedures.values()
        for table in made.pools
    }
    if "window_at" in boxes.fields:
        pool_columns["window"] = boxes.window_columns()
    if "latest_at" in boxes.fields:
        pool_columns["latest"] = boxes.latest_columns()
    pools = {name: held.dtype(shared.form) for name, held in pool_columns.items()}
    for record, made in boxes.procedures.items():
        if made.definition.external is not None and shared.form == MACHINE:
            check_compiles(made.definition, records[record.upper()])
    columns |= pool_columns
    return Module(
        _source(boxes, [routine for routine in (run, finish) if routine is not None], shared),
        shared.form,
        run,
        finish,
        records,
        pools,
        {name: held.texts() for name, held in columns.items()},
        columns,
        boxes.procedures,
        shared.closures,
        tuple(shared.null(f"return {place}", "maybe") != "False" for place in range(len(boxes.returns))),
        boxes.loop,
    )


def _arguments(made: Procedure) -> Columns:
    types = {safe(argument.name): argument.type for argument in made.definition.arguments}
    return Columns(types, frozenset(types), [("record_place", "i8"), ("tuple_place", "i8")])


def _routine(name: str, boxes: Boxes, lines: list[str], shared: Shared) -> Routine:
    kept = tuple(boxes.kept)
    text = "\n".join(lines).replace("KEPT", ", ".join(kept))
    records = ["K", *(record.upper() for record in boxes.procedures)]
    troubles = [f"trouble_{record}" for record in boxes.procedures]
    pools = [part for pool in boxes.pools for part in (pool, f"{pool}_top")]
    inputs = [part for place in range(len(boxes.types)) for part in (f"in_{place}", f"in_{place}_null")]
    possible = [*records, *troubles, *_LOOP, *pools, *_NUMBERS, *inputs, *_TUPLES, *boxes.outputs]
    parameters = tuple(p for p in possible if re.search(rf"\b{p}\b", text))
    header = f"def {name}({', '.join(parameters)}):"
    return Routine(
        name,
        text.replace("HEADER", header).split("\n"),
        parameters,
        kept,
        list(shared.sites),
        None if boxes.grows else boxes.bound,
        boxes.one_each,
    )


def _source(boxes: Boxes, routines: list[Routine], shared: Shared) -> str:
    machine = shared.form == MACHINE
    name = (boxes.base or boxes.version or _no_version()).name
    lines = [f'"""{name}: generated from its definition."""', "", "import numpy as np"]
    lines += ["from numba import njit"] if machine else []
    lines += ["", "from slicemill.aggregate.exact import accumulator as exact"]
    support = " import support" if machine else ".support import plain"
    lines += [f"from slicemill.aggregate.compiler{support} as ops"]
    if any(made.definition.model is not None for made in boxes.procedures.values()):
        lines += [f"from slicemill.model{' import numerics' if machine else '.numerics import plain'} as dd"]
        lines += [f"from slicemill.model{' import heaps' if machine else '.heaps import plain as heaps'}"]
    lines += import_lines(shared.external)
    for record, made in boxes.procedures.items():
        if not any(f"failed_{record}(" in line for routine in routines for line in routine.lines):
            continue
        names = [(safe(a.name), made.variable(a.name)) for a in made.definition.arguments]
        values = [part for _, variable in names for part in (variable, f"{variable}_null")]
        lines += ["", "", *(["@njit(cache=True)"] if machine else [])]
        lines += [f"def failed_{record}({', '.join(['trouble', 'site', 'p', 'i', *values])}):"]
        lines += ["    trouble[0].record_place = p", "    trouble[0].tuple_place = i"]
        for field, variable in names:
            lines += [
                f"    trouble[0].{field} = {variable}",
                f"    trouble[0].{field}_null = {variable}_null",
            ]
        lines += ["    return site"]
    for routine in routines:
        lines += ["", "", *(['@njit(cache=True, error_model="numpy")'] if machine else []), *routine.lines]
    return "\n".join(lines) + "\n"


def _no_version() -> AggregateDefinition:
    raise AssertionError("an aggregate has a version")
