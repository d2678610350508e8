"""Hooks for extensions: statements, aggregates, operators, and sections of EXPLAIN.

An extension is an `Extension` that a distribution names in the entry-point group `slicemill.extensions`:

    [project.entry-points."slicemill.extensions"]
    models = "slicemill.extensions.models.registration:EXTENSION"

Hooks name their functions and classes as `module:attribute`. A function or class is imported when it is first
used, so an installed extension costs nothing until a script uses it. The module of the `Extension` imports
only this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from slicemill.errors import SlicemillError

GROUP = "slicemill.extensions"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementHook:
    """Hook for a statement `CREATE kind name …`, with DROP and SHOW.

    | field | meaning |
    |---|---|
    | `kind`, `plural` | keywords, as in CREATE MODEL and SHOW MODELS |
    | `parse` | `(Cursor, name: Identifier) -> CreateObject`, which parses the text after the name |
    | `bind` | `(CreateObject, Context) -> ComputedStream or CalledDefinition` |
    | `called` | True if queries call the object like an aggregate; otherwise it is a stream |
    | `replaceable` | True if CREATE OR REPLACE is allowed |
    | `explain` | `(name, Catalog, format) -> str` for `explain --<kind> name`: text, json or svg |
    """

    kind: str
    plural: str
    parse: str
    bind: str
    called: bool = False
    replaceable: bool = False
    explain: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateProvider:
    """Provider of functions that queries call like aggregates.

    A `Formula` in the catalog names its provider. Only `accumulator` is required. It evaluates calls row by
    row.

    | field | meaning |
    |---|---|
    | `kind` | object type of the definitions in DROP, as in DROP MODEL |
    | `accumulator` | `(AggregateDefinition) -> accumulator` of its base or window version |
    | `names`, `predefined` | names that need no declaration, and `(name) -> CalledDefinition` for them |
    | `check` | `(AggregateDefinition, windows, node, *, over, grouped)`, raises StatementError for a window
    |
    | `check_table` | `(AggregateDefinition, node)`, which raises StatementError for the rows of a table |
    | `code` | `(Version) -> AggregateCode`, which writes the loops of the UDA compiler |
    | `imports` | import lines of the generated module |
    | `finite` | True if NaN and infinite arguments are NULL |
    | `joint` | `(AggregateDefinition, arguments) -> JointCall`, if calls over one window share state |
    """

    kind: str
    accumulator: str
    names: str | None = None
    predefined: str | None = None
    check: str | None = None
    check_table: str | None = None
    code: str | None = None
    imports: tuple[str, ...] = ()
    finite: bool = False
    joint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteHook:
    """Hook for an optimizer rule, `(QueryGraph, Catalog) -> QueryGraph`.

    The rule is applied `before` the named rule of the core, or after all rules of the core.
    """

    rule: str
    before: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorHook:
    """Hook for operators, with their optimizer rules and state classes for checkpoints.

    | field | meaning |
    |---|---|
    | `kinds` | tuple of OperatorKind |
    | `rewrites` | rules of the optimizer |
    | `states` | modules that register state classes when they are imported |
    | `twins` | map of operator class to `(operator, StepContext) -> RowOperator`, for the reference engine |
    """

    kinds: str
    rewrites: tuple[RewriteHook, ...] = ()
    states: tuple[str, ...] = ()
    twins: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainSection:
    """Hook for a section of EXPLAIN.

    `lines` is `(QueryGraph) -> list of str`. An empty list hides the section.
    """

    title: str
    lines: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveValues:
    """Hook for values of running queries that the console shows, such as model parameters.

    `read` is `(home, query or None) -> list of dict`.
    """

    name: str
    read: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandHook:
    """Hook for a command `slicemill name`.

    `function` declares the options of the command as Typer annotations.
    """

    name: str
    function: str
    epilog: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """All hooks of one extension.

    `routes` name functions `(FastAPI, MillService) -> None`, which add HTTP routes for the console.
    """

    statements: tuple[StatementHook, ...] = ()
    aggregates: tuple[AggregateProvider, ...] = ()
    operators: tuple[OperatorHook, ...] = ()
    sections: tuple[ExplainSection, ...] = ()
    live_values: tuple[LiveValues, ...] = ()
    routes: tuple[str, ...] = ()
    commands: tuple[CommandHook, ...] = ()


@cache
def load(name: str) -> Any:
    """Import the function or class that a hook names as `module:attribute`."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


@cache
def extensions() -> Mapping[str, Extension]:
    """Return the installed extensions by name, in alphabetical order."""
    points = sorted({(point.name, point.value) for point in entry_points(group=GROUP)})
    found: dict[str, Extension] = {}
    for name, value in points:
        try:
            made = load(value)
        except (ImportError, AttributeError) as error:
            raise SlicemillError(
                f"extension {name} cannot be loaded: {error}; reinstall or remove it"
            ) from None
        if not isinstance(made, Extension):
            raise SlicemillError(f"extension {name}: {value} is no Extension; reinstall or remove it")
        if name in found:
            raise SlicemillError(f"two distributions have an extension {name}; remove one of them")
        found[name] = made
    return found


@cache
def statements() -> Mapping[str, StatementHook]:
    """Return the statement hooks of all extensions by kind, such as MODEL."""
    found: dict[str, StatementHook] = {}
    for name, extension in extensions().items():
        for hook in extension.statements:
            if hook.kind in found:
                raise SlicemillError(
                    f"extension {name}: CREATE {hook.kind} exists already; remove one of both"
                )
            found[hook.kind] = hook
    return found


@cache
def called_kinds() -> frozenset[str]:
    """Return the kinds of extensions' objects that queries call like an aggregate."""
    return frozenset(("AGGREGATE", *(hook.kind for hook in statements().values() if hook.called)))


@cache
def computed_kinds() -> frozenset[str]:
    """Return the kinds of extensions' objects whose rows the engine computes."""
    return frozenset(("QUERY", "STREAM", *(hook.kind for hook in statements().values() if not hook.called)))


@cache
def predefined_names() -> Mapping[str, AggregateProvider]:
    """Return the providers of all names that can be called without a declaration."""
    providers = [provider for extension in extensions().values() for provider in extension.aggregates]
    return {name: provider for provider in providers if provider.names for name in load(provider.names)}


def sections(graph: object) -> dict[str, list[str]]:
    """Return the lines of extensions' sections of EXPLAIN by title."""
    hooks = [section for extension in extensions().values() for section in extension.sections]
    return {hook.title: lines for hook in hooks if (lines := load(hook.lines)(graph))}


@cache
def live_values() -> tuple[LiveValues, ...]:
    """Return the hooks of all extensions for values of running queries."""
    return tuple(values for extension in extensions().values() for values in extension.live_values)


@cache
def commands() -> Mapping[str, CommandHook]:
    """Return the commands of all extensions by name."""
    return {hook.name: hook for extension in extensions().values() for hook in extension.commands}
