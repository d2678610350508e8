"""Parts of the latency benchmark: sent events, their pace, and the recorded rows."""

from __future__ import annotations

import socket
import sys
import threading
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from slicemill.binder import bind
from slicemill.errors import SlicemillError
from slicemill_lab.bench.latency import QUICK, LatencyCase, _compared
from slicemill_lab.bench.live import queries
from slicemill_lab.bench.live.processes import Program
from slicemill_lab.bench.live.samples import Recorder, load, percentile
from slicemill_lab.bench.live.sender import Broadcast
from slicemill_lab.bench.live.session import LatencySpan, Watched
from slicemill_lab.bench.live.stamped import TYPES, events
from slicemill_lab.bench.live.subscriber import STAMPS, add_lines, watch_folder, watch_socket
from slicemill_lab.bench.live.systems import Place, mill

PORTS = {"bid": 1, "auction": 2, "person": 3}


def recorder(*times_us: int) -> Recorder:
    moments = iter(times_us)
    return Recorder(lambda: next(moments), lambda _: None)


def test_events_have_the_nexmark_mixture_and_the_columns_of_their_stream() -> None:
    found = list(islice(events(), 100))
    assert [sum(event.stream == stream for event in found) for stream in TYPES] == [2, 6, 92]
    for event in found:
        values = event.line(1_000).decode().strip().split(",")
        assert len(values) == len(TYPES[event.stream].split(", "))
        assert values[0] == "1000"
    auction = next(event for event in found if event.stream == "auction")
    assert int(auction.line(1_000).split(b",")[5]) == 1_000 + auction.lives_us


def test_events_continue_after_the_first_generated_batch() -> None:
    ids = [event.values[0] for event in islice(events(), 20_000) if event.stream == "person"]
    assert len(set(ids)) == 400


def test_every_connected_client_gets_the_same_lines() -> None:
    output = Broadcast()
    clients = [socket.create_connection(("127.0.0.1", output.port), timeout=10) for _ in range(2)]
    while len(output.clients) < 2:
        output.arrived.clear()
        output.arrived.wait(0.1)
    output.send(b"1,2\n")
    assert [client.recv(10) for client in clients] == [b"1,2\n", b"1,2\n"]
    for client in clients:
        client.close()
    output.close()


def test_samples_have_queries_and_spans_and_survive_a_round_trip_through_a_file(tmp_path: Path) -> None:
    noted = recorder(10_000, 20_000, 30_000)
    noted.add("a", [1_000, 2_000], 2)
    noted.add("b", [15_000], 1)
    noted.add("c", [], 7)
    noted.samples().save(tmp_path / "s.npz")
    samples = load(tmp_path / "s.npz")
    assert dict(zip(samples.names, samples.rows, strict=True)) == {"a": 2, "b": 1, "c": 7}
    assert samples.latencies_ms.tolist() == [9.0, 8.0, 5.0]
    assert samples.between(2_000, 15_000).latencies_ms.tolist() == [8.0]
    assert samples.figures() == {
        "p50 ms": 8.0,
        "p99 ms": 9.0,
        "rows": 3,
        "p50 ms by query": {"a": 8.0, "b": 5.0},
    }


def test_percentiles_are_measured_values() -> None:
    values = np.arange(1.0, 101.0)
    assert (percentile(values, 50), percentile(values, 99)) == (50.0, 99.0)


def test_rows_from_a_socket_are_recorded_by_query() -> None:
    seen = threading.Semaphore(0)
    noted = Recorder(lambda: 7_000, lambda _: seen.release())
    server, ended = socket.create_server(("127.0.0.1", 0)), threading.Event()
    watching = threading.Thread(target=watch_socket, args=(server, noted, ended))
    watching.start()
    with socket.create_connection(server.getsockname()) as client:
        client.sendall(b"a,50")
        client.sendall(b"00\nb,6000\n")
        assert seen.acquire(timeout=10) and seen.acquire(timeout=10)
    ended.set()
    watching.join()
    assert sorted(noted.samples().latencies_ms.tolist()) == [1.0, 2.0]


def test_each_finished_file_of_a_folder_is_read_once(tmp_path: Path) -> None:
    (tmp_path / ".part-0.inprogress").write_text("q,1000\n")
    (tmp_path / "part-1").write_text("q,2000\nq,3000\n")
    ended = threading.Event()
    noted = Recorder(lambda: 5_000, lambda _: ended.set())
    watch_folder(tmp_path, noted, ended)
    assert noted.samples().latencies_ms.tolist() == [3.0, 2.0]


def test_an_incomplete_line_is_no_row() -> None:
    noted = recorder(1)
    add_lines([b"", b"q"], noted)
    assert len(noted.samples()) == 0


@pytest.mark.parametrize("named", [queries.ONE, queries.THIRTEEN, queries.fifty()], ids=["1", "13", "50"])
def test_benchmark_queries_are_valid_and_carry_stamps(named: dict[str, str], tmp_path: Path) -> None:
    catalog = bind(queries.script(named, PORTS, tmp_path / "category.csv")).catalog
    assert len(catalog.queries) == len(named)
    without = [name for name in named if not set(STAMPS) & set(catalog.queries[name].schema.names)]
    assert without == (["steady_bidders"] if "steady_bidders" in named else [])


def test_spark_has_a_form_of_every_query() -> None:
    assert list(queries.THIRTEEN_IN_SPARK) == list(queries.THIRTEEN)
    assert set(QUICK) < set(queries.THIRTEEN)


def test_the_slicemill_command_runs_a_script_with_the_given_ports(tmp_path: Path) -> None:
    command = mill(queries.ONE, ("q",)).command(Place(PORTS, tmp_path, None))
    assert command[3:5] == ["run", str(tmp_path / "queries.esl")]
    assert "tcp://127.0.0.1:3?lines=csv" in (tmp_path / "queries.esl").read_text()


def test_a_failing_program_is_an_error_with_its_last_output(tmp_path: Path) -> None:
    program = Program("sums", [sys.executable, "-c", "print('one'); 1 / 0"], tmp_path)
    assert program.line(30) == "one"
    with pytest.raises(SlicemillError, match=r"(?s)sums has ended: .*division by zero"):
        program.line(30)
    program.stop()


def test_a_program_ends_with_its_input(tmp_path: Path) -> None:
    echo = "import sys\nfor line in sys.stdin: print(line.strip(), flush=True)\nprint('ends', flush=True)"
    program = Program("echo", [sys.executable, "-c", echo], tmp_path)
    program.say("hello")
    assert program.line(30) == "hello"
    program.stop()
    assert program.line(1) == "ends"


def test_a_missing_system_makes_its_claim_fail_with_a_reason() -> None:
    noted = recorder(5_000)
    noted.add("q", [1_000], 1)
    ours = Watched(mill(queries.ONE, ("q",)), noted.samples(), LatencySpan(2.0, {"java": 1.0}), 1, 0.5)
    assert ours.span.cores == 0.5
    case = LatencyCase("1 filter", 250, {"slicemill": ours}, {"flink": "not measured: no network"})
    claim = _compared(case, "flink, committed", 1.0)
    assert (claim.holds, claim.measured, claim.note) == (False, "not measured", "not measured: no network")
    assert _compared(LatencyCase("1 filter", 250, {"slicemill": ours, "spark": ours}, {}), "spark", 1.0).holds
