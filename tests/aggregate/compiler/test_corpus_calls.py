"""Every call of a user-defined aggregate in the corpus against the reference engine, on random tuples."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from aggregate.compiler.by_reference import ByReference
from aggregate.compiler.comparing import PYTHON, Row, outcome
from slicemill.aggregates.udf.compiler.layout import MACHINE
from slicemill.aggregates.udf.compiler.prepare import prepare
from slicemill.binder import bind
from slicemill.catalog.catalog import Catalog
from slicemill.catalog.queries import AggregateCall, WindowCall
from slicemill.operators.specs import GroupAggregate
from slicemill.operators.window.spec import WindowAggregate
from slicemill.plan.build import build_graph
from slicemill.types import Kind, Type

CORPUS = Path(__file__).parents[2] / "corpus"
Call = AggregateCall | WindowCall


def calls_of(catalog: Catalog) -> list[Call]:
    return [
        call
        for node in build_graph(catalog).nodes.values()
        if isinstance(node.operator, GroupAggregate | WindowAggregate)
        for call in node.operator.calls
        if any(version is not None for version in catalog.aggregates(call.name))
    ]


def cases() -> list[Any]:
    found = []
    for path in sorted(CORPUS.glob("*/*.test")):
        text = path.read_text(encoding="utf-8")
        if "AGGREGATE" not in text or "\n== errors\n" in text:
            continue
        catalog = bind(text.split("== esl\n")[1].split("\n== ")[0]).catalog
        for number, call in enumerate(calls_of(catalog)):
            found.append(pytest.param(catalog, call, id=f"{path.parent.name}/{path.stem}/{number}"))
    return found


def value_of(type_: Type, draw: random.Random) -> object:
    if draw.random() < 0.1:
        return None
    if type_.kind is Kind.DOUBLE:
        return draw.choice([draw.uniform(-5, 5), float(draw.randint(-3, 3))])
    if type_.kind is Kind.VARCHAR:
        return draw.choice(["item", "ap", "a", "b"])
    if type_.kind is Kind.TIMESTAMP:
        return draw.randint(0, 100) * 1_000_000
    return draw.randint(-4, 6)


def tuples(types: tuple[Type, ...], draw: random.Random) -> list[list[Row]]:
    chunks: list[list[Row]] = [[]]
    ts = 0
    for _ in range(40):
        ts += draw.choice([0, 1, 1_000_000, 3_000_000])
        chunks[-1].append((ts, draw.randint(0, 2), *(value_of(type_, draw) for type_ in types)))
        if draw.random() < 0.2:
            chunks.append([])
    return chunks


@pytest.mark.parametrize(("catalog", "call"), cases())
def test_a_corpus_call_gives_the_rows_of_the_reference_engine(catalog: Catalog, call: Call) -> None:
    types = tuple(argument.type for argument in call.arguments)
    finishes = isinstance(call, AggregateCall)
    chunks = tuples(types, random.Random(call.name))
    expected = outcome(ByReference(call, catalog), types, chunks, finishes)
    for forms in ((), (PYTHON,)):
        uda = prepare(call, catalog, forms=forms)
        assert outcome(uda, types, chunks, finishes) == expected, uda.how.source


def test_only_the_listed_corpus_calls_are_not_compiled_to_machine_code() -> None:
    forms = [prepare(case.values[1], case.values[0]).how for case in cases()]
    others = {str(how) for how in forms if how.form != MACHINE}
    assert others == {
        "interpreter, because avg is a user-defined aggregate",
        "interpreter, because spread is a user-defined aggregate",
        "interpreter, because median of DOUBLE cannot be compiled",
        "interpreter, because only the interpreter can read the stored table bands",
        "interpreter, because only the interpreter can read the stored table Bonus",
        "interpreter, because reach is a user-defined aggregate",
        "interpreter, because max is a built-in aggregate",  # under panes
        "interpreter, because GROUP BY and DISTINCT in an aggregate cannot be compiled",
        "Python, because concat cannot be compiled to machine code",
    }
