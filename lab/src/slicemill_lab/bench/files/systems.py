"""Systems that run workloads, with the commands that start them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import slicemill
import slicemill_lab
from slicemill.errors import SlicemillError
from slicemill.runtime.spark_session import ensure_java_home
from slicemill_lab.bench.files.workload import Format, Language
from slicemill_lab.bench.live.flink import flink_python
from slicemill_lab.bench.rivals.before import BEFORE, source_before

_PROGRAM = str(Path(__file__).with_name("side.py"))


@dataclass(frozen=True, slots=True)
class System:
    """A system.

    Systems with the same command share a running program; `missing` tells why one is unavailable.
    """

    name: str
    language: Language
    form: Format
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    missing: str = ""


def mill(form: Format = "parquet") -> System:
    name = "slicemill" if form == "parquet" else f"slicemill, {form}"
    return System(name, "esl", form, (sys.executable, _PROGRAM, "slicemill"), _environment(_source()))


def mill_before(folder: Path) -> System:
    """Return an earlier version of slicemill, unpacked into a folder."""
    name = f"slicemill at {BEFORE}"
    try:
        source = source_before(folder / "source")
    except SlicemillError as error:
        return System(name, "esl", "parquet", (), missing=str(error))
    environment = {**_environment(source), "SLICEMILL_CACHE": str(folder / "cache")}
    # The last argument is unused. It makes the command different from that of `mill`.
    return System(name, "esl", "parquet", (sys.executable, _PROGRAM, "slicemill", BEFORE), environment)


def spark() -> System:
    environment = _environment(f"{_source()}{os.pathsep}{Path(slicemill_lab.__file__).parents[1]}")
    return System("spark", "spark", "parquet", (sys.executable, _PROGRAM, "spark"), environment)


def flink() -> System:
    """Return Flink from PyPI. It has no Parquet reader, so it reads the rows as CSV."""
    python, why = flink_python()
    environment = {**_environment(""), "JAVA_HOME": str(ensure_java_home())}
    command = (str(python), _PROGRAM, "flink")
    return System("flink", "flink", "csv with epoch times", command, environment, why)


def _source() -> Path:
    return Path(slicemill.__file__).parents[1]


def _environment(source: Path | str) -> dict[str, str]:
    # The program lies inside a package, whose modules must not be importable as top-level packages.
    return {"PYTHONPATH": str(source), "PYTHONSAFEPATH": "1"}
