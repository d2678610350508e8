"""Scripts: every statement bound in turn, every mistake reported, nothing of a broken statement kept."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from sqlglot import exp

from slicemill.esl.binder import definitions
from slicemill.esl.binder.aggregates import bind_aggregate
from slicemill.esl.binder.classifiers import bind_classifier
from slicemill.esl.binder.context import Context
from slicemill.esl.binder.functions.create import bind_function
from slicemill.esl.binder.problems import Mistakes, Unknowable
from slicemill.esl.syntax import nodes
from slicemill.esl.syntax.errors import Diagnostic, Mistake
from slicemill.esl.syntax.grammar import statements as grammar
from slicemill.esl.syntax.nodes import span_of
from slicemill.esl.syntax.source import SourceText, TextSpan
from slicemill.esl.types.catalog import Catalog, DroppedName, Statement

_DECLARATION = re.compile(
    r"\bCREATE\s+(?:(?:ALGEBRAIC|WINDOW)\s+)*(?:STREAM|TABLE|VIEW|QUERY|AGGREGATE|CLASSIFIER|MODEL|FUNCTION)\s+[\"`]?(\w+)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Bound:
    """What became of a script: its good statements with their places, the catalog, the mistakes."""

    source: SourceText
    statements: tuple[tuple[Statement, TextSpan], ...]
    catalog: Catalog
    diagnostics: tuple[Diagnostic, ...]


def bind_script(
    source: SourceText,
    catalog: Catalog | None = None,
    kept: Callable[[], Catalog] | None = None,
    *,
    imports: bool = True,
) -> Bound:
    """Parse and bind a text against a catalog, which stays as it is; `kept` can only be dropped.

    Without `imports` no code that the text names is run, and classes in Python are taken on trust.
    """
    known = catalog.copy() if catalog is not None else Catalog()
    parsed, diagnostics = grammar.script(source)
    left = cache(lambda: Catalog() if kept is None else kept().copy())
    context = Context(known, _unreadable_names(source, parsed), kept=left, imports=imports)
    bound: list[tuple[Statement, TextSpan]] = []
    for node in parsed:
        try:
            called: set[str] = set()
            statement = bind_statement(node, replace(context, functions_called=called))
        except Mistake as mistake:
            diagnostics.append(mistake.diagnostic)
        except Mistakes as mistakes:
            diagnostics.extend(mistakes.diagnostics)
        except Unknowable:
            pass
        else:
            known.add(statement, called)
            if isinstance(statement, DroppedName) and left.cache_info().currsize:
                left().add(statement)
            bound.append((statement, span_of(node)))
            continue
        if isinstance(node.this, exp.Identifier) and not isinstance(
            node, (nodes.DropObject, nodes.SetOption)
        ):
            # What uses this name cannot be judged; its own mistake has been told.
            context = replace(context, broken=context.broken | {node.this.name.lower()})
    return Bound(source, tuple(bound), known, tuple(diagnostics))


def _unreadable_names(source: SourceText, parsed: list[exp.Expression]) -> frozenset[str]:
    """Names that the text declares in statements which could not be read."""
    readable = {node.this.name.lower() for node in parsed if isinstance(node.this, exp.Identifier)}
    return frozenset(name.lower() for name in _DECLARATION.findall(source.text)) - readable


def bind_statement(node: exp.Expression, context: Context) -> Statement:
    if isinstance(node, nodes.CreateStream):
        return definitions.bind_stream(node, context)
    if isinstance(node, nodes.CreateTable):
        return definitions.bind_table(node, context)
    if isinstance(node, nodes.CreateView):
        return definitions.bind_view(node, context)
    if isinstance(node, nodes.CreateQuery):
        return definitions.bind_named_query(node, context)
    if isinstance(node, nodes.CreateClassifier):
        return bind_classifier(node, context)
    if isinstance(node, nodes.CreateModel):
        # The algebra of models takes as long to import as all the rest of the binder.
        from slicemill.esl.binder.models import bind_model

        return bind_model(node, context)
    if isinstance(node, nodes.CreateFunction):
        return bind_function(node, context)
    if isinstance(node, nodes.CreateAggregate):
        return bind_aggregate(node, context)
    if isinstance(node, nodes.DropObject):
        return definitions.bind_drop(node, context)
    if isinstance(node, nodes.SetOption):
        return definitions.bind_setting(node, context)
    return definitions.bind_bare_query(node, context)
