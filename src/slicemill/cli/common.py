"""Shared parts of the commands: options, reading of scripts, warnings, and durations."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slicemill.errors import SlicemillError

if TYPE_CHECKING:
    from slicemill.binder.script import BoundScript
    from slicemill.sql.errors import SourceText

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="Script of ESL statements (SQL for streams), for example auction.esl; - reads standard input.",
    ),
]
Packages = Annotated[
    str | None,
    typer.Option(metavar="G:A:V,…", help="Maven packages that Spark loads, for example of the Kafka source."),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Setting of the Spark session, for example spark.driver.memory=4g; repeatable.",
    ),
]


def spark_settings(packages: str | None, conf: list[str] | None) -> dict[str, str]:
    """Return the Spark session settings that the options --packages and --conf give.

    >>> spark_settings("org.example:source:1.0", ["spark.driver.memory=4g"])
    {'spark.jars.packages': 'org.example:source:1.0', 'spark.driver.memory': '4g'}
    """
    settings = {} if packages is None else {"spark.jars.packages": packages}
    for given in conf or ():
        key, equals, value = given.partition("=")
        if not equals or not key.startswith("spark."):
            raise SlicemillError(
                f"{given!r} is not a Spark setting; write --conf spark.driver.memory=4g, for example"
            )
        if key == "spark.master":
            raise SlicemillError("--conf cannot set spark.master; use --master")
        settings[key] = value
    return settings


def read(file: Path) -> SourceText:
    """Read a script from a file or standard input. Raises SlicemillError if that fails."""
    from slicemill.sql.errors import SourceText

    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except OSError as error:
        raise SlicemillError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SlicemillError(
            f"{file} is not valid UTF-8 at byte {error.start}; convert the file to UTF-8"
        ) from None
    return SourceText(text, "<stdin>" if str(file) == "-" else str(file))


def print_warnings(bound: BoundScript) -> None:
    """Print the warnings for a script to standard error."""
    from slicemill.sql.errors import render

    for warning in bound.warnings:
        typer.echo(f"{render(bound.source, warning)}\n", err=True)


def seconds_of(duration: str | None) -> float | None:
    """Parse a duration and return it in seconds.

    >>> seconds_of("30s"), seconds_of("2 min"), seconds_of("1.5h")
    (30.0, 120.0, 5400.0)
    """
    from slicemill.time import UNITS_US, unit_name

    if duration is None:
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([a-z]+)\s*", duration.lower())
    unit = unit_name(match[2]) if match else None
    if match is None or unit not in UNITS_US:
        raise SlicemillError(f"{duration!r} is not a duration; write 30s, 10m or 1h, for example")
    return float(match[1]) * UNITS_US[unit] / 1_000_000
