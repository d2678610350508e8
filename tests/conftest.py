"""Shared by all tests: one Spark session, started by the first test that asks for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

# Tests of kernels are tests of machine code; `tests/machine_code` has those of the same as Python.
os.environ.setdefault("SLICEMILL_COMPILE", "always")

# No test depends on how busy the machine is, and the first call of compiled code includes its compilation.
# The rest is as Hypothesis chooses: new examples each time, and always the same ones where CI is set.
settings.register_profile(
    "tests", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("quick", settings.get_profile("tests"), max_examples=5)
settings.load_profile("tests")

TESTS = Path(__file__).parent

# Folders whose tests run beside the session; the others, and a long part of one, fill the second process.
_WITH_SPARK = frozenset(
    (
        "aggregate",
        "bench",
        "connectors",
        "engine",
        "ingest",
        "lab",
        "metrics",
        "recovery",
        "server",
        "simulator",
        "storage",
    )
)
_APART = TESTS / "engine" / "changing"

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses the session, and what `make test` runs in the process that has it.

    The other process takes about as long.
    """
    for item in items:
        uses_session = "spark" in getattr(item, "fixturenames", ())
        if uses_session:
            item.add_marker(pytest.mark.spark)
        beside = item.path.relative_to(TESTS).parts[0] in _WITH_SPARK and _APART not in item.path.parents
        if uses_session or beside:
            item.add_marker(pytest.mark.first_process)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from slicemill.engine.session import local_session
    from slicemill.engine.workers.sharing import kept_workers

    session = local_session(cores=2, name="slicemill tests")
    # Mills come and go with every test; their workers stay.
    with kept_workers(session.sparkContext):
        yield session
    session.stop()
