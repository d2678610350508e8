"""Fixtures: a service over an engine with workers in this process, and its server on a free port."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from slicemill.api.mill import Mill
from slicemill.server.auth import Principal, UserRole
from slicemill.server.network import ServerSockets, serving
from slicemill.server.service import MillService
from slicemill.server.user_session import UserSession
from support.engine import Clock, fed_mill, feed_rows, inline_pool

BIDS = """
CREATE STREAM bid (item int, price int, ts timestamp micros) ORDER BY ts;
CREATE QUERY dear AS SELECT item, price FROM bid WHERE price > 10;
"""


@pytest.fixture
def mill(tmp_path: Path) -> Iterator[Mill]:
    with fed_mill(tmp_path / "home", Clock(), inline_pool()) as made:
        yield made


@pytest.fixture
def service(mill: Mill) -> MillService:
    made = MillService(mill)
    UserSession(made, Principal("ann", UserRole.OPERATOR)).execute(BIDS)
    mill.open()
    return made


@pytest.fixture
def user(service: MillService) -> UserSession:
    return UserSession(service)


@pytest.fixture
def client(service: MillService) -> Iterator[httpx.Client]:
    with (
        serving(service, ServerSockets()) as url,
        httpx.Client(base_url=url, timeout=60) as made,
    ):
        yield made


def bid(service: MillService, *rows: tuple[int, int, int]) -> None:
    """Feed bids, as (item, price, time), and run all tasks."""
    feed_rows(service.mill, "bid", rows)
    service.mill.dispatcher.run_all()
    service.mill.dispatcher.notify()
