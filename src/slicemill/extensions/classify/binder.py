"""Bind CREATE CLASSIFIER: features, training data and options."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from slicemill.binder.budgets import lag_us
from slicemill.binder.context import Context, ErrorCollector, is_finite, kind_name, view_of_a_stream
from slicemill.binder.create import refuse_taken_name
from slicemill.binder.functions import import_object, split_object_name
from slicemill.binder.windows import duration_us
from slicemill.catalog.catalog import Relation, Stream, Table, TimestampKind, View
from slicemill.catalog.queries import RelationQuery, SelectQuery, UnionQuery
from slicemill.errors import did_you_mean, one_of
from slicemill.extensions.classify.definition import POLICIES, Classifier, ClassifierOptions, Features
from slicemill.extensions.classify.grammar import CreateClassifier, FeatureInput
from slicemill.sql import nodes
from slicemill.sql.errors import StatementError
from slicemill.sql.nodes import child, span_of
from slicemill.types import DOUBLE, INT, TIMESTAMP, Column, Schema, is_numeric

# Lowest and highest value of each numeric option
_NUMBERS: Mapping[str, tuple[int, int]] = {
    "capacity": (1, 10**9),
    "bins": (2, 1000),
    "samples": (1, 10_000),
    "lags": (0, 100),
    "window": (1, 10**9),
    "seed": (0, 2**63 - 1),
}
_OPTIONS = ("capacity", "policy", "observe", "lag", *(name for name in _NUMBERS if name != "capacity"))
_RESULT = (Column("time", TIMESTAMP), Column("risk", DOUBLE), Column("observed", INT))


def bind_classifier(node: CreateClassifier, context: Context) -> Classifier:
    refuse_taken_name(node.this, context)
    problems = ErrorCollector()
    training: Relation | None = None
    with problems.collect():
        training = _training(child(node, "training"), context)
    inputs: list[tuple[Features, Relation]] = []
    features: dict[str, exp.Identifier] = {}
    for entry in child(node, "inputs"):
        with problems.collect():
            inputs.append(_features(entry, context, features, numeric=not _observes(node)))
    problems.raise_any()
    assert training is not None
    label, key = child(node, "label"), child(node, "key")
    key_column: Column | None = None
    with problems.collect():
        label_column = _column(label, training)
    for feature in features.values():
        with problems.collect():
            _numeric(feature, training)
    if key is not None:
        with problems.collect():
            key_column = _key(key, [relation for _, relation in inputs], training)
    every_us = 0
    with problems.collect():
        every_us = duration_us(child(node, "every"))
        if every_us <= 0:
            raise StatementError("a time unit must be longer than 0", span_of(child(node, "every")))
    options = ClassifierOptions(1)
    with problems.collect():
        options = _options(child(node, "options"), node, context)
    problems.raise_any()
    time, risk, observed = _RESULT
    keys = () if key_column is None else (key_column,)
    return Classifier(
        node.this.name,
        tuple(entry for entry, _ in inputs),
        None if key_column is None else key_column.name,
        label_column.name,
        training.name,
        every_us,
        options,
        Schema((*keys, time, Column("class", label_column.type), risk, observed)),
    )


def _training(identifier: exp.Identifier, context: Context) -> Relation:
    relation = context.relation(identifier)
    if isinstance(relation, (Table, View)) and view_of_a_stream(relation, context.catalog) is None:
        return relation
    raise StatementError(
        f"a classifier learns from a table, and {identifier.name} is not a table",
        span_of(identifier),
        "declare them with CREATE TABLE … SOURCE 'examples.csv'",
    )


def _observes(node: CreateClassifier) -> bool:
    """Return True if the statement has the option `observe`, a function of features of any type."""
    return any(option.this.name.lower() == "observe" for option in child(node, "options"))


def _features(
    node: FeatureInput, context: Context, known: dict[str, exp.Identifier], numeric: bool
) -> tuple[Features, Relation]:
    """Bind the feature columns of one stream. `known` has the features of all streams bound so far."""
    relation = context.relation(node.this)
    assert not isinstance(relation, (RelationQuery, SelectQuery, UnionQuery)), (
        "nothing is local to a classifier"
    )
    if is_finite(relation):
        kind = kind_name(relation)
        raise StatementError(
            f"features are columns of streams, and {node.this.name} is a {kind}", span_of(node.this)
        )
    if relation.schema.changelog:
        raise StatementError(
            f"{node.this.name} is a changelog, and a classifier reads streams whose rows do not change",
            span_of(node.this),
            f"end the SELECT of {node.this.name} with EMIT FINAL",
        )
    if isinstance(relation, Stream) and relation.kind is TimestampKind.LATENT:
        raise StatementError(
            f"{relation.name} has no timestamps, which a classifier needs for its time units",
            span_of(node.this),
            "declare it with ORDER BY and a timestamp column, or ORDER BY current_time",
        )
    problems, columns = ErrorCollector(), []
    for identifier in child(node, "columns"):
        with problems.collect():
            column = _numeric(identifier, relation) if numeric else _column(identifier, relation)
            if column.name.lower() in known:
                raise StatementError(
                    f"{column.name} is already a feature of this classifier",
                    span_of(identifier),
                    "features need different names: rename one in a CREATE STREAM … AS SELECT",
                )
            known[column.name.lower()] = identifier
            columns.append(column.name)
    problems.raise_any()
    return Features(relation.name, tuple(columns)), relation


def _column(identifier: exp.Identifier, relation: Relation) -> Column:
    column = relation.schema.find(identifier.name)
    if column is None:
        hint = did_you_mean(identifier.name, relation.schema.names)
        hint = hint or f"its columns are {', '.join(relation.schema.names)}"
        raise StatementError(f"{relation.name} has no column {identifier.name}", span_of(identifier), hint)
    return column


def _numeric(identifier: exp.Identifier, relation: Relation) -> Column:
    column = _column(identifier, relation)
    if not is_numeric(column.type):
        raise StatementError(
            f"a feature is a number, and {relation.name}.{column.name} is {column.type}",
            span_of(identifier),
            "compute a number of it in a CREATE STREAM … AS SELECT, or with observe = 'module:function'",
        )
    return column


def _key(identifier: exp.Identifier, streams: list[Relation], training: Relation) -> Column:
    columns = [_column(identifier, relation) for relation in (*streams, training)]
    for relation, column in zip((*streams, training), columns, strict=True):
        if column.type.kind is not columns[0].type.kind:
            first = f"{columns[0].type} in {streams[0].name}"
            raise StatementError(
                f"{column.name} is {first} and {column.type} in {relation.name}",
                span_of(identifier),
                "the key column must have the same type in all streams and in the table",
            )
    taken = ("class", *(column.name for column in _RESULT))
    if columns[0].name.lower() in taken:
        raise StatementError(
            f"the result of a classifier has its own column {columns[0].name.lower()}",
            span_of(identifier),
            "rename the key in a CREATE STREAM … AS SELECT",
        )
    return columns[0]


def _options(option_nodes: list[nodes.Option], node: CreateClassifier, context: Context) -> ClassifierOptions:
    given: dict[str, int | str] = {}
    for option in option_nodes:
        name = option.this.name.lower()
        if name not in _OPTIONS:
            hint = did_you_mean(name, _OPTIONS) or f"the options are {one_of(_OPTIONS)}"
            raise StatementError(f"a classifier has no option {name}", span_of(option), hint)
        if name in given or (name == "lag" and "lag_us" in given):
            raise StatementError(f"{name} is given twice", span_of(option))
        if name == "observe":
            given[name] = _function(option, context)
        elif name == "lag":
            given["lag_us"] = lag_us(str(child(option, "value").name), option)
        else:
            given[name] = _policy(option) if name == "policy" else _number(name, option)
    if "capacity" not in given:
        raise StatementError(
            "a classifier needs the option capacity, the number of values observed per time unit",
            span_of(node.this),
            "add capacity = 10 to WITH",
        )
    return ClassifierOptions(**given)  # type: ignore[arg-type]


def _function(option: nodes.Option, context: Context) -> str:
    literal = child(option, "value")
    module, name = split_object_name(
        literal, "a function is named module:function", "observe = 'cameras:brightness'"
    )
    if context.imports and not callable(import_object(literal, module, name)):
        raise StatementError(f"{literal.name} is not a function", span_of(literal))
    return str(literal.name)


def _policy(option: nodes.Option) -> str:
    name = str(child(option, "value").name).lower()
    if name not in POLICIES:
        hint = did_you_mean(name, POLICIES) or f"the policies are {one_of(POLICIES)}"
        raise StatementError(f"there is no policy {name}", span_of(option), hint)
    return name


def _number(name: str, option: nodes.Option) -> int:
    text, (least, greatest) = str(child(option, "value").name), _NUMBERS[name]
    if not text.isdigit() or not least <= int(text) <= greatest:
        raise StatementError(f"{name} is an integer from {least} to {greatest}", span_of(option))
    return int(text)
