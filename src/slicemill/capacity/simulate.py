"""Simulation of a script: measure or load task costs, then simulate scheduling policies."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from slicemill.binder import bind
from slicemill.capacity.rates import parse_rates
from slicemill.capacity.tables import (
    agreement,
    agreement_table,
    outcomes_as_json,
    policies_table,
    queries_table,
)
from slicemill.catalog.catalog import Catalog
from slicemill.errors import SlicemillError
from slicemill.operators.specs import Source
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.tasks import split_into_tasks
from slicemill.scheduling.capacity import Costs, costs_from_json, task_rate
from slicemill.scheduling.chooser import Chooser
from slicemill.scheduling.policies import policy_named
from slicemill.scheduling.rehearsal import Outcome, Poll, Traffic, mean_rates, polls, simulate_arrivals
from slicemill.sql.errors import SourceText

_SHORTEST_S = 0.001

Told = Callable[[str, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRequest:
    """Options of `slicemill simulate`. Durations are in seconds."""

    rates: Sequence[str]
    policies: Sequence[str]
    cores: int | None
    duration_s: float
    every_s: float
    validate_s: float | None
    seed: int
    home: Path | None
    costs: Path | None
    save: Path | None

    @property
    def some_cores(self) -> int:
        return self.cores or os.cpu_count() or 1


def simulate(source: SourceText, request: SimulationRequest, as_json: bool) -> None:
    """Simulate the queries of a script and print their predicted response times.

    All options are checked before anything is measured.
    """
    catalog = bind(source).catalog
    tasks, streams = _tasks_and_streams(catalog)
    if not tasks:
        raise SlicemillError(f"{source.name} has no continuous query, so there is nothing to plan for")
    if request.home is not None and request.costs is not None:
        raise SlicemillError("--home and --costs both supply task costs; use only one of them")
    if min(request.duration_s, request.every_s, request.validate_s or 1.0) < _SHORTEST_S:
        raise SlicemillError("a duration is shorter than a millisecond; use 1 ms or more")
    traffic = parse_rates(request.rates, streams)
    names = list(dict.fromkeys(policy_named(name).name for name in request.policies))
    known = _known_costs(request, catalog, tasks)
    if known is not None and request.validate_s is None:
        costs, tried = known, None
    else:
        costs, tried = _on_spark(source, request, traffic, names, known)
    if request.save is not None:
        request.save.write_text(costs.to_json(), encoding="utf-8")
    outcomes = _simulate_policies(
        costs, request, names, polls(traffic, request.every_s, request.duration_s, request.seed)
    )
    (_print_json if as_json else _print)(source, request, traffic, costs, outcomes, tried)


@dataclass(frozen=True, slots=True)
class PolicyTrials:
    """Predicted and measured outcomes of the same arrivals, by policy."""

    predicted: Mapping[str, Outcome]
    measured: Mapping[str, Outcome]


def _tasks_and_streams(catalog: Catalog) -> tuple[dict[str, set[str]], list[str]]:
    """Return the logs that each task writes, and the names of the streams that tasks read."""
    graph = share(optimize(build_graph(catalog)), catalog)
    streams = {op.stream for node in graph.sources if isinstance(op := node.operator, Source)}
    tasks = {task.id: {log for _, log in task.outputs} for task in split_into_tasks(graph)}
    return tasks, sorted(streams)


def _known_costs(request: SimulationRequest, catalog: Catalog, tasks: Mapping[str, set[str]]) -> Costs | None:
    if request.home is not None:
        from slicemill.capacity.trial import costs_of_home

        return costs_of_home(request.home, catalog)
    if request.costs is None:
        return None
    try:
        text = request.costs.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise SlicemillError(f"cannot read {request.costs}") from None
    costs = costs_from_json(text, str(request.costs))
    if {task.id: {output.log for output in task.outputs} for task in costs.tasks} != tasks:
        raise SlicemillError(
            f"{request.costs} has the costs of other queries; measure these queries with --save"
        )
    return costs


def _on_spark(
    source: SourceText,
    request: SimulationRequest,
    traffic: Mapping[str, Traffic],
    policies: Sequence[str],
    known: Costs | None,
) -> tuple[Costs, PolicyTrials | None]:
    # Spark takes seconds to import and start, so errors in options are reported first.
    from slicemill.capacity.trial import TrialSamples, measure
    from slicemill.capacity.trial_run import try_policies
    from slicemill.runtime.spark_session import local_session

    with _progress_bar() as tell:
        tell("starting Spark", 0.0)
        spark = local_session(request.some_cores)
        try:
            samples = TrialSamples(mean_rates(traffic))
            costs = known or measure(spark, source, request.every_s, samples, tell)
            if request.validate_s is None:
                return costs, None
            arrivals = polls(traffic, request.every_s, request.validate_s, request.seed)
            predicted = _simulate_policies(costs, request, policies, arrivals)
            measured = try_policies(spark, source, policies, arrivals, costs, samples, tell)
            return costs, PolicyTrials(predicted, measured)
        finally:
            spark.stop()


def _simulate_policies(
    costs: Costs, request: SimulationRequest, policies: Sequence[str], arrivals: Sequence[Poll]
) -> dict[str, Outcome]:
    return {
        name: simulate_arrivals(costs, request.some_cores, Chooser(policy_named(name)), arrivals)
        for name in policies
    }


@contextmanager
def _progress_bar() -> Iterator[Told]:
    """Show a progress bar on the terminal."""
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=1.0)

        def tell(what: str, done: float) -> None:
            progress.update(task, description=what, completed=done)

        yield tell


def _print(
    source: SourceText,
    request: SimulationRequest,
    traffic: Mapping[str, Traffic],
    costs: Costs,
    outcomes: Mapping[str, Outcome],
    tried: PolicyTrials | None,
) -> None:
    console = Console()
    console.print(queries_table(f"{source.name}, predicted, by query", outcomes))
    console.print()
    if len(outcomes) > 1:
        console.print(policies_table("All queries together, predicted", outcomes))
        console.print()
    if tried is not None:
        for what, found in (("predicted", tried.predicted), ("measured on Spark", tried.measured)):
            console.print(policies_table(f"{request.validate_s:g} s, {what}", found))
            console.print()
        if len(outcomes) > 1:
            console.print(agreement_table(tried.predicted, tried.measured))
            console.print()
    for line in verdict(costs, mean_rates(traffic), request.some_cores, outcomes):
        console.print(line, highlight=False)
    if any(asked.shape == "bursty" for asked in traffic.values()):
        console.print("The bursts are synthetic.", style="dim")


def _print_json(
    source: SourceText,
    request: SimulationRequest,
    traffic: Mapping[str, Traffic],
    costs: Costs,
    outcomes: Mapping[str, Outcome],
    tried: PolicyTrials | None,
) -> None:
    rates = mean_rates(traffic)
    found: dict[str, object] = {
        "file": source.name,
        "cores": request.some_cores,
        "rates": rates,
        "duration_s": request.duration_s,
        "utilisation": float(f"{costs.utilisation(rates, request.some_cores):.6g}"),
        "verdict": list(verdict(costs, rates, request.some_cores, outcomes)),
        "policies": outcomes_as_json(outcomes),
    }
    if tried is not None:
        orders = {
            measure: {"predicted": before, "measured": after, "same": same, "clear": clear}
            for measure, (before, after, same, clear) in agreement(tried.predicted, tried.measured).items()
        }
        found["validation"] = {
            "duration_s": request.validate_s,
            "predicted": outcomes_as_json(tried.predicted),
            "measured": outcomes_as_json(tried.measured),
            "orders": orders,
        }
    typer.echo(json.dumps(found))


# Textual summary of a simulation


_MOST_CORES = 256
# Delay of the last results after the last row, above which a backlog is reported
#
# The delay must exceed both a share of the time in which rows arrive, and a number of seconds. A shorter
# delay is explained by a last burst and the polling interval.
_BEHIND, _BEHIND_S = 0.1, 30.0
_BUSY = 0.9


def verdict(
    costs: Costs, rates: Mapping[str, float], cores: int, outcomes: Mapping[str, Outcome]
) -> Iterator[str]:
    """Yield sentences on the load at these rates, and on the required number of cores."""
    load = costs.utilisation(rates, cores)
    have = f"{cores} core{'' if cores == 1 else 's'}"
    if load < 1:
        yield f"These rates need {load:.0%} of the CPU time of {have}."
        for policy, outcome in outcomes.items():
            busy = outcome.busy_s / outcome.lasted_s if outcome.lasted_s else 0.0
            if busy > max(_BUSY, load):
                each_ms = 1000 * outcome.busy_s / outcome.jobs
                yield (
                    f"Under policy {policy}, jobs still run {busy:.0%} of the time, {each_ms:,.0f} ms each: "
                    "most of it is the fixed cost of a job, so more rows would cost little more."
                )
                break
        for policy, outcome in outcomes.items():
            if outcome.behind_s > max(_BEHIND * outcome.loaded_s, _BEHIND_S):
                yield (
                    f"Under policy {policy}, queries still fall behind: the last results came "
                    f"{outcome.behind_s:,.0f} s after the last row. All tasks of a job end together, so "
                    "short tasks leave cores idle."
                )
        return
    yield (
        f"Overload: these rates need {load:.2f} times the CPU time of {have}, so rows wait longer and "
        f"longer under every policy. At most {1 / load:.0%} of these rates can be processed."
    )
    tied = _bottleneck_task(costs, rates)
    if tied is not None:
        yield f"{tied} alone needs more than one core, and cannot be partitioned by a key."
        return
    enough = next((n for n in range(cores, _MOST_CORES) if costs.utilisation(rates, n) < 1), None)
    if enough is not None:
        yield f"At least {enough} cores are needed, if the work can be distributed evenly."


def _bottleneck_task(costs: Costs, rates: Mapping[str, float]) -> str | None:
    everywhere = costs.rates(rates)
    for task in costs.tasks:
        if not task.splits and task_rate(task, everywhere) * task.row_s >= 1:
            return task.id
    return None
