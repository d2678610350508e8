"""Where the daemon finds pyspark, what its workers say last, and when they look for garbage."""

from __future__ import annotations

import gc
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from slicemill.runtime.workers.daemon import SparseCollector, remove_pyspark_zip

_WORKER = """
import os, socket
from slicemill.runtime.workers.daemon import silence_broken_pipes

def worker(sock, authenticated):
    out = os.fdopen(os.dup(sock.fileno()), "wb", 65536)
    out.write(b"x")
    {then}

near, far = socket.socketpair()
far.close()
silence_broken_pipes(worker)(near, True)
"""


_TASK = """
from slicemill.runtime.workers.daemon import silence_broken_pipes
from slicemill.runtime.workers.retire import retire

def worker(sock, authenticated):
    {before}
    return 0

silence_broken_pipes(worker)(None, True)
print("goes on")
"""


def pyspark(folder: Path, packed: str, installed: str | None) -> list[str]:
    """A path as Spark makes it, with these versions in pyspark.zip and where packages are installed."""
    archive, packages = folder / "lib" / "pyspark.zip", folder / "site-packages"
    archive.parent.mkdir()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("pyspark/version.py", f'__version__: str = "{packed}"\n')
    (packages / "pyspark").mkdir(parents=True)
    if installed is not None:
        (packages / "pyspark" / "version.py").write_text(f'__version__: str = "{installed}"\n')
    return [str(folder), str(archive), str(folder / "lib" / "py4j.zip"), str(packages)]


def test_the_pyspark_that_is_installed_is_taken_if_its_version_is_the_same(tmp_path: Path) -> None:
    path = pyspark(tmp_path, "4.3.0", "4.3.0")
    assert remove_pyspark_zip(path) == [path[0], path[2], path[3]]


@pytest.mark.parametrize("installed", ["4.3.1", None])
def test_else_that_of_spark_is_taken(tmp_path: Path, installed: str | None) -> None:
    path = pyspark(tmp_path, "4.3.0", installed)
    assert remove_pyspark_zip(path) == path


def test_a_path_without_an_archive_stays(tmp_path: Path) -> None:
    path = [str(tmp_path), str(tmp_path / "pyspark.zip"), *sys.path]
    assert remove_pyspark_zip(path) == path


def ended(then: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", _WORKER.format(then=then)], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


def test_a_worker_whose_reader_is_gone_ends_without_a_word() -> None:
    assert ended("out.flush()") == (1, "")


def test_a_worker_that_fails_says_why() -> None:
    status, said = ended("raise ValueError('bad')")
    assert status == 1 and "ValueError: bad" in said


@pytest.mark.parametrize(("before", "goes_on"), [("pass", "goes on\n"), ("retire()", "")])
def test_a_worker_that_has_retired_ends_after_its_task(before: str, goes_on: str) -> None:
    script = _TASK.format(before=before)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (goes_on, "")


def test_after_every_few_tasks_all_garbage_is_collected_and_else_only_what_is_young() -> None:
    looked_at: list[int] = []

    def note(phase: str, about: dict[str, int]) -> None:
        if phase == "start":
            looked_at.append(about["generation"])

    garbage = SparseCollector(tasks_between_all=3)
    gc.disable()  # by itself
    gc.callbacks.append(note)
    try:
        for _ in range(6):
            garbage.collect()
    finally:
        gc.callbacks.remove(note)
        gc.enable()
    assert looked_at == [1, 1, 2, 1, 1, 2]


def test_workers_are_killed_before_java_when_memory_is_short() -> None:
    code = (
        "from slicemill.runtime.workers.daemon import be_killed_before_java as first; first(); "
        "print(open('/proc/self/oom_score_adj').read())"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(said) == 500
