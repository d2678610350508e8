"""Random bytes and messages over both protocols: no crash, no hang, no access to objects of another user."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from server.conftest import bid
from slicemill.server.auth import Access
from slicemill.server.connections import ClientLimits
from slicemill.server.network import ServerSockets, serving
from slicemill.server.service import MillService
from slicemill.server.user_session import UserSession

FUZZ = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
SECRET = "north_secret"
NORTH = f"""
CREATE STREAM north_bid AS SELECT item, price FROM bid;
CREATE QUERY north_top AS SELECT item, '{SECRET}' AS word FROM north_bid;
CREATE STREAM south_bid AS SELECT item, price FROM bid;
CREATE QUERY south_top AS SELECT item FROM south_bid;
"""


class Errors(logging.Handler):
    """Collects the internal errors that the server logs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(self.format(record))


class Served:
    """Server with two users whose name patterns are disjoint."""

    def __init__(self, listening: ServerSockets, tokens: dict[str, str], errors: Errors) -> None:
        assert listening.postgres is not None
        self.url = listening.url
        self.port: int = listening.postgres.getsockname()[1]
        self.tokens = tokens
        self.errors = errors

    def is_well(self) -> bool:
        """Return True if the server answers over both protocols and has logged no internal error."""
        north = self.tokens["north"]
        with psycopg.connect(
            host="127.0.0.1", port=self.port, user="x", dbname="x", password=north, connect_timeout=20
        ) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
            # The permitted user sees the secret, so a leak would be visible.
            assert connection.execute("SELECT word FROM north_top").fetchall() == [(SECRET,)]
        assert httpx.get(f"{self.url}/health", timeout=20).status_code == 200
        assert self.errors.found == []
        return True


@pytest.fixture
def served(service: MillService, tmp_path: Path) -> Iterator[Served]:
    UserSession(service).execute(NORTH)
    bid(service, (1, 20, 1))
    access = Access(tmp_path / "access")
    tokens = {name: access.add(name, "operator", [f"{name}_*"], 0) for name in ("north", "south")}
    errors = Errors()
    logging.getLogger().addHandler(errors)
    made = ServerSockets(postgres_port=0)
    try:
        with serving(service, made, access, ClientLimits(request_s=5.0)):
            yield Served(made, tokens, errors)
    finally:
        logging.getLogger().removeHandler(errors)


def said(port: int, content: bytes) -> bytes:
    """Return all bytes that the server sends before it closes the connection."""
    found = bytearray()
    with socket.create_connection(("127.0.0.1", port), 20) as raw, contextlib.suppress(ConnectionError):
        raw.sendall(content)
        raw.shutdown(socket.SHUT_WR)
        while part := raw.recv(1 << 16):
            found += part
    return bytes(found)


def framed(kind: bytes, content: bytes) -> bytes:
    return kind + struct.pack("!i", len(content) + 4) + content


def greeting(token: str) -> bytes:
    options = b"user\0x\0database\0x\0\0"
    return struct.pack("!ii", len(options) + 8, 196608) + options + framed(b"p", token.encode() + b"\0")


STATEMENTS = [
    "SELECT 1",
    "SELECT $1",
    "SELECT * FROM south_top",
    "SELECT * FROM north_top",
    "SHOW CREATE north_top",
    "SHOW STATEMENTS",
    "EXPLAIN",
    "SUBSCRIBE north_top SINCE 0",
    "COPY (SELECT * FROM north_top) TO STDOUT",
    "COPY (SHOW STATEMENTS) TO STDOUT",
    "COPY () TO STDOUT",
    "COPY (SELECT 1; SELECT 2) TO STDOUT",
    "SELECT statement FROM (SHOW CREATE north_top)",
    "SELECT * FROM duckdb_tables()",
    "SELECT * FROM information_schema.columns",
    "BEGIN",
    "",
    ";;",
    "'",
]
texts = st.sampled_from(STATEMENTS) | st.text(max_size=30)
strings = texts.map(lambda text: text.replace("\0", "").encode("utf-8", "replace") + b"\0")
names = st.sampled_from([b"\0", b"a\0", b"b\0"])
counts = st.integers(-2, 4).map(lambda count: struct.pack("!h", count))
values = st.sampled_from(
    [b"\xff\xff\xff\xff", struct.pack("!i", 2) + b"12", struct.pack("!i", -7), b"\0\0\0\x09x"]
)
bodies = st.one_of(
    strings,
    st.tuples(names, strings, counts).map(b"".join),
    st.tuples(names, names, counts, counts, values, counts).map(b"".join),
    st.tuples(st.sampled_from([b"S", b"P", b"x"]), names).map(b"".join),
    st.tuples(names, st.integers(-1, 3).map(lambda most: struct.pack("!i", most))).map(b"".join),
    st.binary(max_size=20),
)
kinds = st.sampled_from([bytes([kind]) for kind in b"QPBDESCHXpdcfF\x00z"])
messages = st.builds(framed, kinds, bodies)


@FUZZ
@given(content=st.binary(max_size=200))
@example(content=struct.pack("!ii", 8, 80877102))
@example(content=struct.pack("!ii", 8, 80877103) * 50)
def test_random_bytes_close_only_their_own_connection(served: Served, content: bytes) -> None:
    assert SECRET.encode() not in said(served.port, content)
    assert served.errors.found == []


@FUZZ
@given(sent=st.lists(messages, max_size=12))
def test_random_messages_reveal_no_names_of_another_user(served: Served, sent: list[bytes]) -> None:
    answered = said(served.port, greeting(served.tokens["south"]) + b"".join(sent))
    assert b"Z\0\0\0\x05I" in answered, "the greeting was in order"
    assert SECRET.encode() not in answered
    assert served.errors.found == []


@FUZZ
@given(sent=st.lists(messages, max_size=8))
def test_random_messages_without_a_token_are_rejected(served: Served, sent: list[bytes]) -> None:
    answered = said(served.port, greeting("wrong") + b"".join(sent))
    assert b"Z\0\0\0\x05I" not in answered
    assert served.errors.found == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
json_bodies = json_values | st.fixed_dictionaries({"text": texts | json_values})
# Python reads and writes infinity and NaN in JSON, which the JSON standard forbids.
bodies = json_bodies.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=100)


@FUZZ
@given(path=st.sampled_from(["/v1/statements", "/v1/check"]), body=bodies)
@example(path="/v1/check", body=b"\x80")
@example(path="/v1/check", body=b'{"text": Infinity}')
@example(path="/v1/statements", body=b'{"text": "SHOW QUERIES", "more": NaN}')
def test_random_request_bodies_get_an_answer_without_names_of_another_user(
    served: Served, path: str, body: bytes
) -> None:
    headers = {
        "Authorization": f"Bearer {served.tokens['south']}",
        "Content-Type": "application/json",
    }
    response = httpx.post(f"{served.url}{path}", headers=headers, timeout=20, content=body)
    assert response.status_code in (200, 400, 403, 422)
    assert SECRET not in response.text
    assert served.errors.found == []


@FUZZ
@given(
    content=st.binary(max_size=100),
    starts=st.sampled_from([b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\n"]),
)
def test_random_bytes_to_the_http_port_close_only_their_own_connection(
    served: Served, content: bytes, starts: bytes
) -> None:
    said(int(served.url.rpartition(":")[2]), starts + content)
    assert served.errors.found == []


def test_the_server_answers_after_all_random_messages(served: Served) -> None:
    assert served.is_well()
