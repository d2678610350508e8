"""Several sinks side by side: isolated failures, retries with the same epoch numbers, and stored cursors."""

from __future__ import annotations

import io
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from connectors.sinks.logs import (
    EPOCHS,
    NUMBERS,
    free_read,
    make_anew,
    more_numbers,
    numbers_home,
    open_home,
    pass_by,
)
from slicemill.connectors.sinks.console import ConsoleSink
from slicemill.connectors.sinks.delivery import SinkRunner
from slicemill.connectors.sinks.memory import MemorySink
from slicemill.connectors.sinks.registry import open_sink
from slicemill.connectors.sinks.sink import Sink, SinkError
from slicemill.storage.changes import Change
from slicemill.storage.filesystem import LOCAL
from storage.faulty_files import Crashed, crashes_of

PATIENCE_S = 30


@dataclass
class Received:
    """Function sink that records its calls, and fails on demand."""

    calls: list[tuple[int, list[int]]] = field(default_factory=list)
    failing: bool = False
    done: threading.Event = field(default_factory=threading.Event)

    def __call__(self, epoch: int, table: pa.Table) -> None:
        if self.failing:
            raise OSError("no way")
        self.calls.append((epoch, table.column("n").to_pylist()))
        if self.calls[-1][1][-1] >= 6:
            self.done.set()


@dataclass
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


def opened(target: str | Received, **options: Path) -> Sink:
    return open_sink(target, "q", NUMBERS, **options)


ALL = [(epoch, list(values)) for epoch, values in EPOCHS.items()]


def test_a_function_gets_each_epoch_with_rows_and_its_number(tmp_path: Path) -> None:
    home, received = numbers_home(tmp_path), Received()
    with SinkRunner(home) as runner:
        runner.add("q", opened(received))
        runner.deliver_new()
        runner.deliver_new()
        assert received.calls == ALL
        more_numbers(home, 6)
        runner.deliver_new()
    assert received.calls == [*ALL, (6, [6])]


def test_a_function_misses_no_epoch_after_a_crash_and_repeated_epochs_have_equal_rows(
    tmp_path: Path,
) -> None:
    for number, files in enumerate(crashes_of(LOCAL)):
        home, received = numbers_home(tmp_path / str(number)), Received()
        dying = SinkRunner(home, files=files)
        with suppress(Crashed):
            dying.add("q", opened(received))
            dying.deliver_new()
        home.close()
        with SinkRunner(open_home(home.folder)) as runner:
            runner.add("q", opened(received))
            runner.deliver_new()
        assert sorted(dict(received.calls).items()) == ALL
        assert all(dict(ALL)[epoch] == values for epoch, values in received.calls)
        assert len(received.calls) <= len(ALL) + 1


def test_a_failing_sink_is_reported_and_does_not_disturb_other_sinks(tmp_path: Path) -> None:
    home, good, bad, problems = numbers_home(tmp_path), Received(), Received(failing=True), []
    with SinkRunner(home, report=problems.append, clock=Clock()) as runner:
        runner.add("q", opened(bad), "bad")
        runner.add("q", opened(good), "good")
        runner.deliver_new()
        assert good.calls == ALL
        assert problems == ["sink bad of query q failed: no way"]
        bad_status, good_status = runner.status()
        assert (bad_status.epoch, bad_status.rows, bad_status.error, bad_status.failures) == (
            -1,
            0,
            "no way",
            1,
        )
        assert (good_status.epoch, good_status.rows, good_status.error) == (4, 6, None)


def test_a_failing_sink_is_retried_with_doubling_delays(tmp_path: Path) -> None:
    home, bad, clock, problems = numbers_home(tmp_path), Received(failing=True), Clock(), []
    tried_at = []
    with SinkRunner(home, report=problems.append, clock=clock) as runner:
        runner.add("q", opened(bad))
        for tenth in range(20):
            clock.now_s = tenth * 0.100001
            runner.deliver_new()
            if runner.status()[0].failures > len(tried_at):
                tried_at.append(tenth)
        assert tried_at == [0, 1, 3, 7, 15]
        assert len(problems) == 1, "the same problem is told once"
        bad.failing = False
        clock.now_s = 100
        runner.deliver_new()
        assert bad.calls == ALL
        assert runner.status()[0].error is None


def test_threads_deliver_new_epochs_and_a_hanging_sink_delays_no_other_sink(tmp_path: Path) -> None:
    home, good, release = numbers_home(tmp_path), Received(), threading.Event()
    stuck = threading.Event()

    def hang(epoch: int, table: pa.Table) -> None:
        stuck.set()
        release.wait(PATIENCE_S)

    with SinkRunner(home) as runner:
        runner.add("q", open_sink(hang, "q", NUMBERS), "hanging")
        runner.add("q", opened(good), "good")
        runner.start()
        assert stuck.wait(PATIENCE_S)
        more_numbers(home, 6)
        runner.notify()
        assert good.done.wait(PATIENCE_S)
        release.set()
    assert good.calls == [*ALL, (6, [6])]


def test_close_delivers_all_committed_epochs(tmp_path: Path) -> None:
    home, received = numbers_home(tmp_path), Received()
    runner = SinkRunner(home)
    runner.start()
    runner.add("q", opened(received))
    more_numbers(home, 6)
    runner.close()
    assert received.calls == [*ALL, (6, [6])]


