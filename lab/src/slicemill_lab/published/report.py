"""Report of published figures with ours: for a terminal, as Markdown, and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from statistics import fmean
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from slicemill_lab.published.figure import Verdict
from slicemill_lab.published.kept import FULL_TAKES, WHY, Row

_COLOURS = {Verdict.reproduced: "green", Verdict.sign_only: "yellow", Verdict.not_reproduced: "red"}
_WIDTHS = (1, 31, 13, 14, 14)
HEAD = ("experiment", "on", "figure", "published", "ours", "runs", "verdict")


def terminal(rows: Sequence[Row]) -> Group:
    """Format the report for a terminal: tables, a summary, and reasons for deviations."""
    parts: list[RenderableType] = []
    for (experiment, on, runs), own in groupby(rows, lambda row: itemgetter(0, 1, 5)(_cells(row))):
        table = Table.grid(padding=(0, 1, 0, 0))
        for width in _WIDTHS:
            table.add_column(width=width)
        for row in own:
            _, _, what, printed, ours, _, verdict = map(escape, _cells(row))
            table.add_row("", what, printed, ours, f"[{_COLOURS[row.verdict]}]{verdict}[/]")
        parts += [Text.assemble((experiment, "bold"), f"  {on}, runs: {runs}"), table]
    parts += ["", Text(f"Figure, published, ours (least to greatest), verdict. {summary(rows)}")]
    for name, why in _reasons(rows).items():
        parts += ["", Text.assemble((f"{name}: ", "bold"), why)]
    return Group(*parts)


def markdown(rows: Sequence[Row]) -> str:
    """Format the report as Markdown."""
    lines = [summary(rows), "", _line(HEAD), _line(["---"] * len(HEAD))]
    lines += [_line(_cells(row)) for row in rows]
    for name, why in _reasons(rows).items():
        lines += ["", f"**{name}.** {why}"]
    return "\n".join(lines) + "\n"


def plain(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the report as plain values for JSON."""
    return [
        {
            "experiment": row.experiment,
            "substrate": row.substrate,
            "figure": row.what,
            "published": str(row.printed),
            "mean": fmean(row.samples),
            "least": min(row.samples),
            "greatest": max(row.samples),
            "seeds": len(row.samples),
            "scale": row.scale,
            "verdict": row.verdict.value,
            "because": "" if row.verdict is Verdict.reproduced else WHY.get(row.experiment, ""),
        }
        for row in rows
    ]


def summary(rows: Sequence[Row]) -> str:
    """Count the figures per verdict."""
    count = Counter(row.verdict for row in rows)
    parts = ", ".join(f"{count[verdict]} {verdict.value}" for verdict in Verdict)
    return f"{len(rows)} published figures: {parts}."


def _cells(row: Row) -> tuple[str, ...]:
    shown = row.printed.shown
    low, mean, high = (shown(value) for value in (min(row.samples), fmean(row.samples), max(row.samples)))
    ours = mean if low == high else f"{mean} ({low} to {high})"
    return (
        row.experiment,
        row.substrate,
        row.what,
        str(row.printed),
        ours,
        f"{len(row.samples)}{_scale(row)}",
        row.verdict.value,
    )


def _scale(row: Row) -> str:
    if row.scale == "full":
        return ""
    takes = FULL_TAKES.get(row.experiment)
    return ", small" if takes is None else f", small (full: {takes})"


def _reasons(rows: Sequence[Row]) -> dict[str, str]:
    off = dict.fromkeys(row.experiment for row in rows if row.verdict is not Verdict.reproduced)
    return {name: WHY[name] for name in off if name in WHY}


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
