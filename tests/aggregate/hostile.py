"""Every aggregate, model, window and scalar function with hostile arguments; run in its own process.

    python tests/aggregate/hostile.py builtins models scalars

prints one line for each failure. Models run as Python, where an index out of bounds is an error; with
NUMBA_BOUNDSCHECK=1 they run as machine code with bounds checks, and so do the kernels of built-in aggregates.
Without the checks a read out of bounds ends the process, or gives a random number.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from itertools import product
from typing import Any

from aggregate.compiler.comparing import call_of, over, tuples_of
from operators.over.streams import SCHEMA as OVER_SCHEMA
from operators.over.streams import column, table
from slicemill import types as t
from slicemill.aggregates.udf.compiler.layout import MACHINE, PYTHON
from slicemill.aggregates.udf.compiler.prepare import prepare
from slicemill.catalog.builtin_aggregates import BUILTINS
from slicemill.catalog.catalog import Catalog
from slicemill.catalog.expressions import Call, ColumnRef, Expr, Literal
from slicemill.catalog.queries import FrameUnit, Window, WindowCall
from slicemill.columns.rows import to_table
from slicemill.errors import SlicemillError
from slicemill.extensions.models.binder import with_model
from slicemill.extensions.models.formulas import CATALOGUE
from slicemill.extensions.models.model import expression
from slicemill.extensions.models.operators import ACCUMULATORS, SEARCHES
from slicemill.extensions.models.terms import ModelError
from slicemill.functions.evaluate import compile_vector
from slicemill.functions.rows import compile_expression
from slicemill.functions.signatures import SCALARS, fits, result_type
from slicemill.operators.window.over import WindowCalls
from slicemill.time import END
from slicemill.types import Column, Schema, Timed, Type

NUMBERS = [0.0, -0.0, -1.0, 1.5, 1e308, -1e308, 5e-324, math.nan, math.inf, -math.inf, None]
VALUES: dict[str, tuple[Type, list[Any]]] = {
    "number": (t.DOUBLE, NUMBERS),
    "int": (t.INT, [0, 1, -1, 2**31 - 1, -(2**31), None]),
    "integer": (t.BIGINT, [0, 1, -1, 2**63 - 1, -(2**63), 10**9, None]),
    "places": (t.INT, [0]),
    "string": (t.VARCHAR, ["", "a", "\\", "%", "(", "日本" * 40, None]),
    "boolean": (t.BOOLEAN, [True, False, None]),
    "time": (t.TIMESTAMP, [0, -(2**62), 2**62, None]),
    "timestamp": (t.TIMESTAMP, [0, -(2**62), 2**62, None]),
    "moment": (t.DATE, [0, -(2**31), 2**31 - 1, None]),
    "period": (t.PERIOD, [None]),
    "list": (t.list_of(t.DOUBLE), [(), (1.0, float("nan")), None]),
    "any": (t.DOUBLE, NUMBERS),
    "plain": (t.DOUBLE, NUMBERS),
    "value": (t.DOUBLE, NUMBERS),
    "element": (t.DOUBLE, NUMBERS),
}
WINDOWS = [(FrameUnit.ROWS, 0, None), (FrameUnit.ROWS, 3, 2), (FrameUnit.ROWS, 2**62, None),
           (FrameUnit.ROWS, 63, 32), (FrameUnit.RANGE, 2, None), (FrameUnit.RANGE, 4, 2),
           (FrameUnit.RANGE, None, None), (FrameUnit.RANGE, 2**62, None),
           (FrameUnit.ROWS, 2**63 - 1, 2**63 - 1), (FrameUnit.RANGE, 2**63 - 1, None)]  # fmt: skip
SHARES = [0.0, 1.0, 0.5, 1e-300, 1 - 2**-53]
COUNTS = [1, 3, 2**31 - 1, 2**63 - 1]
CHECKED = os.environ.get("NUMBA_BOUNDSCHECK") == "1"


def main() -> None:
    done = 0
    asked = {"builtins": builtins, "models": models, "scalars": scalars}
    for what, try_ in (case for name in sys.argv[1:] for case in asked[name]()):
        done += 1
        try:
            try_()
        except SlicemillError:
            pass  # rejected, or the query stops with a message
        except Exception as wrong:
            print(f"{what}: {type(wrong).__name__}: {wrong}")
    print(f"tried {done}", file=sys.stderr)


def builtins() -> Iterator[tuple[str, Any]]:
    rows = [
        Timed(n // 3, (None, "a", *[None] * 2, value, value, *[None] * 4))
        for n, value in enumerate(NUMBERS * 4)
    ]
    for (name, builtin), window in product(BUILTINS.items(), WINDOWS):
        constants = {"number": SHARES, "integer": COUNTS}
        asked = constants.get(builtin.parameters[1], [None]) if builtin.constant == 1 else [None]
        for constant in asked:
            yield f"{name} {window} {constant}", lambda n=name, w=window, c=constant: _builtin(n, w, c, rows)


def _builtin(name: str, window: tuple[Any, ...], constant: float | None, rows: list[Timed]) -> None:
    wanted = BUILTINS[name].parameters
    pick = {"number": "wild", "any": "wild", "element": "wild", "string": "g", "boolean": "q"}
    count = len(wanted) if BUILTINS[name].constant is None else 1
    given: list[Expr] = [column(pick[word]) for word in wanted[:count]]
    if BUILTINS[name].constant is not None:
        kinds = {int: t.BIGINT, float: t.DOUBLE}
        given.append(Literal("", t.VARCHAR) if constant is None else Literal(constant, kinds[type(constant)]))
    type_ = BUILTINS[name].result(given[0].type)
    call = WindowCall(name, tuple(given), False, (), Window(*window), (Column("x", type_),))
    windows = WindowCalls([call], OVER_SCHEMA)
    for first in (0, 0, 1, 17):  # includes an empty batch
        part = rows[first : first + 17] if first else rows[:0] if not windows.state.groups else rows[:1]
        windows.run(table(part), part[-1].ts if part else 0)
    windows.run(table([]), END)


def models() -> Iterator[tuple[str, Any]]:
    # Compilation takes seconds for each model, so models without an index are omitted then.
    texts = [] if CHECKED else [*CATALOGUE.values()]
    texts += [f"{name}(x)" for name in ACCUMULATORS if name not in ("all", "any")]
    for name, search in SEARCHES.items():
        options = ["0", "1", "-1", "1.5", "0.5", "1e30", "1e-30", "999999999"] if search.options else [""]
        texts += [f"{name}(x{', ' * bool(o)}{o})" for o in options]
        texts += [f"{name}(i*x{', ' * bool(o)}{o})" for o in options]
    texts += ["xor(floor(x))", "gcd(x)", "sum(cos(2*pi*i/99999999999)*x)", "norm(x, 0)", "norm(x, 1e9)",
              "sum(x^4096)", "sum(x^(0 - 70))", "sum(1e400*x)", "sum(0.5^age*x)", "sum(2^i*x)"]  # fmt: skip
    for text in texts:
        for window in (over("ROWS", 3), over("RANGE", 2), over("ROWS", 5, 2))[: 1 if CHECKED else 3]:
            yield f"{text} {window}", lambda x=text, w=window: _model(x, w)


def _model(text: str, window: Window) -> None:
    try:
        model = expression(text)
        model.check_window(counts_rows=window.frame is FrameUnit.ROWS)
    except ModelError:
        return
    types = [t.DOUBLE] * len(model.parameters) + [t.TIMESTAMP] * model.uses_age
    catalog = with_model("m", model, Catalog())
    rows = [
        (
            n // 2,
            n % 2,
            *[(NUMBERS * 2)[n - k] for k in range(len(model.parameters))],
            *[n // 2] * model.uses_age,
        )
        for n in range(2 * len(NUMBERS))
    ]
    form = MACHINE if CHECKED else PYTHON
    uda = prepare(call_of(catalog, "m", types, window), catalog, forms=(form,))
    state = uda.start()
    for part in (rows[:1], [], rows[1:12], rows[12:]):
        uda.run(state, tuples_of(part, types), None)
    uda.run(state, tuples_of([], types), END)


def scalars() -> Iterator[tuple[str, Any]]:
    for name, signature in SCALARS.items():
        for count in {len(signature.parameters) - signature.optional, len(signature.parameters)}:
            words = [signature.parameter(index) for index in range(count)]
            yield name, lambda n=name, w=words: _scalar(n, w)


def _scalar(name: str, words: list[str]) -> None:
    """Evaluate by row and column all values of each argument with one value of each other argument."""
    given = VALUES | (
        {"list": (t.list_of(t.VARCHAR), [(), ("a", "b"), None])} if name == "array_join" else {}
    )
    schema = Schema(tuple(Column(f"a{index}", given[word][0]) for index, word in enumerate(words)))
    arguments = tuple(ColumnRef(one.name, one.type) for one in schema)
    if any(word == "places" for word in words):
        arguments = (*arguments[:-1], Literal(400, t.INT))
    assert all(fits(word, argument.type) for word, argument in zip(words, arguments, strict=True))
    type_ = result_type(SCALARS[name], arguments)
    assert type_ is not None
    call = Call(name, arguments, type_)
    by_row, by_column = compile_expression(call, schema), compile_vector(call, schema)
    for row in _rows([given[word][1] for word in words]):
        if any(isinstance(value, int) and value > 10**8 for value in row) and name in (
            "repeat",
            "lpad",
            "rpad",
        ):
            row = tuple(10**12 if isinstance(value, int) and value > 10**8 else value for value in row)
        outcomes = []
        for run in (lambda r=row: by_row(r), lambda r=row: by_column(to_table([Timed(0, r)], schema, [0]))):
            try:
                run()
                outcomes.append("value")
            except SlicemillError:
                outcomes.append("stops")
        if outcomes[0] != outcomes[1]:
            raise AssertionError(f"{row}: by row it {outcomes[0]}, by column it {outcomes[1]}")


def _rows(pools: list[list[Any]]) -> Iterator[tuple[Any, ...]]:
    if len(pools) <= 2:
        yield from product(*pools)
        return
    for index, pool in enumerate(pools):
        for value in pool:
            yield tuple(
                value if other == index else pools[other][1 % len(pools[other])]
                for other in range(len(pools))
            )


if __name__ == "__main__":
    main()
