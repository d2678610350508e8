"""Binding context: catalog, names local to a statement, and warnings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from slicemill.errors import did_you_mean, one_of
from slicemill.esl.binder.problems import Unknowable
from slicemill.esl.syntax.errors import Diagnostic, Mistake
from slicemill.esl.syntax.nodes import span_of
from slicemill.esl.syntax.source import TextSpan
from slicemill.esl.types.catalog import Catalog, DerivedStream, Relation, Stream, Table, View, relations_of
from slicemill.esl.types.classifier import Classifier
from slicemill.esl.types.query import Continuous
from slicemill.esl.types.relation import RelationQuery
from slicemill.esl.types.schema import Schema

KIND_NAMES = {
    Stream: "stream",
    DerivedStream: "stream",
    Classifier: "classifier",
    Table: "table",
    View: "view",
}


@dataclass(frozen=True, slots=True)
class Context:
    """Names that a statement can use, and collectors for what binding finds.

    `local` holds WITH definitions. `broken` holds names whose declaration has an error that is already
    reported. `kept` returns the objects that a home has stored and this text has not declared again.
    `in_body` is set inside the body of an aggregate, which must be deterministic. Unless `imports` is set,
    modules that a text names are not imported, because importing them runs their code.

    `functions_called` collects user-defined functions, which the bound statement does not name any more.
    `warnings` collects constructs that are probably not meant as written, `stars` the columns of each *.
    `later` counts, by name, the declarations that follow in the same text.
    """

    catalog: Catalog
    broken: frozenset[str] = frozenset()
    local: dict[str, Continuous | RelationQuery] = field(default_factory=dict)
    kept: Callable[[], Catalog] = Catalog
    in_body: bool = False
    imports: bool = True
    functions_called: set[str] = field(default_factory=set)
    warnings: list[Diagnostic] = field(default_factory=list)
    later: Mapping[str, int] = field(default_factory=dict)
    stars: dict[TextSpan, tuple[exp.Column, ...]] = field(default_factory=dict)

    def warn(self, message: str, span: TextSpan, hint: str) -> None:
        warning = Diagnostic(message, span, hint, warning=True)
        if warning not in self.warnings:  # some queries are bound twice
            self.warnings.append(warning)

    def refuse_later(self, name: str, span: TextSpan) -> None:
        """Raise if an unknown name is declared later in the same text."""
        if self.later.get(name.lower(), 0) > 0:
            raise Mistake(f"{name} is declared further down", span, "move its declaration up, before this")

    def with_local(self, name: str, query: Continuous | RelationQuery) -> Context:
        return replace(self, local={**self.local, name.lower(): query})

    def relation(self, identifier: exp.Identifier) -> Relation | Continuous | RelationQuery:
        name = identifier.name.lower()
        if name in self.local:
            return self.local[name]
        found = self.catalog.relation(name)
        if found is not None:
            return found
        if name in self.broken:
            raise Unknowable
        self.refuse_later(identifier.name, span_of(identifier))
        names = [relation.name for relation in self.catalog.relations.values()]
        hint = did_you_mean(identifier.name, [*names, *self.local])
        if name in self.catalog.queries:
            hint = (
                f"{identifier.name} is a query; to read its results here, declare it as a stream: "
                f"CREATE STREAM {identifier.name} AS SELECT …"
            )
        elif not hint:
            hint = f"known are {one_of(names)}" if names else "declare it with CREATE STREAM first"
        raise Mistake(f"there is no stream or table {identifier.name}", span_of(identifier), hint)


def schema_of(relation: Relation | Continuous | RelationQuery) -> Schema:
    return relation.schema


def is_finite(relation: Relation | Continuous | RelationQuery) -> bool:
    return isinstance(relation, (Table, View, RelationQuery))


def view_of_a_stream(relation: Relation | Continuous | RelationQuery, catalog: Catalog) -> View | None:
    """Return the view over a stream that a relation reads, if any."""
    query = relation.query if isinstance(relation, View) else relation
    if isinstance(relation, View) and not isinstance(query, RelationQuery):
        return relation
    if isinstance(query, RelationQuery):
        for name in relations_of(query):
            inner = catalog.relation(name)
            found = None if inner is None else view_of_a_stream(inner, catalog)
            if found is not None:
                return found
    return None