def test_a_delivery_whose_answer_was_lost_is_not_repeated_if_the_sink_has_a_cursor(
    tmp_path: Path,
) -> None:
    home, clock = numbers_home(tmp_path), Clock()
    sink = opened("json:out", folder=tmp_path)
    answers = iter([OSError("the answer was lost")])

    @dataclass
    class Lossy:
        per_epoch: bool = False

        def resume(self, owner: str, stored: int) -> int:
            return sink.resume(owner, stored)

        def deliver(self, first: int, last: int, table: pa.Table) -> None:
            sink.deliver(first, last, table)
            for problem in answers:
                raise problem

        def close(self) -> None:
            sink.close()

    with SinkRunner(home, report=lambda problem: None, clock=clock) as runner:
        runner.add("q", Lossy())
        runner.deliver_new()
        more_numbers(home, 6)
        clock.now_s = 1
        runner.deliver_new()
    lines = "".join(path.read_text() for path in (tmp_path / "out").glob("*.jsonl")).splitlines()
    assert len(lines) == 7


def test_results_are_retained_until_every_sink_has_them(tmp_path: Path) -> None:
    home, good, bad = numbers_home(tmp_path), Received(), Received(failing=True)
    with SinkRunner(home, report=lambda problem: None, clock=Clock()) as runner:
        runner.add("q", opened(good), "good")
        runner.add("q", opened(bad), "bad")
        runner.deliver_new()
        assert free_read(home, runner.cursors()) == 0
        runner.remove("bad")
        assert free_read(home, runner.cursors()) == len(EPOCHS)
        assert home.logs["q"].freed == 4


def test_freed_results_that_a_sink_has_missed_are_reported(tmp_path: Path) -> None:
    home, received, problems = numbers_home(tmp_path), Received(), []
    with SinkRunner(home, report=problems.append) as runner:
        runner.add("q", opened(received))
        runner.deliver_new()
    more_numbers(home, 6)
    more_numbers(home, 7)
    home.commit(Change(freed={"q": 7}))
    with SinkRunner(home, report=problems.append) as runner:
        runner.add("q", opened(received))
        runner.deliver_new()
    assert received.calls[-1] == (7, [7])
    assert problems == ["sink q: epochs after 4, up to 6, are freed; the sink continues after these epochs"]


def test_epochs_of_other_queries_do_not_count_as_freed_results(tmp_path: Path) -> None:
    home, received, problems = numbers_home(tmp_path), Received(), []
    with SinkRunner(home, report=problems.append) as runner:
        runner.add("q", opened(received))
        runner.deliver_new()
    pass_by(home)
    more_numbers(home, 6)
    home.commit(Change(freed={"q": 7}))
    with SinkRunner(home, report=problems.append) as runner:
        runner.add("q", opened(received))
        runner.deliver_new()
    assert received.calls == [*ALL, (7, [6])]
    assert problems == []


def test_the_cursor_of_a_dropped_query_is_deleted(tmp_path: Path) -> None:
    home, received = numbers_home(tmp_path / "home"), Received()
    with SinkRunner(home) as runner:
        runner.add("q", opened(received))
        runner.add("q", opened("memory:"), "other")
        runner.deliver_new()
        runner.forget("q")
        assert runner.names() == []
        assert runner.cursors() == []
        make_anew(home)
        runner.add("q", opened(received))
        runner.deliver_new()
        assert received.calls == ALL
        more_numbers(home, 6)
        runner.deliver_new()
    assert received.calls == [*ALL, (7, [6])]


def test_a_memory_sink_has_all_rows_of_the_log_in_every_process(tmp_path: Path) -> None:
    home = numbers_home(tmp_path)
    for _ in range(2):
        with SinkRunner(home) as runner:
            runner.add("q", opened("memory:"))
            sink = runner["q"]
            assert isinstance(sink, MemorySink)
            assert sink.to_arrow().num_rows == 0
            runner.deliver_new()
            runner.deliver_new()
            assert sink.to_arrow().column("n").to_pylist() == list(range(6))


def test_a_memory_sink_can_be_limited_to_the_newest_rows(tmp_path: Path) -> None:
    home = numbers_home(tmp_path)
    with SinkRunner(home) as runner:
        runner.add("q", opened("memory:?rows=3"))
        runner.deliver_new()
        more_numbers(home, 6)
        runner.deliver_new()
        sink = runner["q"]
        assert isinstance(sink, MemorySink)
        assert sink.to_arrow().column("n").to_pylist() == [4, 5, 6]


def test_a_console_sink_prints_the_newest_rows_and_their_epochs(tmp_path: Path) -> None:
    home, text = numbers_home(tmp_path), io.StringIO()
    with SinkRunner(home) as runner:
        runner.add("q", ConsoleSink("q", NUMBERS, 2, Console(file=text, width=100)))
        runner.deliver_new()
        more_numbers(home, 6)
        runner.deliver_new()
    # The title is wrapped to the width of its table.
    first, _, rest = " ".join(text.getvalue().split()).partition("q, epoch 6: 1 row")
    assert "q, epochs 1 to 4: 6 rows, the last 2" in first
    assert "00:00:04" in first and "00:00:05" in first and "00:00:03" not in first
    assert "00:00:06" in rest


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("parket:out", "did you mean parquet:"),
        ("out/results", "is no kind of sink"),
        ("json:", "should be json: and a folder, as in json:out/q"),
        ("memory:?rows=none", "should be memory: or memory:?rows=100"),
        ("console:/dev/tty", "should be console:"),
        ("postgres://db/x?tabel=t", "is no Postgres address"),
    ],
)
def test_an_invalid_sink_url_is_rejected_with_a_hint(url: str, message: str) -> None:
    with pytest.raises(SinkError) as refused:
        opened(url)
    assert message in str(refused.value)


def test_each_sink_name_can_be_used_once(tmp_path: Path) -> None:
    home = numbers_home(tmp_path)
    with SinkRunner(home) as runner:
        runner.add("q", opened("memory:"))
        with pytest.raises(SinkError, match="there is a sink q already"):
            runner.add("q", opened("memory:"))
