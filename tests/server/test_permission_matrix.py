"""Statements with forbidden names over HTTP and PostgreSQL: statement kinds x spellings x options.

A rejected statement has no effect: no declaration, no entry in the journal, no file outside of the
allowed folder. The controls are the same statements with allowed names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psycopg
import pytest

from server.conftest import bid
from slicemill.catalog.catalog import DerivedStream, QueryDefinition, Stream, Table, View
from slicemill.extensions.classify.definition import Classifier
from slicemill.server.auth import Access
from slicemill.server.network import ServerSockets, serving
from slicemill.server.permissions import ClientPermissions
from slicemill.server.service import MillService
from slicemill.server.user_session import UserSession

# Statements that name a path. `{place}` is replaced by one of the spellings below.
SOURCES = {
    "stream": "CREATE STREAM s (a varchar) SOURCE '{place}'",
    "stream using": "CREATE STREAM s (a varchar) USING csv OPTIONS (path '{place}')",
    "table": "CREATE TABLE t (a varchar) SOURCE '{place}'",
    "table using": "CREATE TABLE t (a varchar) USING csv OPTIONS (path '{place}')",
    "replaced stream": "CREATE OR REPLACE STREAM old_s (a varchar) SOURCE '{place}'",
    "new table": "CREATE TABLE IF NOT EXISTS t (a varchar) USING json OPTIONS (PATH '{place}')",
    "explained stream": "EXPLAIN REPLACE STREAM old_s (a varchar) SOURCE '{place}'",
    "through Spark": "CREATE TABLE t (a varchar) USING orc OPTIONS (path '{place}')",
}
SINKS = {
    "sink": "CREATE QUERY q WITH (sink = 'json:{place}') AS SELECT item FROM bid",
    "replaced sink": "CREATE OR REPLACE QUERY dear WITH (sink = 'parquet:{place}') AS SELECT item FROM bid",
    "explained sink": "EXPLAIN REPLACE QUERY dear WITH (sink = 'json:{place}') AS SELECT item FROM bid",
    "altered sink": "ALTER QUERY dear SET (sink = 'ARROW:{place}')",
}
# Spellings of paths outside of the folder {data}. Some go through links in the folder.
OUTSIDE = {
    "plain": "{secret}",
    "..": "{data}/../secret.csv",
    "# and ..": "{data}/#/../../secret.csv",
    "%2e%2e in a URL": "file:{data}/%2e%2e/secret.csv",
    "%23 in a URL": "file:{data}/%23/../../secret.csv",
    "# in a URL": "file:{data}/#/../../secret.csv",
    "encoded slash": "file:{data}%2F..%2Fsecret.csv",
    "upper case": "FILE:{secret}",
    "three slashes": "file://{secret}",
    "localhost": "file://localhost{secret}",
    "a link to a file": "{data}/link.csv",
    "a link to a folder": "{data}/out/secret.csv",
    "a folder with a link": "{data}/links",
    "links behind a link": "{data}/chain",
    "a sibling": "{data}_other/in.csv",
    "the home": "{home}/access/tokens.json",
}
PATTERNS = {
    "through a link": "{data}/*/secret.csv",
    "? and ..": "{data}/?/../../secret.csv",
    "alternatives": "{data}/{{../secret.csv,in.csv}}",
    "quoted dots": "{data}/.\\./secret.csv",
    "above": "{data}/../*.csv",
}
OPTIONS = [
    # The checked option differs from the option that is read.
    "CREATE STREAM s (a varchar) SOURCE '{data}/in.csv?path={secret}'",
    "CREATE STREAM s (a varchar) SOURCE '{data}/in.csv?PATH={secret}'",
    "CREATE STREAM s (a varchar) SOURCE 'file:{data}/in.csv?Path={secret}'",
    "CREATE TABLE t (a varchar) USING csv OPTIONS (path '{data}/in.csv', PATH '{secret}')",
    "CREATE TABLE t (a varchar) USING orc OPTIONS (path '{data}/in.csv', paths '[\"{secret}\"]')",
    "CREATE TABLE t (a varchar) USING avro OPTIONS (path '{data}/in.csv', avroSchemaUrl 'file:{secret}')",
    "CREATE TABLE t (a varchar) USING csv OPTIONS (path '{data}/in.csv', cleanSource 'delete')",
    "CREATE STREAM s (a varchar) USING orc OPTIONS (path '{data}', cleanSource 'archive', "
    "sourceArchiveDir '{outside}')",
    # With another scheme in the path, the source opens another file.
    "CREATE STREAM s (value varchar) USING socket OPTIONS (host 'localhost', port '1', path 'rate:x')",
    "CREATE STREAM s (value varchar) USING socket OPTIONS (host 'localhost', port '1', path '{data}/in.csv')",
    "CREATE STREAM s (value varchar) USING SOCKET OPTIONS (host 'localhost', port '1')",
    "CREATE TABLE t (a int) USING jdbc OPTIONS (url 'jdbc:derby:memory:x', dbtable 't', path 'rate:x')",
    "CREATE TABLE t (a int) USING jdbc OPTIONS (url 'jdbc:derby:memory:x;create=true', dbtable 't')",
    "CREATE STREAM s (a int) SOURCE '{data}/in.csv?format=jdbc&url=jdbc:derby:memory:x'",
    "CREATE STREAM s (a int) SOURCE 'rate:x?format=jdbc&url=jdbc:derby:memory:x&path=rate:x'",
    "CREATE TABLE t (a varchar) USING csv OPTIONS (path 'rate:x')",
    "CREATE TABLE t (a varchar) USING csv OPTIONS (path 'nexmark://bid')",
    "CREATE TABLE t (a varchar) USING csv OPTIONS (path 'memory:')",
    "CREATE TABLE t (a varchar) USING csv OPTIONS (path 'http://localhost:1/x.csv')",
    "CREATE TABLE t (a varchar) USING csv OPTIONS (path 'har:file:{secret}')",
    "CREATE STREAM s (a varchar) SOURCE 'hdfs://localhost/x.csv'",
    "CREATE STREAM s (a varchar) SOURCE 'HTTP://localhost:1/x.csv'",
    # Formats that only Spark can read.
    "CREATE TABLE t (value varchar) USING text OPTIONS (path '{secret}')",
    "CREATE TABLE t (value varchar) USING text OPTIONS (path '{data}/in.csv')",
    "CREATE TABLE t (content binary) USING binaryFile OPTIONS (path '{data}', paths '[\"{secret}\"]')",
    "CREATE TABLE t (a int) USING memory",
    "CREATE TABLE t (a int) USING console OPTIONS (path '{secret}')",
    "CREATE TABLE t (a int) USING delta OPTIONS (path '{data}')",
    "CREATE TABLE t (a int) USING \"org.apache.spark.sql.jdbc\" OPTIONS (url 'jdbc:derby:x', dbtable 't')",
    "CREATE STREAM s (a int) USING rate OPTIONS (path '{secret}')",
    "CREATE STREAM s (a int) USING rate OPTIONS (rowsPerSecond '1', paths '[\"{secret}\"]')",
    # Network addresses.
    "CREATE STREAM s (a int) SOURCE 'kafka://localhost:9092/topic'",
    "CREATE STREAM s (a int) USING Kafka OPTIONS (kafka.bootstrap.servers 'localhost:9092', subscribe 't')",
    "CREATE STREAM s (a int) USING tcp OPTIONS (host 'localhost', port '1', path 'rate:x')",
    "CREATE STREAM s (a int) USING tcp OPTIONS (host 'localhost', port '1', path '{secret}')",
    "CREATE QUERY q WITH (sink = 'postgres://localhost/db') AS SELECT item FROM bid",
    "CREATE QUERY q WITH (sink = 'POSTGRESQL://localhost/db?table=q') AS SELECT item FROM bid",
    "ALTER QUERY dear SET (sink = 'Postgres://localhost/db')",
    "CREATE OR REPLACE QUERY dear WITH (sink = 'postgres://localhost/db') AS SELECT item FROM bid",
    "CREATE ALERT w ON dear WEBHOOK 'http://localhost:1/x'",
    # Python code.
    "CREATE FUNCTION f(x int) RETURNS int LANGUAGE PYTHON AS 'os:getpid'",
    "CREATE OR REPLACE FUNCTION f(x int) RETURNS int LANGUAGE PYTHON AS 'os:getpid'",
    "CREATE AGGREGATE f(x int) : int LANGUAGE PYTHON AS 'collections:Counter'",
]
ALLOWED = [
    "CREATE STREAM s (a varchar) SOURCE '{data}/in.csv'",
    "CREATE STREAM s (a varchar) SOURCE 'file:{data}/in.csv?header=true'",
    "CREATE STREAM s (a varchar) SOURCE 'FILE://{data}/a%20b.csv'",
    "CREATE STREAM s (a varchar) SOURCE '{data}/sub?format=csv'",
    "CREATE STREAM s (a varchar) USING csv OPTIONS (path '{data}/sub/*.csv', sep ';')",
    "CREATE TABLE t (a varchar) USING csv OPTIONS (path '{data}/#/in.csv')",
    "CREATE TABLE t (a varchar) USING csv OPTIONS (path '{data}/inner.csv')",
    "CREATE OR REPLACE STREAM old_s (a varchar) SOURCE '{data}/sub/in.csv'",
    "CREATE TABLE IF NOT EXISTS t (a varchar) USING json OPTIONS (PATH '{data}/in.json')",
    "CREATE STREAM s (a int) SOURCE 'tcp://localhost:4445'",
    "CREATE STREAM s (auction bigint) SOURCE 'nexmark://bid?rate=5'",
    "CREATE STREAM s (value bigint) USING rate OPTIONS (rowsPerSecond '5')",
    "CREATE QUERY q WITH (sink = 'json:{data}/result') AS SELECT item FROM bid",
    "CREATE QUERY q WITH (sink = 'jsonl:{data}/%23hash') AS SELECT item FROM bid",
    "CREATE QUERY q WITH (sink = 'memory:?rows=5') AS SELECT item FROM bid",
    "CREATE OR REPLACE QUERY dear WITH (sink = 'parquet:{data}/again') AS SELECT item FROM bid",
    "ALTER QUERY dear SET (sink = 'ARROW:{data}/altered')",
]


@dataclass(frozen=True)
class Way:
    """Server with one client for each protocol, and the files around it."""

    service: MillService
    folder: Path
    http: httpx.Client
    postgres: psycopg.Connection
    names: dict[str, str] = field(default_factory=dict)

    def fill(self, text: str) -> str:
        return text.format(**self.names)

    def run(self, statement: str) -> httpx.Response:
        return self.http.post("/v1/statements", json={"text": statement})

    def seen(self) -> object:
        """Return everything that a statement could change."""
        mill = self.service.mill
        catalog = mill.catalog
        files = {path for path in self.folder.rglob("*") if (self.folder / "home") not in path.parents}
        return (
            dict(catalog.relations),
            dict(catalog.queries),
            dict(catalog.functions),
            dict(catalog.base_aggregates),
            dict(catalog.alerts),
            list(mill.home.statements),
            set(mill.home.logs),
            mill.sinks.names(),
            files,
        )

    def drop(self, *names: str) -> None:
        """Drop every object that has one of these names."""
        for name in names:
            catalog = self.service.mill.catalog
            found = catalog.relations.get(name) or catalog.queries.get(name)
            if found is not None or name in catalog.base_aggregates:
                kind = "AGGREGATE" if found is None else _KINDS[type(found)]
                assert self.run(f"DROP {kind} {name}").status_code == 200

    def refuses(self, statement: str) -> str:
        """Run a statement over both protocols, expect a permission error, and return its message."""
        UserSession(self.service).check(statement)  # The statement itself has no error.
        before = self.seen()
        answer = self.run(statement)
        assert answer.status_code == 403, (statement, answer.text)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            self.postgres.execute(statement.encode())
        assert self.seen() == before, statement
        message: str = answer.json()["errors"][0]["message"]
        return message


_KINDS = {
    Classifier: "CLASSIFIER",
    Stream: "STREAM",
    DerivedStream: "STREAM",
    Table: "TABLE",
    View: "VIEW",
    QueryDefinition: "QUERY",
}
TOKENS = {
    "operator": ("operator", ()),
    "sales operator": ("operator", ("sales_*",)),
    "sales reader": ("reader", ("sales_*",)),
}


@pytest.fixture
def access(tmp_path: Path) -> Access:
    made = Access(tmp_path / "home")
    made.add("admin", "admin", (), 0)
    return made


@pytest.fixture
def listening(service: MillService, access: Access) -> Iterator[ServerSockets]:
    made = ServerSockets(postgres_port=0)
    with serving(service, made, access):
        yield made


@pytest.fixture
def way(
    request: pytest.FixtureRequest,
    service: MillService,
    access: Access,
    listening: ServerSockets,
    tmp_path: Path,
) -> Iterator[Way]:
    """Return the server for the parametrised principal, or an operator with one folder and one scheme."""
    user = getattr(request, "param", "operator")
    role, names = TOKENS[user]
    token = access.add(user, role, names, 0)
    port = (listening.postgres_url or "").rpartition(":")[2].partition("/")[0]
    with (
        httpx.Client(
            base_url=listening.url, headers={"Authorization": f"Bearer {token}"}, timeout=60
        ) as client,
        psycopg.connect(
            host="127.0.0.1", port=int(port), user="u", password=token, dbname="x", autocommit=True
        ) as connection,
    ):
        yield Way(service, tmp_path, client, connection)


@pytest.fixture
def files(way: Way, tmp_path: Path) -> Way:
    """Create an allowed folder, files outside of it, and links from the folder to these files."""
    data, outside = tmp_path / "data", tmp_path / "outside"
    for folder in (data / "sub", data / "#", data / "?", data / "links", data / "chain", outside):
        folder.mkdir(parents=True)
    (tmp_path / "data_other").mkdir()
    for file in ("in.csv", "a b.csv", "sub/in.csv", "#/in.csv", "?/in.csv"):
        (data / file).write_text("x\n")
    (data / "in.json").write_text('{"a": "x"}\n')
    for file in ("secret.csv", "outside/secret.csv", "data_other/in.csv"):
        (tmp_path / file).write_text("secret\n")
    (data / "link.csv").symlink_to(tmp_path / "secret.csv")
    (data / "inner.csv").symlink_to(data / "in.csv")
    (data / "out").symlink_to(outside)
    (data / "links" / "link.csv").symlink_to("../../secret.csv")
    (data / "chain" / "links").symlink_to(data / "links")
    way.service.allowed = None
    UserSession(way.service).execute(
        f"CREATE STREAM old_s (a varchar) SOURCE '{data}/in.csv';"
        f"CREATE TABLE old_t (a varchar) USING json OPTIONS (path '{data}/in.json')"
    )
    way.service.allowed = ClientPermissions((data,), frozenset(("tcp",)))
    indices = {"data": data, "outside": outside, "secret": tmp_path / "secret.csv", "home": tmp_path / "home"}
    way.names.update({name: str(index) for name, index in indices.items()})
    return way


@pytest.mark.parametrize("kind", SOURCES)
def test_sources_cannot_read_files_outside_of_the_allowed_folder(kind: str, files: Way) -> None:
    for spelling in (*OUTSIDE.values(), *PATTERNS.values()):
        index = files.fill(spelling)
        if "SOURCE" in SOURCES[kind] and "?" in index:
            continue  # In a SOURCE, a question mark begins the options.
        message = files.refuses(SOURCES[kind].format(place=index))
        assert "--allow-folder" in message or "without .." in message


@pytest.mark.parametrize("kind", SINKS)
def test_sinks_cannot_write_outside_of_the_allowed_folder(kind: str, files: Way) -> None:
    for name, spelling in OUTSIDE.items():
        if "URL" in name:
            continue  # The scheme of a sink is its format.
        index = files.fill(spelling).removeprefix("file:").removeprefix("FILE:")
        index = index.removeprefix("//localhost").replace("#", "%23")
        files.refuses(SINKS[kind].format(place=index))
        files.refuses(SINKS[kind].format(place=index.replace("..", "%2e%2E")))


def test_formats_options_and_addresses_need_permission_of_the_administrator(files: Way) -> None:
    for statement in OPTIONS:
        files.refuses(files.fill(statement))


def test_the_same_statements_work_with_allowed_names(files: Way) -> None:
    for statement in ALLOWED:
        answer = files.run(files.fill(statement))
        assert answer.status_code == 200, (statement, answer.text)
        if " t (" in statement:
            found = files.run("SELECT a FROM t").json()["answers"][0]["rows"]
            assert found == [{"a": "x"}], statement
        files.drop("s", "t", "q")


def test_a_folder_named_hash_does_not_lead_outside_of_the_allowed_folder(files: Way) -> None:
    """An allowed sink creates the folder."""
    assert files.run(files.fill("ALTER QUERY dear SET (sink = 'jsonl:{data}/%23%23')")).status_code == 200
    bid(files.service, (1, 20, 1))
    files.service.mill.sinks.close()
    assert (files.folder / "data" / "##").is_dir()
    files.refuses(files.fill("CREATE TABLE t (a varchar) SOURCE '{data}/##/../../secret.csv'"))


def test_the_home_directory_is_forbidden_even_inside_an_allowed_folder(files: Way) -> None:
    files.service.allowed = ClientPermissions((files.folder,))
    for index in ("home/access/tokens.json", "home", "*/access/tokens.json", "."):
        statement = f"CREATE TABLE t (a varchar) USING json OPTIONS (path '{files.folder}/{index}')"
        assert "home" in files.refuses(statement)
    files.refuses(f"ALTER QUERY dear SET (sink = 'json:{files.folder}/home/out')")


def test_sources_and_functions_of_a_trial_need_permission(files: Way) -> None:
    for text in (
        f"CREATE TABLE t (a varchar) USING csv OPTIONS (path '{files.folder}/secret.csv');",
        f"CREATE STREAM s (a varchar) SOURCE '{files.folder}/secret.csv';",
        "CREATE FUNCTION f(x int) RETURNS int LANGUAGE PYTHON AS 'os:getpid';",
    ):
        body = {
            "text": f"{text} CREATE QUERY q AS SELECT item FROM bid",
            "rates": {},
            "policies": ["fcfs"],
            "cores": 1,
            "seconds": 1,
        }
        assert files.http.post("/v1/simulate", json=body).status_code == 403


def test_options_of_a_postgres_sink_cannot_name_files(files: Way) -> None:
    files.service.allowed = ClientPermissions((), frozenset(("postgres",)))
    sink = "ALTER QUERY dear SET (sink = 'postgres://localhost:1/db?{option}')"
    for option in ("passfile=/x", "sslkey=/x", "p%61ssfile=/x", "service=x", "sslrootcert=/x", "krbsrvname="):
        files.refuses(sink.format(option=option))
    assert files.run(sink.format(option="table=dear&sslmode=require&connect_timeout=1")).status_code == 200


# -- Permissions by name ----------------------------------------------------------------------------------

OTHERS = """
CREATE TABLE other_t (k int, v int);
CREATE TABLE sales_t (k int, v int);
CREATE TABLE sales_read (k int);
CREATE VIEW other_v AS SELECT k FROM sales_read;
CREATE VIEW sales_shared AS SELECT k, v FROM other_t;
CREATE STREAM sales_s (k int, ts timestamp micros) ORDER BY ts;
CREATE STREAM sales (k int, ts timestamp micros) ORDER BY ts;
CREATE STREAM other_s (k int, ts timestamp micros) ORDER BY ts;
CREATE TABLE other_cases (k int, v double, c boolean);
CREATE TABLE sales_cases (k int, v double, c boolean);
CREATE STREAM sales_m (k int, v double, ts timestamp micros) ORDER BY ts;
CREATE QUERY other_q AS SELECT k FROM other_s;
CREATE QUERY other_sum AS SELECT k, count(*) AS n FROM other_s GROUP BY k;
CREATE QUERY sales_q AS SELECT k FROM sales_s;
CREATE AGGREGATE reads_other (x int) : int {
    INITIALIZE: ITERATE: { INSERT INTO RETURN SELECT o.v FROM other_t AS o WHERE o.k = x; } };
