"""Close the home directories that a test of sinks has opened."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from connectors.sinks.logs import close_homes


@pytest.fixture(autouse=True)
def homes() -> Iterator[None]:
    yield
    close_homes()
