"""Samples of a running engine, and the history of metrics that they fill."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

from server.conftest import bid
from slicemill.api.mill import Mill
from slicemill.runtime.pipeline import TaskProgram
from slicemill.server.diagnosis import Severity
from slicemill.server.metrics_history import (
    QUERY_FIGURES,
    MetricRing,
    MetricsHistory,
    read_history,
    write_history,
)
from slicemill.server.sampling import Sampler
from slicemill.server.service import MillService
from slicemill.server.user_session import UserSession
from support.engine import feed_rows


class Seconds:
    """Clock that a test moves, in seconds and in microseconds."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def us(self) -> int:
        return int(self.now * 1_000_000)


def sampler_of(mill: Mill) -> tuple[Sampler, Seconds]:
    clock = Seconds()
    return Sampler(mill, clock, clock.us), clock


def test_rates_are_differences_between_samples(service: MillService) -> None:
    sampler, clock = sampler_of(service.mill)
    assert sampler.take().streams["bid"].rate == 0
    bid(service, *((1, 20, ts) for ts in range(1, 41)))
    clock.now += 4
    sample = sampler.take()
    assert sample.streams["bid"].rate == 10
    assert (sample.queries["dear"].rate, sample.queries["dear"].rows) == (10, 40)
    assert sum(task.node_rates["dear"] for task in sample.tasks.values()) == 10


def test_garbage_collection_during_a_run_counts_for_the_queries_of_its_task(
    service: MillService, monkeypatch: pytest.MonkeyPatch
) -> None:
    bid(service, (1, 20, 1))
    query = service.mill.queries["dear"]
    before, run = query.measured().collecting_s, TaskProgram.run

    def run_with_garbage(self: TaskProgram, *arguments: Any) -> Any:
        gc.collect()
        return run(self, *arguments)

    monkeypatch.setattr(TaskProgram, "run", run_with_garbage)
    bid(service, (1, 20, 2))
    counted = query.measured()
    assert 0 < counted.collecting_s - before < counted.cpu_s


def test_history_has_one_sample_per_five_seconds_at_any_sampling_rate(service: MillService) -> None:
    sampler, clock = sampler_of(service.mill)
    for _ in range(21):
        sampler.take()
        clock.now += 1
    assert len(sampler.history_of("dear")["at"]) == 5
    assert sampler.history_of("dear")["rate"] == [0.0] * 5
    assert sampler.history_of("nobody")["at"] == []


def test_events_report_created_and_dropped_queries_and_policy_changes(service: MillService) -> None:
    sampler, clock = sampler_of(service.mill)
    sampler.take()
    user = UserSession(service)
    user.execute("CREATE QUERY cheap AS SELECT item FROM bid WHERE price < 3; SET policy = 'hnr'")
    clock.now += 1
    sampler.take()
    user.execute("DROP QUERY cheap")
    clock.now += 5
    sampler.take()
    assert [event.text for event in reversed(sampler.events)] == [
        "the scheduling policy changed from fcfs to hnr",
        "query cheap was created",
        "query cheap was dropped",
    ]
    assert [policy for _, policy in sampler.mill_history()[1]] == ["fcfs", "hnr"]
    assert sampler.history_of("cheap")["at"] == []  # A dropped query has no history.


def test_a_pause_is_reported_as_state_cause_and_event(service: MillService) -> None:
    sampler, clock = sampler_of(service.mill)
    sampler.take()
    user = UserSession(service)
    user.execute("PAUSE QUERY dear")
    clock.now += 1
    paused = sampler.take().queries["dear"]
    assert paused.cause is not None
    assert (paused.state, paused.cause.kind) == ("paused", "paused")
    user.execute("RESUME QUERY dear")
    clock.now += 1
    assert (sampler.take().queries["dear"].state, sampler.take().queries["dear"].cause) == ("running", None)
    assert [event.text for event in reversed(sampler.events)] == ["dear was paused", "dear was resumed"]


def test_an_ended_stream_delays_no_watermark_and_is_reported_as_an_event(service: MillService) -> None:
    sampler, clock = sampler_of(service.mill)
    UserSession(service).execute(
        "CREATE STREAM sale (item int, sum int, ts timestamp micros) ORDER BY ts;"
        "CREATE QUERY sold AS SELECT B.item, S.sum FROM bid AS B, sale AS S"
        " WHERE B.item = S.item WINDOW 1 SECOND"
    )
    bid(service, (1, 20, 1_000_000))
    feed_rows(service.mill, "sale", [(1, 5, 1_000_000)])
    sampler.take()
    service.mill.running.streams["sale"].ended = True
    clock.now += 1
    sample = sampler.take()
    assert (sample.streams["sale"].ended, sample.streams["bid"].ended) == (True, False)
    assert sample.queries["sold"].cause is None
    assert [event.text for event in sampler.events][:1] == ["stream sale has ended"]
    service.mill.running.streams["bid"].ended = True
    service.mill.dispatcher.run_all()
    cause = sampler.take().queries["dear"].cause
    assert cause is not None
    assert (cause.kind, sampler.take().queries["dear"].attention) == ("ended", Severity.NONE)


def test_sampling_announces_no_watermark(service: MillService) -> None:
    before = service.mill.running.streams["bid"].announced
    sampler, _ = sampler_of(service.mill)
    sampler.take()
    assert service.mill.running.streams["bid"].announced == before


def test_metrics_history_continues_after_a_restart(service: MillService, tmp_path: Path) -> None:
    path, clock = tmp_path / "history.arrow", Seconds()
    before = Sampler(service.mill, clock, clock.us, path)
    bid(service, *((1, 20, ts) for ts in range(1, 41)))
    for _ in range(3):
        before.take()
        clock.now += 5
    UserSession(service).execute("SET policy = 'hnr'")
    before.take()
    before.stop()
    clock.now += 60
    after = Sampler(service.mill, clock, clock.us, path)
    assert after.history_of("dear") == before.history_of("dear")
    assert after.mill_history() == before.mill_history()
    assert list(after.events) == list(before.events)
    after.take()
    assert after.history_of("dear")["at"] == [100.0, 105.0, 110.0, 115.0, 175.0]


def test_a_damaged_history_file_is_replaced_by_an_empty_history(service: MillService, tmp_path: Path) -> None:
    path = tmp_path / "history.arrow"
    sampler, _ = sampler_of(service.mill)
    sampler.take()
    write_history(path, MetricsHistory({"dear": MetricRing(QUERY_FIGURES)}))
    content = path.read_bytes()
    for damaged in (b"", content[: len(content) // 2], b"\0" * len(content)):
        path.write_bytes(damaged)
        assert read_history(path).queries == {}


def test_a_metric_ring_drops_its_oldest_values() -> None:
    ring = MetricRing(("a", "b"), kept=3)
    for number in range(10):
        ring.add(number, {"a": number, "b": None if number == 9 else -number})
    assert ring.columns() == {"at": [7, 8, 9], "a": [7, 8, 9], "b": [-7, -8, None]}
    assert (ring.last("a"), ring.last("b")) == (9, -8)
    assert MetricRing(("a",)).last("a") is None
