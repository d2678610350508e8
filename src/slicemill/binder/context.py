"""Context of binding: catalog, names local to a statement, and warnings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from sqlglot import exp

from slicemill.catalog.argument_range import ArgumentRange
from slicemill.catalog.catalog import Catalog, DerivedStream, Relation, Stream, Table, View, relations_of
from slicemill.catalog.expressions import Expr, Literal
from slicemill.catalog.extended import ComputedStream
from slicemill.catalog.queries import Continuous, RelationQuery
from slicemill.errors import did_you_mean, one_of
from slicemill.secrets import HINT, contains_secret
from slicemill.sql import nodes
from slicemill.sql.dialect import to_esl
from slicemill.sql.errors import Diagnostic, StatementError, TextSpan
from slicemill.sql.nodes import child, span_of
from slicemill.types import Schema

_KIND_NAMES = {
    Stream: "stream",
    DerivedStream: "stream",
    Table: "table",
    View: "view",
}


def kind_name(relation: Relation) -> str:
    """Return the kind of a relation, such as `stream` or `view`."""
    return relation.kind.lower() if isinstance(relation, ComputedStream) else _KIND_NAMES[type(relation)]


@dataclass(frozen=True, slots=True)
class Context:
    """Context of binding a statement: visible names, and collectors of warnings.

    `local` holds WITH definitions. `broken` holds names whose declaration has an error that is already
    reported. `kept` returns the objects that the home directory has stored and this text has not declared
    again. `in_body` is set inside the body of an aggregate, which must be deterministic. Without `imports`,
    the Python modules that a text names are not imported, because an import runs their code.

    `functions_called` collects user-defined functions, because the bound statement has only their inlined
    bodies. `warnings` collects warnings, and `stars` the columns of each *. `later` counts, by name, the
    declarations that follow in the same text.
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
        if warning not in self.warnings:  # a query that is bound twice causes a warning twice
            self.warnings.append(warning)

    def refuse_later(self, name: str, span: TextSpan) -> None:
        """Raise an error if an unknown name is declared later in the same text."""
        if self.later.get(name.lower(), 0) > 0:
            raise StatementError(
                f"{name} is declared later in this text", span, "move its declaration before this statement"
            )

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
            raise BrokenDependency
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
        raise StatementError(f"there is no stream or table {identifier.name}", span_of(identifier), hint)


def schema_of(relation: Relation | Continuous | RelationQuery) -> Schema:
    return relation.schema


def is_finite(relation: Relation | Continuous | RelationQuery) -> bool:
    return isinstance(relation, (Table, View, RelationQuery))


def view_of_a_stream(relation: Relation | Continuous | RelationQuery, catalog: Catalog) -> View | None:
    """Return the view over a stream that a relation reads, or None."""
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


# Collection of errors, so that a statement can report all its errors


class StatementErrors(Exception):
    """Errors of one statement, if there are several."""

    def __init__(self, diagnostics: list[Diagnostic]) -> None:
        super().__init__(f"{len(diagnostics)} mistakes")
        self.diagnostics = diagnostics


class ErrorCollector:
    """Collector of the errors in a statement.

    `raise_any` raises all collected errors together.

    >>> problems = ErrorCollector()
    >>> from slicemill.sql.errors import TextSpan
    >>> with problems.collect():
    ...     raise StatementError("no such column", TextSpan(0, 1))
    >>> [d.message for d in problems.diagnostics]
    ['no such column']
    """

    def __init__(self) -> None:
        self.diagnostics: list[Diagnostic] = []
        self.silenced = False

    @contextmanager
    def collect(self) -> Iterator[None]:
        try:
            yield
        except StatementError as mistake:
            self.diagnostics.append(mistake.diagnostic)
        except StatementErrors as mistakes:
            self.diagnostics.extend(mistakes.diagnostics)
        except BrokenDependency:
            self.silenced = True

    def raise_any(self) -> None:
        if self.diagnostics:
            raise StatementErrors(self.diagnostics)
        if self.silenced:
            raise BrokenDependency


class BrokenDependency(Exception):
    """Raised if a statement depends on a declaration that has an error."""


# Check of constant arguments against the ranges that functions declare


def check_constant(
    name: str, range_: ArgumentRange | None, argument: Expr, node: exp.Expression, hint: str = ""
) -> None:
    """Reject a constant argument that is out of range.

    NULL is accepted, because the result of the call is then NULL.
    """
    value = argument.value if isinstance(argument, Literal) else None
    if range_ is not None and value is not None and not range_.takes(value):
        said = f"{name} wants {range_.words} here, this is {to_esl(node)}"
        raise StatementError(said, span_of(node), hint or range_.hint(value))


# Rejection of passwords in statements
#
# Statements are stored, listed and copied into support bundles, so they must not contain passwords.


def passwords_in(statement: exp.Expression) -> Iterator[Diagnostic]:
    """Yield an error for each source, sink or option with a password."""
    for node in statement.find_all(nodes.SourceClause, nodes.Option):
        name, value = "source", child(node, "url")
        if isinstance(node, nodes.Option):
            name, value = node.this.name, child(node, "value")
            if name.lower() != "sink" and node.find_ancestor(nodes.SourceClause) is None:
                continue  # the option belongs to a query, not to its sink or source
        if isinstance(value, exp.Literal) and contains_secret(value.name, name):
            what = name if name.lower() in ("sink", "source") else f"option {name}"
            message = f"the {what} contains a password, which a statement would show"
            yield Diagnostic(message, span_of(value), HINT)