CREATE WINDOW AGGREGATE reads_other_w (x int) : int {
    INITIALIZE: ITERATE: { INSERT INTO RETURN SELECT o.v FROM other_t AS o WHERE o.k = x; } EXPIRE: { } };
CREATE AGGREGATE sales_calls (x int) : int {
    INITIALIZE: ITERATE: { INSERT INTO RETURN SELECT reads_other(s.k) FROM sales_t AS s; } };
CREATE FUNCTION sales_rows (x int) RETURNS TABLE (v int) AS SELECT v FROM other_t WHERE k = x;
CREATE AGGREGATE sales_reads (x int) : int {
    INITIALIZE: ITERATE: { INSERT INTO RETURN SELECT s.v FROM sales_t AS s WHERE s.k = x; } };
CREATE AGGREGATE writes_other (x int) : int {
    INITIALIZE: ITERATE: { INSERT INTO other_t VALUES (x, x); INSERT INTO RETURN VALUES (x); } };
INSERT INTO other_cases VALUES (1, 1.0, true), (1, 2.0, false);
INSERT INTO sales_cases VALUES (1, 1.0, true), (1, 2.0, false);
INSERT INTO other_t VALUES (1, 42); INSERT INTO sales_t VALUES (1, 7);
"""
OTHERS_READ = [
    "CREATE QUERY sales_n AS SELECT reads_other(k) AS v FROM sales_s",
    "CREATE QUERY sales_n AS SELECT sales_calls(k) AS v FROM sales_s",
    "CREATE STREAM sales_n AS SELECT reads_other(k) AS v FROM sales_s",
    "CREATE QUERY sales_n AS SELECT reads_other_w(k) OVER (ROWS 3 PRECEDING) AS v FROM sales_s",
    "CREATE QUERY sales_n AS SELECT s.k, f.v FROM sales_s s, TABLE(sales_rows(s.k)) AS f",
    "CREATE QUERY sales_n AS SELECT s.k FROM sales_s s, TABLE(reads_other(s.k)) AS f",
    "CREATE VIEW sales_n AS SELECT reads_other(k) AS v FROM sales_t",
    "CREATE VIEW sales_n AS SELECT k FROM sales_t s WHERE EXISTS (SELECT 1 FROM other_t o WHERE o.k = s.k)",
    "CREATE OR REPLACE QUERY sales_q AS SELECT sales_calls(k) AS v FROM sales_s",
    "CREATE QUERY sales_n AS SELECT k FROM other_s",
    "CREATE QUERY sales_n AS SELECT k FROM sales",
    "CREATE QUERY sales_n AS SELECT k FROM sales_late",
    "CREATE QUERY sales_n AS SELECT raw FROM sales_errors",
    "REPLAY sales_errors",
    "CREATE QUERY sales_n AS SELECT s.k FROM sales_s s, other_t o WHERE o.k = s.k",
    "CREATE QUERY sales_n AS SELECT k FROM sales_s UNION ALL SELECT k FROM other_s",
    "CREATE QUERY sales_n WITH (sink = 'table:other_t') AS SELECT k, k AS v FROM sales_s",
    "CREATE QUERY sales_n AS SELECT writes_other(k) AS v FROM sales_s",
    "CREATE AGGREGATE sales_n (x int) : int { INITIALIZE: ITERATE: { "
    "INSERT INTO RETURN SELECT v FROM other_t; } }",
    "CREATE AGGREGATE sales_n (x int) : int { INITIALIZE: ITERATE: { "
    "INSERT INTO RETURN SELECT reads_other(s.k) FROM sales_t AS s; } }",
    "CREATE FUNCTION sales_n (x int) RETURNS TABLE (v int) AS SELECT v FROM other_t WHERE k = x",
    "CREATE CLASSIFIER sales_n ON sales_m(v) PARTITION BY k LEARN c FROM other_cases EVERY 1 MINUTE "
    "WITH (capacity = 1)",
    "CREATE TABLE sales_n AS MATERIALIZED other_sum",
    "CREATE ALERT sales_n ON other_q WEBHOOK 'http://localhost:1/x'",
    "CREATE QUERY other_n AS SELECT k FROM sales_s",
    "CREATE OR REPLACE QUERY other_q AS SELECT k FROM sales_s",
    "ALTER QUERY other_q SET (weight = 2)",
    "DROP QUERY other_q",
    "DROP TABLE other_cases",
    "DROP TABLE sales_read CASCADE",
    "PAUSE QUERY other_q",
    "INSERT INTO sales_t SELECT k, v FROM other_t",
    "INSERT INTO sales_t SELECT reads_other(k), 1 FROM sales_t",
    "INSERT INTO other_t VALUES (2, 2)",
    "UPDATE sales_t SET v = (SELECT max(v) FROM other_t)",
    "UPDATE sales_t SET v = (SELECT reads_other(k) FROM sales_t)",
    "DELETE FROM sales_t WHERE EXISTS (SELECT 1 FROM other_t WHERE v = 42)",
    "TRUNCATE TABLE other_t",
    "SET policy = 'hnr' FOR other_q",
    "SET policy = 'hnr'",
]
OWN_READ = [
    "CREATE QUERY sales_n AS SELECT sales_reads(k) AS v FROM sales_s",
    "CREATE QUERY sales_n AS SELECT k FROM sales_s_late",
    "CREATE STREAM sales_n AS SELECT sales_reads(k) AS v FROM sales_s",
    "CREATE QUERY sales_n AS SELECT s.k, v.v FROM sales_s s, sales_shared v WHERE v.k = s.k",
    "CREATE VIEW sales_n AS SELECT sales_reads(k) AS v FROM sales_t",
    "CREATE AGGREGATE sales_n (x int) : int { INITIALIZE: ITERATE: { "
    "INSERT INTO RETURN SELECT v FROM sales_shared; } }",
    "CREATE QUERY sales_n WITH (sink = 'table:sales_t') AS SELECT k, k AS v FROM sales_s",
    "CREATE CLASSIFIER sales_n ON sales_m(v) PARTITION BY k LEARN c FROM sales_cases EVERY 1 MINUTE "
    "WITH (capacity = 1)",
    "ALTER QUERY sales_q SET (weight = 2)",
    "INSERT INTO sales_t SELECT k + 1, v FROM sales_shared",
    "UPDATE sales_t SET v = 3",
]
LOOKS = [
    "SELECT * FROM other_t",
    "SELECT * FROM other_q",
    "SELECT * FROM other_s",
    "SELECT * FROM other_s_late",
    "SELECT * FROM sales_late",
    "SELECT * FROM sales_errors",
    "DESCRIBE sales_late",
    "SELECT (SELECT max(v) FROM other_t) AS m",
    "WITH o AS (SELECT * FROM other_t) SELECT * FROM o",
    "SELECT * FROM sales_t UNION ALL SELECT * FROM other_t",
    "SELECT * FROM sales_t JOIN other_t USING (k)",
    'SELECT * FROM "other_t"',
    "SELECT * FROM OTHER_T",
    "SHOW CREATE TABLE other_t",
    "SHOW VERSIONS other_q",
    "DESCRIBE other_t",
    "EXPLAIN other_q",
    "EXPLAIN",
    "INSERT INTO sales_t VALUES (3, 3)",
    "CREATE QUERY sales_n AS SELECT k FROM sales_s",
    "DROP QUERY sales_q",
]
PAGES = [
    "/v1/queries/other_q",
    "/v1/queries/OTHER_Q/results",
    "/v1/queries/other_q/versions",
    "/v1/queries/other_q/explain",
    "/v1/queries/other_q/live?since=0",
    "/v1/queries/other_q/line",
    "/v1/history/other_q",
    "/v1/graph?query=other_q",
    "/v1/slices/other_q",
    "/v1/explain",
    "/v1/metrics",
    "/v1/graph",
]


@pytest.fixture
def shared(way: Way) -> Way:
    UserSession(way.service).execute(OTHERS)
    way.service.allowed = ClientPermissions()
    return way


@pytest.mark.parametrize("way", ["sales operator"], indirect=True)
def test_statements_cannot_use_tables_outside_of_their_name_patterns(shared: Way) -> None:
    for statement in OTHERS_READ:
        shared.refuses(statement)


@pytest.mark.parametrize("way", ["sales operator"], indirect=True)
def test_statements_can_use_objects_within_their_name_patterns(shared: Way) -> None:
    for statement in OWN_READ:
        answer = shared.run(statement)
        assert answer.status_code == 200, (statement, answer.text)
        shared.drop("sales_n")


@pytest.mark.parametrize("way", ["sales reader"], indirect=True)
def test_a_reader_cannot_see_objects_outside_of_its_name_patterns(shared: Way) -> None:
    for statement in LOOKS:
        assert "42" not in shared.refuses(statement)
    for page in PAGES:
        assert shared.http.get(page).status_code == 403, page
    for text in ("CREATE VIEW sales_n AS SELECT v FROM other_t", "INSERT INTO sales_t SELECT * FROM other_t"):
        found = shared.http.post("/v1/check", json={"text": text}).json()["errors"]
        assert [one["message"].endswith(", not other_t") for one in found] == [True]
    for statement in ("COPY (SELECT * FROM other_t) TO STDOUT", "SUBSCRIBE other_q"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            shared.postgres.execute(statement.encode())


@pytest.mark.parametrize("way", ["sales reader"], indirect=True)
def test_a_reader_sees_objects_within_its_name_patterns(shared: Way) -> None:
    for statement in ("SELECT * FROM sales_t", "SELECT * FROM sales_shared", "DESCRIBE sales_q"):
        assert shared.run(statement).status_code == 200, statement
    for page in ("/v1/queries/sales_q", "/v1/queries/sales_q/results", "/v1/catalog", "/v1/queries"):
        answer = shared.http.get(page)
        assert answer.status_code == 200
        assert "other_q" not in answer.text
