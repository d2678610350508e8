"""Shedding reports: few buckets, and a small but representative sample of runs."""

from __future__ import annotations

from random import Random

import pytest

from slicemill.shedding.accuracy import BUCKETS, AccuracySums, MemoryReport, RunSample, accuracy_sums
from slicemill.shedding.memory import Tuple


def test_buckets_are_merged_without_loss() -> None:
    report = MemoryReport(capacity=10)
    for ts in range(3 * BUCKETS + 1):
        report.add(ts, AccuracySums(0.5, 1))
    assert BUCKETS // 2 <= len(report.buckets) <= BUCKETS
    assert report.buckets[0].begin == 0 and report.buckets[-1].end == 3 * BUCKETS
    assert sum(bucket.results for bucket in report.buckets) == 3 * BUCKETS + 1
    assert report.accuracy == pytest.approx(0.5)


def test_a_report_over_no_results_is_exact() -> None:
    report = MemoryReport(capacity=10)
    assert (report.accuracy, report.coalescing, report.memory_ratio) == (1, 0, 1)
    assert report.plain()["buckets"] == []


def test_a_sample_estimates_the_share_of_all_runs() -> None:
    """Of 20 000 runs a hundred are sampled; their remaining share estimates that of all runs."""
    random, shadow = Random(3), RunSample(limit=100)
    exact, left = {}, {}
    for run in range(20_000):
        shadow.add_tuple(Tuple("v", 10 * run, 10 * run + 10, run, run, run), "p")
        exact[run] = (10 * run, 10 * run + 10)
        if random.random() < 0.6:
            left[run] = [exact[run]]
    assert len(shadow) <= 100 and shadow.share <= 100 / 20_000 * 2
    sampled = {run: exact[run] for run in shadow.runs("p")}
    sums = accuracy_sums(sampled, {run: pieces for run, pieces in left.items() if run in sampled})
    assert sums.shares / sums.results == pytest.approx(0.6, abs=0.15)


def test_a_sample_drops_expired_runs_and_samples_all_runs_again() -> None:
    shadow = RunSample(limit=4)
    for run in range(40):
        shadow.add_tuple(Tuple("v", run, run + 1, run, run, run), run % 2)
    assert shadow.halvings > 0
    shadow.expire(lambda _, run: run.last_begin < 100)
    assert len(shadow) == 0 and shadow.share == 1
    shadow.add_tuple(Tuple("v", 100, 101, 40, 40, 40), 0)
    shadow.add_tuple(Tuple("v", 101, 103, 41, 41, 40), 0)
    shadow.lost(Tuple("v", 101, 103, 41, 41, 40), 0)
    (original,) = shadow.runs(0).values()
    assert (original.begin, original.end, original.last_begin, original.lost_begin) == (100, 103, 101, 101)
