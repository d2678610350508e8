"""Generation of the Python module for an aggregate call: its code, and the parameters of its routines.

A record has the state of one partition in a structured array. A pool is an array with the rows of one local
table for all partitions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from slicemill.aggregates.definition import Strategy
from slicemill.aggregates.frames import WindowFrame
from slicemill.aggregates.udf.compiler.layout import MACHINE, RecordColumns
from slicemill.aggregates.udf.compiler.loops import CallCode, TupleLoop, WindowCode
from slicemill.aggregates.udf.compiler.python_classes import check_compiles, import_lines
from slicemill.aggregates.udf.compiler.version import AggregateCode, ModuleFacts, safe_identifier
from slicemill.aggregates.udf.interpreter import StatementPath
from slicemill.catalog.aggregates import AggregateDefinition, BodyState
from slicemill.types import Type

UserDefined = Callable[[AggregateDefinition], frozenset[str]]

_NUMBERS = ("preceding", "slide", "length", "pane_length", "panes_preceding", "panes_slide")
_LOOP = ("slot", "opened", "negative_number", "negative_ts", "negative_p")
_TUPLES = ("codes", "ts", "first", "complete")


@dataclass(frozen=True, slots=True)
class GeneratedRoutine:
    """Generated function of an aggregate call: its lines, parameters and returned arrays.

    `bound` is the maximum number of output rows per tuple, None if unknown. `one_each` is True if each tuple
    returns exactly one row. `sites` has, for each statement that may fail, its record, routine and position.
    """

    name: str
    lines: list[str]
    parameters: tuple[str, ...]
    returned_arrays: tuple[str, ...]
    sites: list[tuple[str, BodyState, StatementPath]]
    bound: int | None
    one_each: bool


@dataclass(frozen=True, slots=True)
class Module:
    """Generated code of an aggregate call, either for nullable arguments or for non-NULL arguments."""

    source: str
    form: str
    run: GeneratedRoutine
    finish: GeneratedRoutine | None
    records: dict[str, np.dtype[Any]]  # types of the record arrays, by array name
    pools: dict[str, np.dtype[Any]]
    texts: dict[str, list[str]]  # names of the string fields in records and pools, by array name
    columns: dict[str, RecordColumns]
    codes: dict[str, AggregateCode]
    closures: dict[str, Any]
    null_returns: tuple[bool, ...]
    loop: str  # name of the array whose records include the loop's state


def generate(
    versions: tuple[AggregateDefinition | None, AggregateDefinition | None],
    frame: WindowFrame | None,
    strategy: Strategy | None,
    types: tuple[Type, ...],
    form: str,
    nullable: bool,
    literals: dict[str, int],
    user_defined: UserDefined,
) -> Module:
    """Generate the module of an aggregate call, or raise NoCompiledForm.

    The code is generated repeatedly, until no new facts about NULLs and used arguments are added.
    """
    shared = ModuleFacts(form, nullable, literals=literals)
    while True:
        before = set(shared.facts)
        shared.sites, shared.closures, shared.external = [], {}, {}
        loop = TupleLoop(versions, frame, strategy, types, shared, user_defined)
        call = CallCode(loop)
        lines = call.write()
        finish, finish_lines = None, []
        if strategy is None:
            finish = TupleLoop(versions, frame, strategy, types, shared, user_defined)
            finish.fields = loop.fields
            finish_lines = CallCode(finish).write_finish()
        if shared.facts == before:
            break
    run_ = _routine("run", loop, lines, shared)
    finish_ = _routine("finish", finish, finish_lines, shared) if finish is not None else None
    return _module(loop, call.window, run_, finish_, shared)


def _module(
    loop: TupleLoop,
    window: WindowCode | None,
    run: GeneratedRoutine,
    finish: GeneratedRoutine | None,
    shared: ModuleFacts,
) -> Module:
    columns = {record.upper(): made.columns() for record, made in loop.codes.items()}
    columns.setdefault(loop.loop, RecordColumns({})).extra.extend(loop.fields.items())
    columns |= {f"failure_{record}": _arguments(made) for record, made in loop.codes.items()}
    records = {name: each.dtype(shared.form) for name, each in columns.items()}
    pool_columns = {
        made.version.array(table): made.pool_columns(table)
        for made in loop.codes.values()
        for table in made.pools
    }
    if window is not None and "window_at" in loop.fields:
        pool_columns["window"] = window.columns()
    if "latest_at" in loop.fields:
        pool_columns["latest"] = loop.latest_columns()
    pools = {name: each.dtype(shared.form) for name, each in pool_columns.items()}
    for record, made in loop.codes.items():
        if made.version.definition.external is not None and shared.form == MACHINE:
            check_compiles(made.version.definition, records[record.upper()])
    columns |= pool_columns
    return Module(
        _source(loop, [routine for routine in (run, finish) if routine is not None], shared),
        shared.form,
        run,
        finish,
        records,
        pools,
        {name: each.texts() for name, each in columns.items()},
        columns,
        loop.codes,
        shared.closures,
        tuple(shared.null(f"return {index}", "maybe") != "False" for index in range(len(loop.returns))),
        loop.loop,
    )


def _arguments(made: AggregateCode) -> RecordColumns:
    types = {safe_identifier(argument.name): argument.type for argument in made.version.definition.arguments}
    return RecordColumns(types, frozenset(types), [("record_place", "i8"), ("tuple_place", "i8")])


def _routine(name: str, loop: TupleLoop, lines: list[str], shared: ModuleFacts) -> GeneratedRoutine:
    returned_arrays = tuple(loop.returned_arrays)
    text = "\n".join(lines).replace("KEPT", ", ".join(returned_arrays))
    records = ["K", *(record.upper() for record in loop.codes)]
    failures = [f"failure_{record}" for record in loop.codes]
    pools = [part for pool in loop.pools for part in (pool, f"{pool}_top")]
    inputs = [part for index in range(len(loop.types)) for part in (f"in_{index}", f"in_{index}_null")]
    possible = [*records, *failures, *_LOOP, *pools, *_NUMBERS, *inputs, *_TUPLES, *loop.outputs]
    parameters = tuple(p for p in possible if re.search(rf"\b{p}\b", text))
    header = f"def {name}({', '.join(parameters)}):"
    return GeneratedRoutine(
        name,
        text.replace("HEADER", header).split("\n"),
        parameters,
        returned_arrays,
        list(shared.sites),
        None if loop.grows else loop.bound,
        loop.one_each,
    )


def _source(loop: TupleLoop, routines: list[GeneratedRoutine], shared: ModuleFacts) -> str:
    machine = shared.form == MACHINE
    name = (loop.base or loop.version or _no_version()).name
    lines = [f'"""{name}: generated from its definition."""', "", "import math", "", "import numpy as np"]
    # Division by zero raises an error for Python floats, but not for NumPy floats.
    lines += ["from numpy import float64 as float"] if machine else []
    lines += ["", "from slicemill.aggregates.udf.compiler import state as ops"]
    lines += ["from slicemill.aggregates import exact as exact"]
    lines += ["from slicemill.kernels.kernel import helper, kernel"] if machine else []
    providers = [made.version.definition.provider for made in loop.codes.values()]
    lines += dict.fromkeys(
        line for provider in providers if provider is not None for line in provider.imports
    )
    lines += import_lines(shared.external)
    for record, made in loop.codes.items():
        if not any(f"failed_{record}(" in line for routine in routines for line in routine.lines):
            continue
        names = [
            (safe_identifier(a.name), made.version.variable(a.name))
            for a in made.version.definition.arguments
        ]
        values = [part for _, variable in names for part in (variable, f"{variable}_null")]
        lines += ["", "", *(["@helper"] if machine else [])]
        lines += [f"def failed_{record}({', '.join(['failure', 'site', 'p', 'i', *values])}):"]
        lines += ["    failure[0].record_place = p", "    failure[0].tuple_place = i"]
        for field, variable in names:
            lines += [
                f"    failure[0].{field} = {variable}",
                f"    failure[0].{field}_null = {variable}_null",
            ]
        lines += ["    return site"]
    for routine in routines:
        rows = routine.parameters.index("codes")
        decorator = f'@kernel(rows={rows}, error_model="numpy")'
        lines += ["", "", *([decorator] if machine else []), *routine.lines]
    return "\n".join(lines) + "\n"


def _no_version() -> AggregateDefinition:
    raise AssertionError("an aggregate has a definition")
