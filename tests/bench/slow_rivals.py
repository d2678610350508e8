"""Spark, Flink and slicemill before have the results of windows, joins and filters that slicemill has."""

from __future__ import annotations

from pathlib import Path

import pytest

from slicemill_lab.bench.files import systems
from support.rivals import assert_right


def test_spark(tmp_path: Path) -> None:
    assert_right([systems.spark()], tmp_path)


def test_flink(tmp_path: Path) -> None:
    flink = systems.flink()
    if flink.missing:
        pytest.skip(flink.missing)
    assert_right([flink], tmp_path)


def test_slicemill_before(tmp_path: Path) -> None:
    before = systems.mill_before(tmp_path / "before")
    if before.missing:
        pytest.skip(before.missing)
    assert_right([before], tmp_path)
