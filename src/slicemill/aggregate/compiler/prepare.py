"""Prepare calls of user-defined aggregates over columns, for every strategy (M29-M38).

    uda = prepare(call, catalog)                  # a bound call, with or without OVER
    state = uda.start()
    answers = uda.run(state, Tuples([price], seller, ts))

Tuples arrive in order, in chunks of any size. The results are those of the reference engine, in the same
order, independent of the chunks. The state has everything that is kept between chunks, and checkpoints can
store it.

A tuple is identified by its arrival number, counted from 0 over all chunks of a call. Its result may be
returned after its chunk: at the end of its time slot, or, under ACTIVE EXPIRATION, again at its expiry.
"""

from __future__ import annotations

from functools import partial

from slicemill.aggregate.builtins import BUILTINS
from slicemill.aggregate.calls import ExecutionForm, Uda
from slicemill.aggregate.compiler.compiled import CompiledCall
from slicemill.aggregate.compiler.derive_expire import with_derived_window
from slicemill.aggregate.compiler.failures import explain
from slicemill.aggregate.compiler.layout import INTERPRETER, MACHINE, PYTHON
from slicemill.aggregate.compiler.module import generate
from slicemill.aggregate.compiler.source import NoCompiledForm
from slicemill.aggregate.compiler.specialise import specialised
from slicemill.aggregate.frame import frame_of
from slicemill.aggregate.interpreter.calls import InterpretedCall
from slicemill.aggregate.interpreter.lookup import aggregate_lookup
from slicemill.aggregate.interpreter.relations import Source, no_tables
from slicemill.aggregate.windows import Strategy, strategy_of
from slicemill.esl.types.aggregate import AggregateDefinition
from slicemill.esl.types.catalog import Catalog
from slicemill.esl.types.model import PREDEFINED
from slicemill.esl.types.query import WindowCall
from slicemill.esl.types.relation import AggregateCall
from slicemill.esl.types.schema import Kind, Type


def prepare(
    call: AggregateCall | WindowCall,
    catalog: Catalog,
    tables: Source = no_tables,
    forms: tuple[str, ...] = (MACHINE, PYTHON),
) -> Uda:
    """Prepare a call in the first supported form, or else interpreted.

    `tables` returns the stored tables that a body may read.
    """
    interpreted = InterpretedCall(call, catalog, tables)
    why = ""
    for form in forms:
        try:
            return _compiled(call, catalog, form, why)
        except NoCompiledForm as reason:
            why = why or str(reason)
    interpreted.how = ExecutionForm(INTERPRETER, why, "")
    return interpreted


def _compiled(call: AggregateCall | WindowCall, catalog: Catalog, form: str, why: str) -> CompiledCall:
    found = aggregate_lookup(catalog)(call.name, call.distinct)
    frame = frame_of(call)
    strategy = None if frame is None else strategy_of(found, frame)
    if strategy in (Strategy.FINITE, Strategy.SLIDING):
        catalog = with_derived_window(call.name, catalog)
        found = aggregate_lookup(catalog)(call.name, call.distinct)
    types = tuple(argument.type for argument in call.arguments)
    base, window = (
        None if version is None else specialised(version, types) for version in catalog.aggregates(call.name)
    )
    if call.distinct or (
        base is None
        and (window is None or strategy not in (Strategy.FINITE, Strategy.SLIDING, Strategy.ACTIVE))
    ):
        raise NoCompiledForm(f"{call.name} is a built-in aggregate")
    versions = (base, window)
    types = _cut_to_length(types, [version for version in versions if version is not None])
    literals: dict[str, int] = {}

    def user_defined(version: AggregateDefinition) -> frozenset[str]:
        """Return the names of user-defined aggregates.

        A base version that calls its own name calls the built-in aggregate that it replaces.
        """
        names = frozenset((*catalog.base_aggregates, *PREDEFINED))
        own = version.name.lower()
        return names - {own} if not version.window and own in BUILTINS else names

    external = any(version is not None and version.external is not None for version in versions)
    if external and form == PYTHON:
        raise NoCompiledForm(f"{call.name} runs as Python in any case")
    plain, nullable = (
        # In machine code, methods of a class cannot receive NULL.
        generate(
            versions,
            frame,
            strategy,
            types,
            PYTHON if external and maybe else form,
            maybe,
            literals,
            user_defined,
        )
        for maybe in (False, True)
    )
    returned = (base or window or _none()).returns
    how = ExecutionForm(form, why, (plain if external else nullable).source)
    returns = tuple(column.type for column in returned)
    return CompiledCall((plain, nullable), returns, types, frame, literals, how, partial(explain, found))


def _none() -> AggregateDefinition:
    raise AssertionError("a call that compiles has a definition")


def _cut_to_length(types: tuple[Type, ...], versions: list[AggregateDefinition]) -> tuple[Type, ...]:
    """Truncate texts to the declared length before they are encoded.

    The window stores the truncated texts.
    """
    cut = list(types)
    for place, type_ in enumerate(types):
        declared = {version.arguments.columns[place].type for version in versions}
        if type_.kind is Kind.VARCHAR and any(wanted.length is not None for wanted in declared):
            held = {
                table.schema.columns[place].type
                for version in versions
                for table in version.tables
                if table.name == "inwindow"
            }
            if len(declared | held) > 1:
                raise NoCompiledForm("texts are cut to different lengths")
            (cut[place],) = declared
    return tuple(cut)
