"""Table of scalar functions and operators, found by name and argument types.

The *row function* of an entry is a Python function of one row's values, and its *kernel* computes whole
columns.
"""

from __future__ import annotations

from collections.abc import Callable

from slicemill.catalog.expressions import Call, Expr
from slicemill.functions.arithmetic import ARITHMETIC, ARITHMETIC_ABBREVIATIONS
from slicemill.functions.casts import converter
from slicemill.functions.comparison import COMPARISON
from slicemill.functions.function import SAME, RowFunction, ScalarFunction, Types, template
from slicemill.functions.hashing import HASHES
from slicemill.functions.json import JSON
from slicemill.functions.kernel import Kernel, KernelCall
from slicemill.functions.lists import LISTS
from slicemill.functions.logic import LOGIC, LOGIC_ABBREVIATIONS
from slicemill.functions.maths import BITS, MATHS, ROUNDING
from slicemill.functions.patterns import PATTERNS
from slicemill.functions.periods import PERIODS, RELATIONS
from slicemill.functions.python_functions import external_function, is_external
from slicemill.functions.strings import STRINGS
from slicemill.functions.times import TIME_ABBREVIATIONS, TIMES
from slicemill.functions.values import ExpressionError
from slicemill.types import Kind, Type

FUNCTIONS: dict[str, ScalarFunction] = {
    **RELATIONS,
    **ARITHMETIC,
    **BITS,
    **COMPARISON,
    **HASHES,
    **JSON,
    **LISTS,
    **LOGIC,
    **MATHS,
    **PATTERNS,
    **PERIODS,
    **ROUNDING,
    **STRINGS,
    **TIMES,
}


ABBREVIATIONS = {**ARITHMETIC_ABBREVIATIONS, **LOGIC_ABBREVIATIONS, **TIME_ABBREVIATIONS}


def function_of(name: str, types: Types) -> ScalarFunction:
    """Return the function of a call.

    CONTAINS has two meanings: a relation of periods and a function of strings. `module:function` is a Python
    UDF.
    """
    if is_external(name):
        return external_function(name)
    of_periods = name in RELATIONS and any(type_.kind is Kind.PERIOD for type_ in types)
    function = (RELATIONS if of_periods else FUNCTIONS).get(name)
    if function is None:
        raise ExpressionError(f"there is no function {name}")
    return function


# Functions whose time grows faster than their input, or has no known bound.
_LONG = {"levenshtein", "regexp_extract", "regexp_like", "regexp_replace", "rlike", "split"}


def may_take_long(call: Call) -> bool:
    """Return True if the evaluation of one call for one row may take seconds.

    Such calls run under a time limit.
    """
    return call.function in _LONG or is_external(call.function)


def expand_abbreviation(call: Call) -> Expr:
    """Return the expression that a call abbreviates, or the call itself."""
    abbreviation = ABBREVIATIONS.get(call.function)
    return call if abbreviation is None else abbreviation.expand(call)


def row_form(
    name: str, types: Types, result: Type
) -> tuple[list[Callable[[object], object] | None], RowFunction, bool]:
    """Return a call's argument conversions, its row function, and its strictness.

    The conversion of an argument that keeps its type is None. A strict function is NULL if an argument is
    NULL.
    """
    function = function_of(name, types)
    wanted = function.takes(types, result)
    conversions = [
        None if source == target or target.kind is Kind.NULL else converter(source, target)
        for source, target in zip(types, wanted, strict=True)
    ]
    return conversions, function.row(wanted, result), function.strict


def kernel_of(call: KernelCall) -> Kernel | None:
    """Return the kernel of a call.

    Return None if the call has only a row function.
    """
    column = function_of(call.function, call.types).column
    made = None if column is None else column(call)
    return made if made is None or isinstance(made, Kernel) else Kernel(made)


def in_duckdb(call: Call) -> str | None:
    """Return the DuckDB SQL of a call, with placeholders for its arguments.

    SAME means that the call is written as in Spark, and None that DuckDB has no equivalent.
    """
    if is_external(call.function):
        return None
    entry = ABBREVIATIONS.get(call.function) or FUNCTIONS.get(call.function)
    return SAME if entry is None else template(entry.duckdb, call)
