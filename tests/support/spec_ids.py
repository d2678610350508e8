"""Ids of the specs: which the pages in docs/spec define, and which the sources, tests and docs use.

    python tests/support/spec_ids.py            # ids that no page defines, with the files that use them
    python tests/support/spec_ids.py --write    # make the tables "Where each item is" anew

Ids are looked for where people write: docstrings, comments, pages; not in doctests and code blocks.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "docs" / "spec"
PACKAGES = (
    ROOT / "src" / "slicemill",
    ROOT / "oracle" / "src" / "slicemill_oracle",
    ROOT / "lab" / "src" / "slicemill_lab",
)
WHERE = "## Where each item is"
SHOWN = "For each item, the table lists the modules whose docstrings or comments name the item (at most six)."
MOST_MODULES = 6

_DEFINED = re.compile(r'<a id="([\w-]+)"></a>')
_ITEM = re.compile(r'<a id="([MSPCL]\d+)"></a>\*\*(.*?)(?=\n\n|\Z)', re.DOTALL)
_USED = re.compile(
    r"(?<![\w/.$-])(?P<prefix>(?:mill|slice|sched|shed|model)-)?(?P<letter>[MSPCLGXAET])(?P<first>\d{1,2})"
    r"(?:[-–](?P=letter)(?P<last>\d{1,2}))?(?![\w.]*[\w])"
)
_MODULE = re.compile(r"`((?:[a-z_]+/)+(?:[a-z_0-9]+\.py)?)`")

# Items that are everywhere, so that no module names them.
EVERYWHERE = {
    "M28": ("binder/queries.py", "plan/build.py"),
    "P1": ("plan/tasks.py",),
    "P17": ("scheduling/chooser.py",),
    "L1": ("ingest/intake.py",),
    "L2": ("operators/temporal/",),
}


def defined_ids() -> set[str]:
    """All ids with an anchor; those with a page's prefix stand for the bare id too."""
    found = {name for page in SPEC.glob("*.md") for name in _DEFINED.findall(page.read_text())}
    return found | {name.partition("-")[2] for name in found if "-" in name}


def used_ids(path: Path) -> set[str]:
    """The ids that the prose of a file names; of a range, all of them."""
    found: set[str] = set()
    for text in _prose(path):
        for match in _USED.finditer(text):
            first = int(match["first"])
            for number in range(first, int(match["last"] or first) + 1):
                found.add(f"{match['prefix'] or ''}{match['letter']}{number}")
    return found


def _prose(path: Path) -> Iterator[str]:
    text = path.read_text()
    if not _USED.search(text):
        return
    if path.suffix == ".md":
        yield re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
    elif path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = (ast.get_docstring(node) or "").splitlines()
                yield "\n".join(line for line in lines if not line.lstrip().startswith((">>>", "...")))
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.string
    else:
        yield "\n".join(line for line in text.splitlines() if line.lstrip().startswith(("#", "--")))


def files_with_ids() -> list[Path]:
    folders = [*PACKAGES, ROOT / "tests", ROOT / "docs", ROOT / "examples"]
    kinds = (".py", ".md", ".test", ".esl")
    found = [p for folder in folders for p in sorted(folder.rglob("*")) if p.suffix in kinds]
    return [path for path in found if SPEC not in path.parents]


def unknown_ids() -> list[str]:
    """`file: id` for each id that is used and defined nowhere."""
    known = defined_ids()
    return [
        f"{path.relative_to(ROOT)}: {name}"
        for path in files_with_ids()
        for name in sorted(used_ids(path) - known)
    ]


def modules_named() -> list[tuple[Path, str]]:
    """The modules that the pages name, as paths inside a package."""
    return [(page, name) for page in sorted(SPEC.glob("*.md")) for name in _MODULE.findall(page.read_text())]


def is_module(name: str) -> bool:
    """Return True for a module or package of the product, or one of the oracle or lab with its package."""
    return any((folder / name).exists() for folder in (PACKAGES[0], *(p.parent for p in PACKAGES[1:])))


def items_of(page: Path) -> dict[str, bool]:
    """The items of a page, and whether its text says that they are built."""
    found = _ITEM.findall(page.read_text())
    return {name: "not built" not in " ".join(text.lower().split()) for name, text in found}


def _users() -> dict[str, list[str]]:
    """The modules that name an item: first those whose docstring does, those of the product before others."""
    users: defaultdict[str, list[tuple[bool, bool, str]]] = defaultdict(list)
    for package in PACKAGES:
        for path in sorted(package.rglob("*.py")):
            first = ast.get_docstring(ast.parse(path.read_text())) or ""
            head = {f"{m['letter']}{m['first']}" for m in _USED.finditer(first)}
            inside = path.relative_to(package if package.name == "slicemill" else package.parent)
            shown = f"{inside.parent}/" if path.stem == "__init__" else str(inside)
            for name in used_ids(path) if inside.parent != Path() else ():
                users[name].append(
                    (name not in head, shown.startswith(("slicemill_oracle/", "slicemill_lab/")), shown)
                )
    return {name: [module for *_, module in sorted(found)] for name, found in users.items()}


def write_where() -> None:
    users = _users()
    for page in sorted(SPEC.glob("*.md")):
        items = items_of(page)
        if not items:
            continue
        rows = [WHERE, "", SHOWN, "", "| item | modules |", "|---|---|"]
        for name, built in items.items():
            modules = users.get(name) or EVERYWHERE.get(name, ())
            shown = ", ".join(f"`{module}`" for module in modules[:MOST_MODULES])
            rows.append(f"| {name} | {shown if built else 'not built'} |")
        text = page.read_text().partition(WHERE)[0].rstrip()
        page.write_text("\n".join([text, "", *rows]) + "\n")


if __name__ == "__main__":
    if "--write" in sys.argv:
        write_where()
    print("\n".join(unknown_ids()) or "every id is defined")
