"""docs/gallery.md and its pictures, made from the scripts in examples/gallery.

python tests/support/gallery.py        # from the root, with tests on the path
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from slicemill.binder import bind
from slicemill.catalog.catalog import Catalog, Statement
from slicemill.extensions.models.cost import estimate
from slicemill.extensions.models.definition import ModelDefinition, ModelTemplate
from slicemill.extensions.models.drawing import model_svg
from slicemill.extensions.models.explain import models_named, uses_of
from slicemill.sql.errors import SourceText

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "examples" / "gallery"
PAGE = ROOT / "docs" / "gallery.md"
PICTURES = ROOT / "docs" / "pictures" / "gallery"
_HEAD = """# A gallery of models

This page shows thirty [models](model.md) from `examples/gallery`, each with its purpose, definition and
cost. *Kept* is what a window stores in addition to its elements. *Calls* are the calls of transforms and
accumulators for each new tuple with incremental updates. The last column counts the calls if the window is
recomputed. A picture shows the graph that runs. The command `python tests/support/gallery.py` generates this
page from the scripts. A test compares every model with NumPy.
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One model of a script, with what is said about it and how it is called."""

    words: str
    text: str
    call: str
    model: ModelDefinition
    catalog: Catalog


def entries(script: Path) -> Iterator[Entry]:
    """The models of a script; what is said of one stands in front of it, and a SELECT with it behind."""
    text = script.read_text(encoding="utf-8")
    bound = bind(SourceText(text, script.name))
    for (statement, span), (_, query) in zip(bound.statements, bound.statements[1:], strict=False):
        if isinstance(statement, ModelDefinition | ModelTemplate):
            said = re.findall(r"^-- (.*)$", text[: span.start].rpartition("\n\n")[2], re.MULTILINE)
            model = _one(statement, bound.catalog)
            call = text[query.start : query.end].rstrip(";")
            yield Entry(" ".join(said), text[span.start : span.end], call, model, bound.catalog)


def _one(statement: Statement, catalog: Catalog) -> ModelDefinition:
    """The model as it is called; of several results, the first."""
    return models_named(statement.name, catalog)[0]


def page() -> tuple[str, dict[str, str]]:
    """The text, and the pictures by their names."""
    parts, pictures = [_HEAD], {}
    for script in sorted(SCRIPTS.glob("*.esl")):
        parts.append(f"## {script.stem.capitalize()}\n")
        for entry in entries(script):
            found, use = entry.model.model.classification, uses_of(entry.model.name, entry.catalog)[0]
            cost = estimate(entry.model.model, use.n, use.d)
            name = re.match(r"\w+", entry.model.name)[0]  # type: ignore[index]
            pictures[f"{name}.svg"] = model_svg(entry.model.name, entry.model.model, use, compact=True)
            calls = f"{cost.incremental.calls} | {cost.blocking.calls}"
            parts.append(
                f"### {name}\n\n{entry.words}\n\n```sql\n{entry.text};\n{entry.call};\n```\n\n"
                f"| class | kept | calls | if read again |\n|---|---|---|---|\n"
                f"| {found.kind} | {found.state_text} | {calls} |\n\n"
                f"![The graph of {name}](pictures/gallery/{name}.svg)\n"
            )
    return "\n".join(parts), pictures


def main() -> None:
    text, pictures = page()
    PAGE.write_text(text, encoding="utf-8")
    PICTURES.mkdir(exist_ok=True)
    for old in PICTURES.glob("*.svg"):
        old.unlink()
    for name, picture in pictures.items():
        (PICTURES / name).write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
