"""Every case of the corpus in the front end: it parses, binds and plans, or fails with its listed errors."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from slicemill.binder.script import bind_script
from slicemill.operators.specs import QueryResults
from slicemill.plan.build import build_graph
from slicemill.plan.rules.push_selections import push_selections
from slicemill.plan.statement_equality import views_to_answer
from slicemill.sql.errors import Diagnostic
from support.corpus import Case, ExpectedError, prepare, read_cases

CASES = read_cases()
PARAMETERS = [pytest.param(case, id=case.name) for case in CASES]
GOOD = [parameter for parameter, case in zip(PARAMETERS, CASES, strict=True) if not case.errors]
BAD = [parameter for parameter, case in zip(PARAMETERS, CASES, strict=True) if case.errors]


@pytest.mark.parametrize("case", GOOD)
def test_a_case_binds_and_its_values_have_the_column_types(case: Case) -> None:
    runnable = prepare(case)
    assert {name.lower() for name in runnable.expected} == set(runnable.catalog.queries)


@pytest.mark.parametrize("case", GOOD)
def test_the_graph_of_a_case_keeps_its_sinks_after_selection_push_down(case: Case) -> None:
    catalog = prepare(case).catalog
    graph = build_graph(catalog)
    continuous = {query.name for query in catalog.queries.values() if query.continuous}
    wanted = continuous | {view.name for view in views_to_answer(catalog)}
    for made in (graph, push_selections(graph)):
        assert {node.operator.query for node in made if isinstance(node.operator, QueryResults)} == wanted


@pytest.mark.parametrize("case", BAD)
def test_an_error_case_gives_exactly_its_errors(case: Case) -> None:
    _check_told(case, bind_script(case.source).diagnostics, case.errors)


@pytest.mark.parametrize("case", PARAMETERS)
def test_a_case_gives_exactly_its_warnings(case: Case) -> None:
    _check_told(case, bind_script(case.source).warnings, case.warnings)


def _check_told(case: Case, found: Sequence[Diagnostic], wanted: Sequence[ExpectedError]) -> None:
    told = sorted((*case.source.position(d.span.start), d.message) for d in found)
    expected = sorted((e.line, e.column, e.message) for e in wanted)
    shown = [f"{line}:{column} {message}" for line, column, message in told]
    assert [place[:2] for place in told] == [place[:2] for place in expected], f"told: {shown}"
    for (_, _, message), (_, _, part) in zip(told, expected, strict=True):
        assert part in message


def test_the_corpus_has_enough_cases() -> None:
    mistakes = [mistake for case in CASES for mistake in case.errors]
    assert (len(GOOD) >= 120, len(mistakes) >= 40) == (True, True)
