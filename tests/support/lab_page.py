"""Writes the table of published figures into docs/lab.md, from the results that are kept.

python tests/support/lab_page.py
"""

from __future__ import annotations

from pathlib import Path

from slicemill_lab.published import kept, report
from slicemill_lab.registry import experiment_ids

PAGE = Path(__file__).parents[2] / "docs" / "lab.md"
BEGIN, END = "<!-- slicemill lab report --markdown -->\n", "<!-- end -->\n"


def renewed(page: str) -> str:
    before, rest = page.split(BEGIN)
    return before + BEGIN + report.markdown(kept.rows(experiment_ids())) + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
