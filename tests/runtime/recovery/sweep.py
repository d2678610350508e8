"""kill -9 at every step of every commit (`make recovery`): too slow to be run before each commit.

The chains share a JVM, which stands for the driver's own: what a killed driver left running there is stopped
when the next one starts. One chain is run with a JVM for each driver, killed at the same instant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from runtime.recovery.chain import Chain, shared_jvm
from runtime.recovery.points import CHAINS, SHORT


@pytest.fixture(scope="module")
def jvm() -> Iterator[Mapping[str, str]]:
    with shared_jvm() as found:
        yield found


@pytest.mark.parametrize("name", CHAINS)
def test_whatever_step_is_killed_results_are_those_of_an_uninterrupted_run(
    name: str, jvm: Mapping[str, str], tmp_path: Path
) -> None:
    Chain(tmp_path, jvm).run(CHAINS[name])


def test_a_jvm_that_dies_with_its_driver_changes_nothing(tmp_path: Path) -> None:
    Chain(tmp_path, None).run(SHORT)
