"""User-defined aggregates in Python whose methods Numba compiles to machine code (M38).

The class declares its state as annotated fields, and its methods access nothing else:

    class Spread:
        low: float
        high: float

        def initialize(self, x): self.low = self.high = x
        def iterate(self, x): self.low, self.high = min(self.low, x), max(self.high, x)
        def terminate(self): return self.high - self.low

In machine code, `self` is the record with the state of a partition, and the methods run in the same loops as
ESL statements. Fields are int (64 bits), float or bool. A method returns None or a value of the declared
types: float for REAL, int for BIGINT, a tuple if the aggregate has several columns. After the first NULL
argument, records become objects of the class, and the same loop runs as Python.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from functools import partial
from typing import Any

import numba
import numpy as np
from numba.core import types as numba_types

from slicemill.aggregates.udf.compiler.layout import MACHINE, Code, NoCompiledForm, RecordColumns, dtype_of
from slicemill.aggregates.udf.compiler.version import Version
from slicemill.aggregates.udf.lookup import ExternalAccumulator, import_class
from slicemill.catalog.aggregates import AggregateDefinition, BodyState
from slicemill.types import Kind, Type

_FIELDS = {int: "i8", float: "f8", bool: "?", "int": "i8", "float": "f8", "bool": "?"}
_GIVES: dict[Kind, tuple[type, ...]] = {
    Kind.DOUBLE: (numba_types.Float,),
    Kind.INT: (numba_types.Integer,),
    Kind.BIGINT: (numba_types.Integer,),
    Kind.TIMESTAMP: (numba_types.Integer,),
    Kind.BOOLEAN: (numba_types.Boolean,),
}
_METHODS = {
    BodyState.INITIALIZE: "initialize",
    BodyState.ITERATE: "iterate",
    BodyState.EXPIRE: "expire",
    BodyState.TERMINATE: "terminate",
}


class ClassCode:
    """Code generator for an aggregate written as a Python class.

    The generated code calls a method for each routine: `initialize`, `iterate`, `expire`, `terminate`.
    """

    def __init__(self, version: Version) -> None:
        self.version = version
        self.out, self.form = version.out, version.shared.form
        self.definition, self.record = version.definition, version.record
        self.pools = version.pools
        self._started = "True"

    def columns(self) -> RecordColumns:
        if self.form != MACHINE:
            return RecordColumns({}, extra=[("object", "O")])
        extra = [(name, _FIELDS[kind]) for name, kind in fields_of(self.definition).items()]
        return RecordColumns({}, extra=extra)

    def pool_columns(self, table: str) -> RecordColumns:
        raise AssertionError(f"a class has no table {table}")

    def reset(self) -> None:
        """Write no code, because the method `initialize` sets the whole state."""

    @property
    def one_body(self) -> bool:
        return False

    @property
    def answers_once(self) -> bool:
        return False

    def bind_last(self, started: str) -> None:
        self._started = started

    def bound_of(self, state: BodyState) -> int | None:
        return int(self._returns(state))

    def returns_at_steps(self) -> bool:
        return self._returns(BodyState.INITIALIZE) or self._returns(BodyState.ITERATE)

    def needs_window(self) -> bool:
        return hasattr(import_class(_external(self.definition)), "expire")

    def _returns(self, state: BodyState) -> bool:
        method = getattr(import_class(_external(self.definition)), _METHODS[state], None)
        return method is not None and _returns_something(method)

    def statements(self, state: BodyState, bound: bool = True) -> None:
        del bound
        made, method = import_class(_external(self.definition)), _METHODS[state]
        if not hasattr(made, method):
            return
        if state is BodyState.INITIALIZE:
            self._begin(made)
        given = [] if state is BodyState.TERMINATE else list(self.definition.arguments)
        codes = [self._given(argument.name, argument.type) for argument in given]
        if self.form == MACHINE:
            call = f"{self._function(method)}({', '.join([self.record, *codes])})"
        else:
            checked = self.version.scalars.closure("checked", partial(self._as_declared, method))
            call = f"{checked}({self.record}.object.{method}({', '.join(codes)}))"
        if not self._returns(state):
            self.out.line(call)
            return
        if state is BodyState.TERMINATE:  # without a tuple, there is no result
            with self.out.block(f"if {self._started}:"):
                self._take(call)
        else:
            self._take(call)

    def _begin(self, made: Any) -> None:
        """Write code that sets the fields for which the class has initial values."""
        if self.form != MACHINE:
            self.out.line(f"{self.record}.object = {self.version.scalars.closure('new', made)}()")
            return
        for name in fields_of(self.definition):
            if name in vars(made):
                self.out.line(f"{self.record}.{name} = {vars(made)[name]!r}")

    def _as_declared(self, method: str, returned: object) -> object:
        """Convert the result of a Python method to the declared types. Several columns are a tuple."""
        if returned is None:
            return None
        accumulator = ExternalAccumulator(self.definition, import_class(_external(self.definition)))
        return accumulator.convert_result(returned, method)

    def _given(self, argument: str, type_: Type) -> str:
        self.version.shared.facts.add(f"{self.record} reads {argument}")
        code = self.version.current(argument)
        if self.form == MACHINE:
            return code.value
        plain = {Kind.DOUBLE: "float", Kind.BOOLEAN: "bool"}.get(type_.kind, "int")
        return f"(None if {code.null} else {plain}({code.value}))"

    def _take(self, call: str) -> None:
        returned = self.out.fresh("returned")
        self.out.line(f"{returned} = {call}")
        with self.out.block(f"if {returned} is not None:"):
            schema = self.definition.returns
            texts = [returned] if len(schema) == 1 else [f"{returned}[{i}]" for i in range(len(schema))]
            values = [self.out.fresh() for _ in texts]
            for value, text in zip(values, texts, strict=True):
                self.out.line(f"{value} = {text}")
            self.version.give([Code(value) for value in values])

    def _function(self, method: str) -> str:
        name = f"{self.record}_{method}"
        self.version.shared.external[name] = (_external(self.definition), method)
        return name


def fields_of(definition: AggregateDefinition) -> dict[str, Any]:
    """Return the annotated fields of a Python aggregate's class, by name.

    NoCompiledForm is raised unless all fields are int, float or bool.
    """
    made = import_class(_external(definition))
    fields = inspect.get_annotations(made) if inspect.isclass(made) else {}
    if not inspect.isclass(made) or made.__init__ is not object.__init__:
        raise NoCompiledForm(f"{definition.external} is not a class, or has its own __init__")
    if not fields or any(kind not in _FIELDS for kind in fields.values()):
        raise NoCompiledForm(f"{definition.external} does not declare its state as annotated numbers")
    return fields


def objects_of(definition: AggregateDefinition, records: Any) -> list[object]:
    """Create an object of a Python aggregate's class from each record, with the fields of the record."""
    made = import_class(_external(definition))
    objects = [made() for _ in range(len(records))]
    for name in fields_of(definition):
        for thing, value in zip(objects, records[name].tolist(), strict=True):
            setattr(thing, name, value)
    return objects


