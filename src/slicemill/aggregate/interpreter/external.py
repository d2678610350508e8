"""UDAs in Python (M38).

The declaration is `CREATE AGGREGATE name(…) : type LANGUAGE PYTHON AS 'module:class'`.

The class is instantiated without arguments, once per group or partition. Its methods are those of the states:
`initialize(*args)`, `iterate(*args)`, for a window aggregate `expire(*args)`, and for a blocking base
aggregate `terminate()`, which must not change the state. A method returns None, a value, or a list of values.
If the aggregate has several columns, a value is a tuple.

In a window aggregate, `self.inwindow` is the window, with iteration, `oldest()` and `delete(where)`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from slicemill.aggregate.definition import Returned
from slicemill.aggregate.interpreter.statements import row_converter
from slicemill.aggregate.inwindow import Args, Inwindow
from slicemill.errors import SlicemillError
from slicemill.esl.types.aggregate import AggregateDefinition
from slicemill.esl.types.schema import Schema
from slicemill.rows import Row

_WINDOW = "inwindow"


def import_class(external: str) -> Callable[[], object]:
    """Import the class named by `module:class`."""
    module, _, name = external.partition(":")
    made: Callable[[], object] = getattr(importlib.import_module(module), name)
    return made


def object_state(thing: object) -> Any:
    """Return the state of a user's object: its attributes, or `__getstate__`."""
    kept = thing.__getstate__()
    # The window is part of the call's state.
    return {name: value for name, value in kept.items() if name != _WINDOW} if type(kept) is dict else kept


def restore_object(thing: Any, state: Any) -> None:
    """Load a stored state into a new object of the class."""
    if hasattr(thing, "__setstate__"):
        thing.__setstate__(state)
        return
    for part in state if isinstance(state, tuple) else (state,):
        for name, value in (part or {}).items():
            setattr(thing, name, value)


class ExternalAccumulator:
    """Adapter of a Python object to the base and window accumulator protocols."""

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
        """Return no values without a tuple, because the object is not initialised."""
        if not self._started or not hasattr(self._object, "terminate"):
            return []
        return self._call("terminate", None)

    def state(self) -> object:
        return object_state(self._object), self._started

    def restore(self, state: Any) -> None:
        kept, self._started = state
        restore_object(self._object, kept)

    def _call(self, method: str, args: Args | None) -> Returned:
        given = () if args is None else self._to_arguments(args)
        returned = getattr(self._object, method)(*given)
        values = returned if isinstance(returned, list) else [] if returned is None else [returned]
        return [self.checked(value, method) for value in values]

    def checked(self, value: object, method: str) -> object:
        """Convert a returned value to the declared types."""
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
