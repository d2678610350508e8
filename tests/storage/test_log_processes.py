"""Real processes: a reader beside the writer, and a writer that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa

from slicemill.esl.types import INT, Column, Schema
from slicemill.storage.files import LOCAL, write_whole
from slicemill.storage.log import StreamLog

SCHEMA = Schema((Column("n", INT),))


def row(value: int) -> pa.Table:
    return pa.table({"_ts": pa.array([value], pa.int64()), "n": pa.array([value], pa.int32())})


READER = """
import sys
from pathlib import Path
from slicemill.storage.files import LOCAL, write_whole
from slicemill.storage.log import StreamLog

folder, last = Path(sys.argv[1]), int(sys.argv[2])
log = StreamLog(folder / "log")
seen = -1
while seen < last:
    log.refresh()
    for epoch in log.epochs(after=seen):
        seen += 1
        assert (epoch.number, epoch.key, epoch.frontier) == (seen, f"ingest:{seen}", seen), (epoch, seen)
        assert log.read(epoch.number).column("n").to_pylist() == [seen], epoch
        assert log.has(epoch.key) and log.head >= seen
    write_whole(LOCAL, folder / "cursor", b"%d" % seen)
"""


def test_a_reader_in_another_process_sees_a_prefix_while_the_writer_merges_and_frees(tmp_path: Path) -> None:
    log = StreamLog(tmp_path / "log", SCHEMA)
    write_whole(LOCAL, tmp_path / "cursor", b"-1")
    last = 500
    command = [sys.executable, "-c", READER, str(tmp_path), str(last)]
    reader = subprocess.Popen(command, stderr=subprocess.PIPE)
    for number in range(last + 1):
        log.append(f"ingest:{number}", [log.write(row(number))], number)
        log.truncate_before(int(LOCAL.read(tmp_path / "cursor")) + 1)
    _, problems = reader.communicate(timeout=30)
    assert (reader.returncode, problems.decode()) == (0, "")


WRITER = """
import sys
from pathlib import Path
import pyarrow as pa
from slicemill.storage.log import StreamLog

log = StreamLog(Path(sys.argv[1]))
while True:
    number = log.head + 1
    table = pa.table({"_ts": pa.array([number], pa.int64()), "n": pa.array([number], pa.int32())})
    log.append(f"ingest:{number}", [log.write(table)], number)
    log.truncate_before(number - 5)
    print(number, flush=True)
"""


def test_a_writer_that_is_killed_loses_nothing_that_it_reported(tmp_path: Path) -> None:
    StreamLog(tmp_path, SCHEMA)
    for lives in (70, 1):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        reported = [int(writer.stdout.readline()) for _ in range(lives)][-1]
        os.kill(writer.pid, signal.SIGKILL)
        rest, _ = writer.communicate()
        reported = max([reported, *map(int, rest.split(b"\n")[:-1])])
        log = StreamLog(tmp_path)
        assert log.head in (reported, reported + 1)
        assert [log.read(epoch.number)["n"].to_pylist() for epoch in log.epochs()] == [
            [number] for number in range(log.first, log.head + 1)
        ]
        log.sweep(grace_us=0)
        assert len(list((tmp_path / "chunks").iterdir())) == log.head - log.first + 1
