"""README and docs: Python examples run, ESL examples bind, and links lead to files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slicemill.sql.dialect import parse

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "internals").glob("*.md")),
    *sorted((ROOT / "docs" / "spec").glob("*.md")),
]
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


@pytest.mark.parametrize(("where", "text"), blocks("sql") + blocks("esl"))
def test_every_esl_example_has_valid_syntax(where: str, text: str) -> None:
    assert parse(text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_every_file_named_in_a_walk_exists() -> None:
    walks = (ROOT / "docs" / "developing.md").read_text(encoding="utf-8").split("## Three walks")[1]
    files = re.findall(r"^\d+\. `([\w/]+\.py)`", walks, re.MULTILINE)
    assert len(files) > 30
    assert [file for file in files if not (ROOT / "src" / "slicemill" / file).exists()] == []


def test_the_table_of_packages_lists_exactly_the_existing_packages() -> None:
    page = (ROOT / "docs" / "developing.md").read_text(encoding="utf-8")
    table = set(re.findall(r"^\| `([\w/]+)` \|", page.split("`lab/` is")[0], re.MULTILINE))
    assert [room for room in sorted(table) if not (ROOT / "src" / "slicemill" / room).is_dir()] == []
    rooms = {path.parent.name for path in (ROOT / "src" / "slicemill").glob("*/__init__.py")}
    assert rooms - {room.split("/")[0] for room in table} == set()