def check_compiles(definition: AggregateDefinition, record: np.dtype[Any]) -> None:
    """Raise NoCompiledForm unless Numba accepts all methods of a Python aggregate and their return types.

    The message has the first line of Numba's error. Numba only infers types here. The methods are compiled
    later, when compilation saves time.
    """
    from slicemill.kernels.numba_kernels import return_type

    made = import_class(_external(definition))
    state = numba.from_dtype(record)
    arguments = [_numba_type(argument.type) for argument in definition.arguments]
    for name in _METHODS.values():
        method = getattr(made, name, None)
        if method is None:
            continue
        signature = (state,) if name == "terminate" else (state, *arguments)
        try:
            returned = return_type(method, signature)
        except Exception as problem:
            first = str(problem).strip().splitlines()[0]
            raise NoCompiledForm(f"Numba cannot compile {definition.external}.{name}: {first}") from None
        if _returns_something(method) and not _fits(returned, definition):
            raise NoCompiledForm(f"{definition.external}.{name} returns {returned}, not {definition.returns}")


def _fits(returned: Any, definition: AggregateDefinition) -> bool:
    inner = returned.type if isinstance(returned, numba_types.Optional) else returned
    parts: list[Any] = [*inner] if isinstance(inner, numba_types.BaseTuple) else [inner]  # type: ignore[misc]
    schema = definition.returns
    return len(parts) == len(schema) and all(
        isinstance(part, _GIVES.get(column.type.kind, ())) and column.type.kind is not Kind.INT
        for part, column in zip(parts, schema, strict=True)
    )


def _numba_type(type_: Type) -> Any:
    dtype = dtype_of(type_, MACHINE)
    if type_.kind is Kind.VARCHAR:
        raise NoCompiledForm("a compiled class cannot have string arguments")
    return numba.from_dtype(np.dtype(dtype))


def _external(definition: AggregateDefinition) -> str:
    assert definition.external is not None, "only Python aggregates are compiled as classes"
    return definition.external


def _returns_something(method: Any) -> bool:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
    except (OSError, TypeError, SyntaxError):
        raise NoCompiledForm(f"the source code of {method} is not available") from None
    returned = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return)]
    return any(value is not None and getattr(value, "value", ...) is not None for value in returned)


def import_lines(external: dict[str, tuple[str, str]]) -> list[str]:
    """Return code lines that import the methods of Python aggregates into a generated module.

    The lines include a digest of each method's source code, so that a changed method changes the module.
    """
    lines = []
    for name, (where, method) in external.items():
        module, _, class_name = where.partition(":")
        source = inspect.getsource(getattr(import_class(where), method))
        digest = hashlib.sha256(source.encode()).hexdigest()[:16]
        text = f"{class_name}.{method}"
        lines += [f"from {module} import {class_name}  # {digest}"]
        lines += [f"{name} = helper({text})"]
    return lines
