"""CPU seconds of tests, and their division between the two processes of `make test`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support import cpu_seconds
from support.cpu_seconds import ProcessTimes, by_module, cpu_s_between, first_process, processes

# The kernel counts hundredths of a second.
BURN = "import time\nwhile time.process_time() < 0.2: pass"


def test_the_time_of_an_ended_child_counts() -> None:
    before = processes()
    subprocess.run([sys.executable, "-c", BURN], check=True)
    assert cpu_s_between(before, processes()) >= 0.18


def test_the_earlier_time_of_an_ended_child_does_not_count() -> None:
    before = {1: ProcessTimes(0, 5.0, 1.0), 2: ProcessTimes(1, 3.0)}
    assert cpu_s_between(before, {1: ProcessTimes(0, 5.5, 4.25)}) == 0.75


def test_a_child_whose_parent_does_not_wait_is_not_subtracted() -> None:
    before = {1: ProcessTimes(0, 5.0), 2: ProcessTimes(1, 3.0)}
    assert cpu_s_between(before, {1: ProcessTimes(0, 5.5)}) == 0.5


def test_small_modules_are_left_out_of_the_sums(tmp_path: Path) -> None:
    lines = [["tests/b.py::one", 2.04, 9.0], ["tests/a/a.py::two", 0.4, 9.0], ["tests/b.py::three", 1.0, 9.0]]
    (tmp_path / "measured").write_text("\n".join(map(json.dumps, lines)))
    assert by_module([tmp_path / "measured"]) == {"b.py": 3.0}


def test_the_longest_modules_are_divided_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text(json.dumps({"spark.py": 40, "a.py": 60, "b.py": 30, "c.py": 30, "gone.py": 900}))
    monkeypatch.setattr(cpu_seconds, "KEPT", kept)
    monkeypatch.setattr(cpu_seconds, "MYPY_S", 30)
    monkeypatch.setattr(cpu_seconds, "SESSION_S", 0)
    modules = ["new.py", "spark.py", "c.py", "b.py", "a.py"]
    assert first_process(modules, ["spark.py"]) == {"spark.py", "b.py", "c.py"}


def test_pages_of_the_console_are_tested_in_one_process() -> None:
    modules = {f"console/test_{number}.py" for number in range(3)}
    others = {f"other/test_{number}.py" for number in range(3)}
    first = first_process(modules | others, [])
    assert modules <= first or not modules & first
