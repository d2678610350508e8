"""Fixtures of all tests: one Spark session, started by the first test that needs it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from support.cpu_seconds import Measurement, first_process

# Kernels are tested as machine code; `tests/machine_code` covers kernels that start as Python.
os.environ.setdefault("SLICEMILL_COMPILE", "always")

# No test depends on the load of the machine, and the first call of compiled code includes its compilation.
# The rest is Hypothesis's default: new examples each time, and fixed examples if CI is set.
settings.register_profile(
    "tests", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("quick", settings.get_profile("tests"), max_examples=5)
settings.load_profile("tests")

TESTS = Path(__file__).parent

# Directories of experiments, their simulator and benchmarks. `make test` runs their tests with the mark
# `every_commit`, and `make test-lab` runs all of them.
_LAB = frozenset({"bench", "lab", "simulator"})

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-seconds", metavar="FILE", help="append the CPU seconds of each test to this file")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.cpu_seconds is not None:
        config.pluginmanager.register(Measurement(Path(config.option.cpu_seconds)))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests with the session, tests of the lab, and modules that run beside the session."""
    modules = {item: item.path.relative_to(TESTS).as_posix() for item in items}
    for item, module in modules.items():
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if module.partition("/")[0] in _LAB and item.get_closest_marker("every_commit") is None:
            item.add_marker(pytest.mark.lab)
    tested = {item: module for item, module in modules.items() if item.get_closest_marker("lab") is None}
    with_session = {module for item, module in tested.items() if item.get_closest_marker("spark")}
    beside = first_process(frozenset(tested.values()), with_session)
    for item, module in tested.items():
        if module in beside:
            item.add_marker(pytest.mark.first_process)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from slicemill.runtime.spark_session import local_session
    from slicemill.runtime.workers.sharing import keep_workers

    session = local_session(cores=2, name="slicemill tests")
    # Every test creates its own engine; the workers stay.
    with keep_workers(session.sparkContext):
        yield session
    session.stop()
