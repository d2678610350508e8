"""Texts that are nested too deeply get an error with a position over every interface."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import psycopg
import pytest
from typer.testing import CliRunner

from slicemill.binder.script import bind_script
from slicemill.cli import app
from slicemill.server.network import ServerSockets, serving
from slicemill.server.service import MillService
from slicemill.server.user_session import UserSession
from slicemill.sql.errors import EslError, SourceText

DEEP = {
    "brackets": "(" * 500 + "1" + ")" * 500,
    "not": "NOT " * 5_000 + "true",
    "signs": "- " * 5_000 + "1",
    "calls": "abs(" * 500 + "1" + ")" * 500,
    "casts": "CAST(" * 500 + "1" + " AS int)" * 500,
    "case": "CASE WHEN true THEN " * 500 + "1" + " END" * 500,
    "lists": "[" * 500 + "1" + "]" * 500,
    "subqueries": "(SELECT " * 500 + "1" + ")" * 500,
    "exists": "EXISTS (SELECT 1 WHERE " * 500 + "true" + ")" * 500,
    "intervals": "INTERVAL " * 500 + "1 DAY",
}
RELATIONS = {
    "from": "SELECT * FROM " + "(SELECT * FROM " * 500 + "bid" + ")" * 500,
    "with": "WITH a AS (" * 500 + "SELECT 1" + ") SELECT * FROM a" * 500,
    "brackets": "(" * 500 + "SELECT item FROM bid" + ")" * 500,
}
QUERY_STARTS = [f"SELECT\n  {deep} AS x" for deep in DEEP.values()] + list(RELATIONS.values())
FORMS = (
    "CREATE QUERY z AS SELECT\n {} AS x FROM bid",
    "CREATE QUERY z AS SELECT item FROM bid WHERE\n {}",
    "CREATE VIEW z AS SELECT\n {} AS x FROM kept",
    "UPDATE kept SET k =\n {}",
    "INSERT INTO kept VALUES\n ({})",
    "EXPLAIN REPLACE CREATE OR REPLACE QUERY dear AS SELECT\n {} AS x FROM bid",
)
DECLARATIONS = [form.format(deep) for deep in DEEP.values() for form in FORMS[:2]]
DECLARATIONS += [f"CREATE QUERY z AS\n {deep}" for deep in RELATIONS.values()]
STATEMENTS = [form.format(deep) for form, deep in zip(FORMS, DEEP.values(), strict=False)]


@pytest.fixture
def listening(service: MillService) -> Iterator[ServerSockets]:
    UserSession(service).execute("CREATE TABLE kept (k int PRIMARY KEY)")
    made = ServerSockets(postgres_port=0)
    with serving(service, made):
        yield made


def test_deep_nesting_over_http_is_an_error_with_a_line(listening: ServerSockets) -> None:
    with httpx.Client(base_url=listening.url, timeout=60) as client:
        for text in (*QUERY_STARTS, *STATEMENTS):
            answer = client.post("/v1/statements", json={"text": text})
            assert answer.status_code == 400, text[:60]
            (error, *_) = answer.json()["errors"]
            assert error["line"] is not None, error
        for text in STATEMENTS:
            assert client.post("/v1/check", json={"text": text}).json()["errors"], text[:60]
        answer = client.post("/v1/statements", json={"text": f"SELECT 1;\nSELECT {DEEP['brackets']}"})
        (error,) = answer.json()["errors"]
        assert (error["message"], error["line"], error["column"]) == ("this is nested too deeply", 2, 507)
        assert client.get("/health").status_code == 200


@pytest.mark.parametrize("simple", [True, False])
def test_deep_nesting_over_postgresql_is_an_error_and_the_connection_stays_open(
    listening: ServerSockets, simple: bool
) -> None:
    with psycopg.connect(f"{listening.postgres_url}/mill", user="me", autocommit=True) as connection:
        for text in (*QUERY_STARTS, *STATEMENTS):
            with pytest.raises(psycopg.Error) as caught:
                connection.execute(text, prepare=not simple, binary=not simple)
            assert caught.value.diag.statement_position is not None, text[:60]
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_deep_nesting_in_a_script_is_an_error(service: MillService) -> None:
    catalog = service.mill.catalog
    for text in DECLARATIONS:
        bound = bind_script(SourceText(text), catalog)
        assert bound.diagnostics and not bound.statements, text[:60]


@pytest.mark.parametrize("deep", DEEP)
def test_slicemill_check_reports_the_line_of_deep_nesting(
    tmp_path_factory: pytest.TempPathFactory, deep: str
) -> None:
    file = tmp_path_factory.mktemp("deep") / "deep.esl"
    stream = "CREATE STREAM bid (item int, ts timestamp) ORDER BY ts;"
    file.write_text(f"{stream}\nCREATE QUERY z AS SELECT {DEEP[deep]} AS x FROM bid;")
    result = CliRunner().invoke(app, ["check", str(file)])
    assert isinstance(result.exception, EslError | SystemExit), result.exception
    assert "deep.esl:2:" in result.output + str(result.exception)


def test_long_chains_of_operands_do_not_count_as_nesting(service: MillService) -> None:
    user = UserSession(service)
    ands = " AND ".join(["price > 1"] * 1_000)
    user.execute(f"CREATE QUERY z AS SELECT item FROM bid WHERE {ands}")
    with pytest.raises(EslError, match="more than 500 operands follow each other"):
        user.execute(f"CREATE QUERY y AS SELECT {' + '.join(['price'] * 5_000)} AS x FROM bid")
