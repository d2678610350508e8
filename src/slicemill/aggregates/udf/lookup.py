"""Lookup of aggregates by name, user-defined or built-in, for the interpreter (M29-M33, M37, M38).

Aggregates in ESL (slicemill's SQL) are interpreted statement by statement, which is slow but simple to
verify.

An aggregate may have a variant for unbounded streams (CREATE AGGREGATE) and a variant for windows (CREATE
WINDOW AGGREGATE), independent of each other. If the user has declared neither, the name denotes the built-in
aggregate. If only the variant for windows is declared, the built-in aggregate serves unbounded streams. If
only the variant for unbounded streams is declared, it is evaluated over the whole window for each result.

A statement of an aggregate may call the aggregate itself over fewer or other rows. Each call has its own
tables, and calls nest up to MOST_CALLS deep.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from slicemill.aggregates import definition as aggregate
from slicemill.aggregates.definition import (
    BaseAccumulator,
    BaseFactory,
    Returned,
    WindowAccumulator,
    WindowFactory,
)
from slicemill.aggregates.frames import Args, Inwindow
from slicemill.aggregates.registry import BUILTINS
from slicemill.aggregates.udf.interpreter import (
    BodyContext,
    Lookup,
    LoopStep,
    Program,
    QueryEnvironment,
    Source,
    StatementPath,
    Step,
    compile_bodies,
    compile_query,
    no_tables,
    row_converter,
)
from slicemill.catalog.aggregates import AggregateDefinition, BodyState
from slicemill.catalog.catalog import Catalog
from slicemill.catalog.queries import RelationQuery
from slicemill.errors import SlicemillError
from slicemill.extension import load
from slicemill.functions.values import ExpressionError
from slicemill.types import Row, Schema, assignable

MOST_CALLS = 500
# Python stack frames to allow per nested call. A call needs about ten, and more in nested expressions.
_FRAMES = 30

# Number of nested calls that always fit below Python's default recursion limit
_SHALLOW = 10


def resolve_aggregate(
    name: str, catalog: Catalog, *, distinct: bool = False, tables: Source = no_tables
) -> aggregate.RowAggregate:
    """Return an aggregate by name. `tables` returns the stored tables that its statements read.

    >>> from slicemill.binder import bind
    >>> catalog = bind('''CREATE AGGREGATE total(x Int) : Int { TABLE state(s Int);
    ...     INITIALIZE: { INSERT INTO state VALUES (x); }
    ...     ITERATE: { UPDATE state SET s = s + x; }
    ...     TERMINATE: { INSERT INTO RETURN SELECT s FROM state; } }''').catalog
    >>> aggregate.evaluate(resolve_aggregate("total", catalog).base, [(1,), (2,), (4,)])
    [7]
    """
    return aggregate_lookup(catalog, tables)(name, distinct)


def aggregate_lookup(catalog: Catalog, tables: Source = no_tables) -> Lookup:
    """Return a function that looks up aggregates by name, and resolves each name once.

    Statements of an aggregate may call other aggregates.
    """

    resolved: dict[tuple[str, bool], aggregate.RowAggregate] = {}
    nesting = CallNesting()

    def find(name: str, distinct: bool = False) -> aggregate.RowAggregate:
        key = (name.lower(), distinct)
        if key not in resolved:
            resolved[key] = resolve(name, distinct)
        return resolved[key]

    def resolve(name: str, distinct: bool) -> aggregate.RowAggregate:
        base, window = catalog.aggregates(name)
        if not distinct and (base is not None or window is not None):
            return _build_aggregate(base, window, find, tables, nesting)
        key = f"{name.lower()}_distinct" if distinct else name.lower()
        if key not in BUILTINS:
            raise SlicemillError(f"there is no aggregate {name}: define it with CREATE AGGREGATE {name}")
        return BUILTINS[key]

    return find


def evaluate_relation(query: RelationQuery, catalog: Catalog, tables: Source) -> list[Row]:
    """Evaluate an ad hoc query or a view over tables (M40).

    `tables` returns the rows of a table by its declared name.

    >>> from slicemill.binder import bind
    >>> catalog = bind("CREATE TABLE t(a int, b int); SELECT a, sum(b) FROM t GROUP BY a ORDER BY a").catalog
    >>> evaluate_relation(catalog.queries["query_1"].query, catalog, lambda name: [(2, 1), (1, 4), (2, 2)])
    [(1, 4), (2, 3)]
    """
    return compile_query(query, aggregate_lookup(catalog, tables))(QueryEnvironment(tables))


def _build_aggregate(
    base: AggregateDefinition | None,
    window: AggregateDefinition | None,
    lookup: Lookup,
    tables: Source,
    nesting: CallNesting,
) -> aggregate.RowAggregate:
    versions = [version for version in (base, window) if version is not None]
    name, columns = versions[0].name, len(versions[0].returns)
    if len({len(version.returns) for version in versions}) > 1:
        raise SlicemillError(
            f"the base version of {name} returns {base and base.returns} and the window version "
            f"{window and window.returns}: a call needs the same columns from both"
        )
    builtin = BUILTINS.get(name.lower()) if columns == 1 else None
    builtin_base = builtin.base if builtin is not None else None
    algebraic = any(version.algebraic for version in versions)
    if algebraic:
        _check_combines(versions[0])
    return aggregate.RowAggregate(
        name,
        base=_base_factory(base, lookup, tables, nesting) if base is not None else builtin_base,
        window=_window_factory(window, lookup, tables, nesting) if window is not None else None,
        algebraic=algebraic,
        columns=columns,
    )


def _check_combines(definition: AggregateDefinition) -> None:
    """Raise an error unless an ALGEBRAIC aggregate accepts its own results as arguments (M35).

    Results of panes (intervals between window borders) are combined by the same aggregate.
    """
    arguments, returns = definition.arguments, definition.returns
    if len(arguments) != len(returns) or not all(
        assignable(argument.type, column.type) for argument, column in zip(arguments, returns, strict=True)
    ):
        raise SlicemillError(
            f"{definition.name} is ALGEBRAIC, so it must accept its own results as arguments, but it accepts "
            f"{arguments} and returns {returns}: remove ALGEBRAIC, or return all that combining needs"
        )


def _base_factory(
    definition: AggregateDefinition, lookup: Lookup, tables: Source, nesting: CallNesting
) -> BaseFactory:
    if definition.provider is not None:
        make_base: Callable[[AggregateDefinition], BaseAccumulator] = load(definition.provider.accumulator)
        return lambda: make_base(definition)
    if definition.external is not None:
        make = import_class(definition.external)
        return lambda: ExternalAccumulator(definition, make)

    def own_name_is_builtin(name: str, distinct: bool) -> aggregate.RowAggregate:
        """Look up an aggregate. The name of the replaced built-in denotes the built-in itself."""
        replaced = name.lower() == definition.name.lower() and name.lower() in BUILTINS
        return aggregate_lookup(Catalog())(name, distinct) if replaced else lookup(name, distinct)

    program = CompiledOnDemand(lambda: compile_bodies(definition, own_name_is_builtin))

    def make_instance() -> BaseAccumulator:
        return EslAccumulator(definition, program(), None, tables, nesting)

    return make_instance


def _window_factory(
    definition: AggregateDefinition, lookup: Lookup, tables: Source, nesting: CallNesting
) -> WindowFactory:
    if definition.provider is not None:
        make_windowed: Callable[[AggregateDefinition], WindowAccumulator] = load(
            definition.provider.accumulator
        )
        return lambda inwindow: make_windowed(definition)  # noqa: ARG005
    if definition.external is not None:
        make = import_class(definition.external)
        return lambda inwindow: ExternalAccumulator(definition, make, inwindow)
    program = CompiledOnDemand(lambda: compile_bodies(definition, lookup))

    def make_instance(inwindow: Inwindow) -> WindowAccumulator:
        return EslAccumulator(definition, program(), inwindow, tables, nesting)

    return make_instance


class CallNesting:
    """Nesting depth of aggregate calls, which is limited with a clear error message.

    The error of Python's own recursion limit would be unclear.
    """

    __slots__ = ("_depth",)

    def __init__(self) -> None:
        self._depth = 0

    def enter(self, name: str) -> None:
        self._depth += 1
        # Python's limit is raised only for deep calls, because the limit applies to the whole process.
        if self._depth == _SHALLOW and sys.getrecursionlimit() < MOST_CALLS * _FRAMES:
            sys.setrecursionlimit(MOST_CALLS * _FRAMES)
        if self._depth > MOST_CALLS:
            raise ExpressionError(
                f"calls of {name} are nested more than {MOST_CALLS} deep, perhaps in an endless recursion: "
                "store which rows have been processed, or use WHILE"
            )

    def leave(self) -> None:
        self._depth -= 1


class CompiledOnDemand:
    """Statements of an aggregate, which are compiled on first use."""

    __slots__ = ("_compile", "_program")

    def __init__(self, compile_: Callable[[], Program]) -> None:
        self._compile = compile_
        self._program: Program | None = None

    def __call__(self) -> Program:
        if self._program is None:
            self._program = self._compile()
        return self._program


class EslAccumulator:
    """Accumulator of an aggregate written in ESL, for unbounded streams or for windows.

    All statements can read the arguments. In EXPIRE, they are the arguments of the expiring tuple, and in
    TERMINATE those of the last tuple.
    """

    __slots__ = ("_body", "_name", "_names", "_nesting", "_program", "_to_arguments")

    def __init__(
        self,
        definition: AggregateDefinition,
        program: Program,
        inwindow: Inwindow | None,
        tables: Source,
        nesting: CallNesting,
    ) -> None:
        self._name, self._nesting = definition.name, nesting
        self._names = definition.arguments.names
        self._to_arguments = row_converter(definition.arguments)
        self._program = program
        self._body = BodyContext(definition, inwindow, tables)

    def initialize(self, args: Args) -> Returned:
        return self._run(BodyState.INITIALIZE, args)

    def iterate(self, args: Args) -> Returned:
        return self._run(BodyState.ITERATE, args)

    def expire(self, args: Args) -> Returned:
        return self._run(BodyState.EXPIRE, args)

    def terminate(self) -> Returned:
        before = dict(self._body.tables)
        returned = self._execute(BodyState.TERMINATE)
        self._body.tables = before
        return returned

    def state(self) -> object:
        return {"tables": self._body.tables, "arguments": self._body.arguments}

    def restore(self, state: Any) -> None:
        self._body.tables, self._body.arguments = state["tables"], state["arguments"]

    def run_statement(self, state: BodyState, path: StatementPath) -> None:
        """Run one statement that failed in generated code, so that it raises an error with a message."""
        steps: Sequence[Step] = self._program[state]
        for index in path[:-1]:
            loop = steps[index]
            assert isinstance(loop, LoopStep), "only loops contain statements"
            steps = loop.parts
        steps[path[-1]](self._body)

    def _run(self, state: BodyState, args: Args) -> Returned:
        self._body.arguments = dict(zip(self._names, self._to_arguments(args), strict=True))
        return self._execute(state)

    def _execute(self, state: BodyState) -> Returned:
        steps = self._program.get(state, ())
        if steps:
            self._nesting.enter(self._name)
            try:
                for step in steps:
                    step(self._body)
            finally:
                self._nesting.leave()
        returned, self._body.returned = self._body.returned, []
        return returned


# Aggregates in Python (M38)
#
# The declaration is `CREATE AGGREGATE name(…) : type LANGUAGE PYTHON AS 'module:class'`.
#
# The class is instantiated without arguments, once per group or partition. Its methods are
# `initialize(*args)`, `iterate(*args)`, for a window aggregate `expire(*args)`, and for an aggregate with a
# final result `terminate()`, which must not change the state. A method returns None, a value, or a list of
# values. If the aggregate has several columns, a value is a tuple.
#
# In a window aggregate, `self.inwindow` is the window, with iteration, `oldest()` and `delete(where)`.


_WINDOW = "inwindow"


def import_class(external: str) -> Callable[[], object]:
    """Import the Python class of an aggregate, given as `module:class`."""
    module, _, name = external.partition(":")
    class_: Callable[[], object] = getattr(importlib.import_module(module), name)
    return class_


def object_state(thing: object) -> Any:
    """Return the state of an object of a Python aggregate: its attributes, or `__getstate__`."""
    state = thing.__getstate__()
    # The window is omitted, because it is stored with the state of the call.
    return {name: value for name, value in state.items() if name != _WINDOW} if type(state) is dict else state


def restore_object(thing: Any, state: Any) -> None:
    """Load a stored state into a new object of a Python aggregate."""
    if hasattr(thing, "__setstate__"):
        thing.__setstate__(state)
        return
    for part in state if isinstance(state, tuple) else (state,):
        for name, value in (part or {}).items():
            setattr(thing, name, value)


class ExternalAccumulator:
    """Accumulator of an aggregate written in Python, for unbounded streams or for windows.

    It calls the methods of an object of the user's class.
    """

    __slots__ = ("_definition", "_object", "_started", "_to_arguments", "_to_return")

    def __init__(
        self, definition: AggregateDefinition, make: Callable[[], object], inwindow: Inwindow | None = None
    ) -> None:
        self._definition = definition
        self._object = make()
        self._started = False
        self._to_arguments = row_converter(definition.arguments)
        self._to_return = row_converter(definition.returns)
        if inwindow is not None:
            setattr(self._object, _WINDOW, inwindow)

    def initialize(self, args: Args) -> Returned:
        self._started = True
        return self._call("initialize", args)

    def iterate(self, args: Args) -> Returned:
        return self._call("iterate", args)

    def expire(self, args: Args) -> Returned:
        return self._call("expire", args)

    def terminate(self) -> Returned:
        """Return the values of the method `terminate`, or no values before the first tuple."""
        if not self._started or not hasattr(self._object, "terminate"):
            return []
        return self._call("terminate", None)

    def state(self) -> object:
        return object_state(self._object), self._started

    def restore(self, state: Any) -> None:
        attributes, self._started = state
        restore_object(self._object, attributes)

    def _call(self, method: str, args: Args | None) -> Returned:
        arguments = () if args is None else self._to_arguments(args)
        returned = getattr(self._object, method)(*arguments)
        values = returned if isinstance(returned, list) else [] if returned is None else [returned]
        return [self.convert_result(value, method) for value in values]

    def convert_result(self, value: object, method: str) -> object:
        """Convert a value that a Python method returned to the declared column types."""
        schema: Schema = self._definition.returns
        row: Row = (value,) if len(schema) == 1 else tuple(value) if isinstance(value, (tuple, list)) else ()
        try:
            converted = self._to_return(tuple(v.item() if isinstance(v, np.generic) else v for v in row))
        except (KeyError, TypeError, ValueError) as problem:
            raise SlicemillError(
                f"{self._definition.external}.{method} returned {value!r}, but {self._definition.name} is "
                f"declared to return {schema}: return None, such a value or tuple, or a list of them"
            ) from problem
        return converted[0] if len(schema) == 1 else converted
