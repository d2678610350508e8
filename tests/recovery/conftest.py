"""What chains of kills share: drivers on one JVM, and a database server."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from connectors.sinks.postgres_server import Server, postgres_server
from recovery.drivers import Drivers, drivers_that_share_a_jvm


@pytest.fixture(scope="module")
def drivers() -> Iterator[Drivers]:
    with drivers_that_share_a_jvm() as running:
        yield running


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_server() as running:
        yield running


@pytest.fixture
def database(server: Server) -> Iterator[str]:
    """The address of a database for one home."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE results")
        yield server.url.replace("/postgres?", "/results?")
        connection.execute("DROP DATABASE results WITH (FORCE)")
