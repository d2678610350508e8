"""`slicemill explain`: show the plan of a script, or details of a query, aggregate or model."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slicemill.cli.common import File, read
from slicemill.errors import SlicemillError
from slicemill.extension import load, statements

if TYPE_CHECKING:
    from slicemill.catalog.catalog import Catalog
    from slicemill.operators.graph import QueryGraph
    from slicemill.sql.errors import SourceText


class Format(StrEnum):
    text = "text"
    json = "json"
    svg = "svg"
    mermaid = "mermaid"
    dot = "dot"


def explain(
    file: File,
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            help="Output format: text, json, svg (drawing), mermaid (for Markdown) or dot (for Graphviz).",
        ),
    ] = Format.text,
    query: Annotated[
        str | None, typer.Option(help="Show only the plan of this query or derived stream.")
    ] = None,
    uda: Annotated[
        str | None,
        typer.Option(help="Show how calls of this user-defined aggregate run, with the generated code."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Show state and cost of this model, or with --format svg its graph.")
    ] = None,
    home: Annotated[
        Path | None, typer.Option(help="Estimate costs with the measurements in this home directory.")
    ] = None,
    subtasks: Annotated[
        int,
        typer.Option(
            min=1, max=1 << 16, metavar="N", help="Maximum number of subtasks (parallel instances) of a task."
        ),
    ] = 8,
    changes: Annotated[
        bool, typer.Option("--changes", help="What the script would start, change and end in the home.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file instead of standard output.")
    ] = None,
) -> None:
    """Show the plan of a script: streams, operators and tasks, with shared operators."""
    from slicemill.binder import bind
    from slicemill.plan.build import build_graph
    from slicemill.plan.optimizer import optimize, share
    from slicemill.plan.overlapping_joins import NOTHING_RUNS, merge_overlapping_joins
    from slicemill.plan.tasks import split_into_tasks

    if changes:
        _write(_explained_changes(read(file), home), output)
        return
    catalog = bind(read(file)).catalog
    if uda is not None:
        from slicemill.explain.aggregates import explain_uda

        typer.echo(explain_uda(uda, catalog))
        return
    if model is not None:
        _write(_explained_object("MODEL", model, catalog, form), output)
        return
    graph, placed = share(optimize(build_graph(catalog)), catalog), NOTHING_RUNS
    if home is not None:
        from slicemill.lifecycle.task_fields import query_placements
        from slicemill.storage.home_reader import HomeReader

        placed = query_placements(HomeReader(home).tasks)
    graph, _ = merge_overlapping_joins(graph, split_into_tasks(graph), placed)
    if home is not None:
        from slicemill.runtime.state_view import with_measures

        graph = with_measures(graph, home)
    if query is not None:
        graph = _query_subgraph(graph, query)
    _write(_render_graph(graph, form, subtasks, home), output)


def _explained_changes(script: SourceText, home: Path | None) -> str:
    from slicemill.lifecycle.catalog_diff import predict_changes
    from slicemill.storage.home_reader import HomeReader

    if home is None:
        raise SlicemillError("--changes compares a script with a home; give --home FOLDER")
    return str(predict_changes(script, HomeReader(home)))


def _render_graph(graph: QueryGraph, form: Format, subtasks: int, home: Path | None) -> str:
    if form is Format.svg:
        from slicemill.explain.svg import explain_svg

        return explain_svg(graph)
    if form in (Format.mermaid, Format.dot):
        from slicemill.explain.diagrams import explain_dot, explain_mermaid

        return explain_mermaid(graph) if form is Format.mermaid else explain_dot(graph)
    from slicemill.explain.placements import place_tasks

    kept = None
    if home is not None:
        from slicemill.runtime.state_view import placements_in

        kept = placements_in(home)
    tasks = place_tasks(graph, subtasks, kept)
    if form is Format.json:
        from slicemill.explain.json import explain_json

        return explain_json(graph, tasks=tasks)
    from rich.console import Console

    from slicemill.explain.text import explain_text

    return explain_text(graph, Console().width, tasks)


def _explained_object(kind: str, name: str, catalog: Catalog, form: Format) -> str:
    hook = statements().get(kind)
    if hook is None or hook.explain is None:
        raise SlicemillError(
            f"no installed extension can explain a {kind.lower()}; see docs/internals/extensions.md"
        )
    if form in (Format.mermaid, Format.dot):
        raise SlicemillError(f"a {kind.lower()} cannot be drawn as {form.value}; use text, json or svg")
    text: str = load(hook.explain)(name, catalog, form.value)
    return text


def _write(text: str, output: Path | None) -> None:
    if output is None:
        typer.echo(text)
    else:
        output.write_text(text, encoding="utf-8")


def _query_subgraph(graph: QueryGraph, name: str) -> QueryGraph:
    by_name = {node.id.lower(): node.id for node in graph.sinks} | {
        stream.lower(): node_id for stream, node_id in graph.streams.items()
    }
    if name.lower() not in by_name:
        raise SlicemillError(f"there is no query or stream {name}; use one of {', '.join(by_name)}")
    return graph.only(graph.ancestors(by_name[name.lower()]))
