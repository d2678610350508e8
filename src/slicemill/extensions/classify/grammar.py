"""Parse CREATE CLASSIFIER.

CREATE CLASSIFIER name ON stream(feature, …), … [PARTITION BY key] LEARN class FROM table EVERY time
"""

from __future__ import annotations

from sqlglot import exp

from slicemill.sql import nodes
from slicemill.sql.cursor import Cursor
from slicemill.sql.grammar import windows
from slicemill.sql.nodes import at


def create_classifier(c: Cursor, name: exp.Identifier) -> nodes.CreateClassifier:
    """Parse a classifier up to its options."""
    c.expect("ON")
    inputs = c.listing(lambda: _features(c))
    key = c.name("a column that all streams have") if c.accept("PARTITION", "BY") else None
    c.expect("LEARN")
    label = c.name("the column with the class")
    c.expect("FROM")
    training = c.name("a table of examples")
    c.expect("EVERY")
    return nodes.CreateClassifier(
        this=name, inputs=inputs, key=key, label=label, training=training, every=windows.duration(c)
    )


def _features(c: Cursor) -> nodes.FeatureInput:
    start = c.span()
    stream = c.name("a stream")
    c.expect("(")
    columns = c.listing(lambda: c.name("a column"))
    c.expect(")")
    return at(nodes.FeatureInput(this=stream, columns=columns), c.span_from(start))
