"""Parse CREATE CLASSIFIER.

CREATE CLASSIFIER name ON stream(feature, …), … [PARTITION BY key] LEARN class FROM table EVERY time
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp

from slicemill.sql.cursor import Cursor
from slicemill.sql.grammar import windows
from slicemill.sql.grammar.statements import options
from slicemill.sql.nodes import CreateObject, ExtensionNode, at, child
from slicemill.sql.printer import EslGenerator


class FeatureInput(ExtensionNode):
    """`stream(column, …)` in a classifier."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "columns": True}

    def esl(self, generator: EslGenerator) -> str:
        return f"{generator.sql(self, 'this')}({generator.listing(child(self, 'columns'))})"


class CreateClassifier(CreateObject):
    """CREATE CLASSIFIER. Without `key` there is a single task."""

    kind = "CLASSIFIER"
    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "inputs": True,
        "key": False,
        "label": True,
        "training": True,
        "every": True,
        "options": True,
    }

    def esl(self, generator: EslGenerator) -> str:
        sql, seg = generator.sql, generator.seg
        text = f"CREATE CLASSIFIER {sql(self, 'this')}{seg('ON')} {generator.listing(child(self, 'inputs'))}"
        if child(self, "key"):
            text += f"{seg('PARTITION BY')} {sql(self, 'key')}"
        text += f"{seg('LEARN')} {sql(self, 'label')} FROM {sql(self, 'training')}"
        options = f"WITH ({generator.listing(child(self, 'options'))})"
        return f"{text}{seg('EVERY')} {sql(self, 'every')}{seg(options)}"


def create_classifier(c: Cursor, name: exp.Identifier) -> CreateClassifier:
    """Parse a classifier after its name."""
    c.expect("ON")
    inputs = c.listing(lambda: _features(c))
    key = c.name("a column that all streams have") if c.accept("PARTITION", "BY") else None
    c.expect("LEARN")
    label = c.name("the column with the class")
    c.expect("FROM")
    training = c.name("a table of examples")
    c.expect("EVERY")
    every = windows.duration(c)
    c.expect("WITH")
    return CreateClassifier(
        this=name, inputs=inputs, key=key, label=label, training=training, every=every, options=options(c)
    )


def _features(c: Cursor) -> FeatureInput:
    start = c.span()
    stream = c.name("a stream")
    c.expect("(")
    columns = c.listing(lambda: c.name("a column"))
    c.expect(")")
    return at(FeatureInput(this=stream, columns=columns), c.span_from(start))
