"""Results of windows, joins and filters on Spark, Flink and an earlier slicemill."""

from __future__ import annotations

from pathlib import Path

import pytest

from slicemill_lab.bench.files import systems
from support.rivals import assert_right


def test_spark_has_the_expected_results(tmp_path: Path) -> None:
    assert_right([systems.spark()], tmp_path)


def test_flink_has_the_expected_results(tmp_path: Path) -> None:
    flink = systems.flink()
    if flink.missing:
        pytest.skip(flink.missing)
    assert_right([flink], tmp_path)


def test_an_earlier_slicemill_has_the_expected_results(tmp_path: Path) -> None:
    before = systems.mill_before(tmp_path / "before")
    if before.missing:
        pytest.skip(before.missing)
    assert_right([before], tmp_path)
