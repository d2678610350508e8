"""Sets of joins over a few streams, run as programs without an engine, in any form."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.catalog.catalog import Catalog
from slicemill.columns.rows import timed_rows, to_table
from slicemill.operators.graph import QueryGraph
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize
from slicemill.plan.rules.multi_joins import multi_joins
from slicemill.plan.rules.share_joins import share_joins
from slicemill.plan.rules.split_joins import split_joins
from slicemill.plan.tasks import split_into_tasks
from slicemill.runtime.pipeline import TaskPlan, TaskProgram
from slicemill.storage.checkpoints import read_checkpoint, write_checkpoint
from slicemill.time import END
from slicemill.types import Timed

NAMES = "ABCDE"
STREAMS = "".join(f"CREATE STREAM {name} (k int, v int, t varchar) ORDER BY current_time;" for name in NAMES)
SECOND = 1_000_000

Event = tuple[int, str, tuple[int | None, int, str]]
# A timestamp and number in front of each row.
Numbered = list[tuple[int, int, Timed]]


@st.composite
def arrivals(draw: st.DrawFn) -> list[Event]:
    """Up to 60 tuples in 12 seconds: drawn as one number, since results of five streams need many of them."""
    rows, chooser = draw(st.integers(0, 60)), random.Random(draw(st.integers(0, 2**32)))
    return sorted(
        (
            (
                chooser.randrange(12),
                chooser.choice(NAMES),
                (chooser.choice([0, 0, 1, None]), chooser.randrange(4), chooser.choice("xxy")),
            )
            for _ in range(rows)
        ),
        key=lambda event: event[0],
    )


_windows = st.sampled_from(["RANGE 1 SECOND", "RANGE 3 SECONDS", "RANGE 6 SECONDS", "RANGE UNBOUNDED"])
_forms = st.sampled_from(
    [
        "{0}.k = {1}.k",
        "{0}.k = {1}.k",
        "{0}.v = {1}.k",
        "{0}.t = {1}.t",
        "{0}.k = {1}.k AND {0}.t = {1}.t",
        "{0}.v < {1}.v",
        "{0}.v + {1}.v > 2",
        "{0}.v > 0",
    ]
)


@st.composite
def queries(draw: st.DrawFn, most: int = 4) -> str:
    names = draw(st.permutations(NAMES))[: draw(st.integers(3, most))]
    if draw(st.integers(0, 5)) == 0:
        names = [*names[:-1], names[0]]  # a stream with itself
    aliases = [f"s{number}" for number in range(len(names))]
    pairs = list(itertools.combinations(aliases, 2))
    linked = draw(st.booleans())
    where = [f"{one}.k = {other}.k" for one, other in itertools.pairwise(aliases)] if linked else []
    for one, other in draw(st.lists(st.sampled_from(pairs), max_size=3)):
        where.append(draw(_forms).format(one, other))
    sources = ", ".join(
        f"{name} {alias} [{draw(_windows)}]" for name, alias in zip(names, aliases, strict=True)
    )
    items = ", ".join(f"{alias}.v AS v{alias}, {alias}.t AS t{alias}" for alias in aliases)
    return f"SELECT {items} FROM {sources}" + (f" WHERE {' AND '.join(where)}" if where else "")


def runs_of(arriving: Sequence[Event], cuts: Sequence[int]) -> list[list[Event]]:
    borders = [0, *sorted(min(c, len(arriving)) for c in cuts), len(arriving)]
    return [list(arriving[a:b]) for a, b in itertools.pairwise(borders)]


def catalog_of(texts: Mapping[str, str]) -> Catalog:
    return bind(STREAMS + "".join(f"CREATE QUERY {name} AS {text};" for name, text in texts.items())).catalog


def by_rows(catalog: Catalog) -> QueryGraph:
    """Every join by itself, row by row."""
    return optimize(build_graph(catalog))


def as_tree(catalog: Catalog) -> QueryGraph:
    return share_joins(split_joins(by_rows(catalog), catalog), catalog)


def as_multi(catalog: Catalog) -> QueryGraph:
    return multi_joins(by_rows(catalog), catalog, always=True)


def results(
    form: Callable[[Catalog], QueryGraph],
    texts: Mapping[str, str],
    runs: Sequence[Sequence[Event]],
    checkpoints: Path | None = None,
) -> dict[str, Numbered]:
    """Return the results of each query. With `folder`, tasks restart from a checkpoint after each run."""
    catalog = catalog_of(texts)
    graph = form(catalog)
    found: dict[str, Numbered] = {name: [] for name in texts}
    for task in split_into_tasks(graph):
        program = TaskProgram(TaskPlan(task=task, graph=graph, catalog=catalog, tables={}))
        reached: dict[str, int] = dict.fromkeys(task.inputs, -END)
        arrived: dict[str, int] = dict.fromkeys(task.inputs, 0)
        for number, run in enumerate(runs):
            given = {}
            for stream in task.inputs:
                mine = [Timed(ts * SECOND, row) for ts, of, row in run if of == stream]
                seqs = range(arrived[stream], arrived[stream] + len(mine))
                given[stream] = to_table(mine, graph[stream].schema, [timed.ts for timed in mine], seqs)
                arrived[stream] += len(mine)
                reached[stream] = max([reached[stream], *(timed.ts for timed in mine)])
            told = dict.fromkeys(reached, END) if number == len(runs) - 1 else reached
            outcome = program.run(given, told)
            assert not outcome.errors
            if checkpoints is not None:
                files = json.loads(json.dumps(write_checkpoint(checkpoints, program.states)))
                program = TaskProgram(program.plan, read_checkpoint(checkpoints, files))
            for _, log in task.outputs:
                table = outcome.tables[log]
                system = (table.column(name).to_pylist() for name in ("_ts", "_seq"))
                found[log] += zip(*system, timed_rows(table, graph[log].schema), strict=True)
    return found
