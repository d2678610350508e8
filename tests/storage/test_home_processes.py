"""A process reads a home directory while another process writes it, and sees only committed states."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from slicemill.storage.home_reader import HomeReader
from slicemill.storage.segments import ExtentFreed

EPOCHS = 2_000

WRITER = """
import sys
from pathlib import Path
from slicemill.storage.changes import Appended, Change
from slicemill.storage.home import Home
from slicemill.storage.segments import SegmentWriters
from storage.tables import COLUMNS, rows

home = Home(Path(sys.argv[1]), snapshot_every=(4_000, 8_000))
home.open()
home.commit(Change(created={"bid": COLUMNS}))
writers = SegmentWriters("w", roll_bytes=20_000)
print("ready", flush=True)
sys.stdin.readline()
for n in range(1, int(sys.argv[2])):
    added = Appended([writers.append(home.logs["bid"].folder, rows(n, n, seq=2 * n))], n, n, n)
    home.commit(Change(logs={"bid": added}, tasks={"u": {"n": n}}, freed={"bid": n - 500}))
    if n % 50 == 0:
        home.free(["w"])
home.close()
"""


def test_a_reader_follows_a_writer_through_snapshots_and_freed_segments(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path), str(EPOCHS)]
    paths = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=paths
    ) as writer:
        assert writer.stdin is not None and writer.stdout is not None and writer.stderr is not None
        assert writer.stdout.readline() == "ready\n", writer.stderr.read()
        reader = HomeReader(tmp_path)
        assert reader.epoch == 0
        writer.stdin.write("go\n")
        writer.stdin.flush()
        polls = seen = read = 0
        while reader.epoch < EPOCHS - 1 and (writer.poll() is None or reader.poll()):
            polls += reader.poll() > 0
            n = reader.epoch
            assert n >= seen, "what was seen stays"
            seen = n
            log = reader.logs["bid"]
            assert log.head == (n or -1) and reader.tasks.get("u", {}).get("n", 0) == n
            assert log.first == max(n - 500, 0)
            for epoch in log.epochs(after=n - 2):
                try:
                    table = log.read(epoch)
                except ExtentFreed:
                    continue  # The writer has freed this epoch meanwhile.
                assert table.column("_seq").to_pylist() == [2 * epoch.number, 2 * epoch.number + 1]
                read += 1
        assert writer.wait() == 0, writer.stderr.read()
    reader.poll()
    late = HomeReader(tmp_path)
    for each in (reader, late):
        assert each.epoch == EPOCHS - 1
        assert [epoch.number for epoch in each.logs["bid"].epochs()] == list(range(EPOCHS - 501, EPOCHS))
    assert polls > 3 and read > 3
    assert reader.poll() == 0
    assert len(list((tmp_path / "journal").iterdir())) < 12
