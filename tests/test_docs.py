"""What README and docs show is true: Python examples run, ESL examples bind, links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slicemill.esl.syntax.dialect import parse

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[tuple[str, str]]:
    return [
        (f"{page.name} {number}", match[2])
        for page in PAGES
        for number, match in enumerate(BLOCK.finditer(page.read_text(encoding="utf-8")), 1)
        if match[1] == language
    ]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("where", "text"), blocks("python"))
def test_every_python_example_runs(where: str, text: str) -> None:
    exec(compile(text, where, "exec"), {})


@pytest.mark.parametrize(("where", "text"), blocks("sql"))
def test_every_esl_example_is_good_syntax(where: str, text: str) -> None:
    assert parse(text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
