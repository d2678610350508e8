"""Format claims as a table for the terminal."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from slicemill_lab.experiment import Result


def claims_table(title: str, result: Result) -> Table:
    table = Table("holds", "claim", "expected", "measured", "note", title=title)
    for claim in result.claims:
        measured = claim.measured if isinstance(claim.measured, str) else f"{claim.measured:.4g}"
        verdict = "[green]yes[/]" if claim.holds else "[red]no[/]"
        table.add_row(verdict, *map(escape, (claim.what, claim.expected, measured, claim.note)))
    return table
