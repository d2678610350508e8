"""Shared by all tests: one Spark session, started by the first test that asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from slicemill.runtime.session import local_session

    session = local_session(cores=2, name="slicemill tests")
    yield session
    session.stop()
