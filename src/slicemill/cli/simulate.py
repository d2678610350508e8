"""`slicemill simulate`: predict response times, slowdown, staleness and memory from measured costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slicemill.cli.common import File, read, seconds_of


def simulate(
    file: File,
    rate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STREAM=5000/s",
            help="Arrival rate of a stream, for example bid=200/min, bid=5000/s:bursty, or bid=FILE.csv "
            "(lines `seconds,rows`). A rate without a name applies to all other streams.",
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Scheduling policy to simulate; repeatable, to compare policies. Default: fcfs.",
        ),
    ] = None,
    cores: Annotated[
        int | None,
        typer.Option(min=1, help="Number of cores to simulate. Default: the cores of this machine."),
    ] = None,
    duration: Annotated[
        str, typer.Option("--for", metavar="10m", help="Simulated duration in which rows arrive.")
    ] = "10m",
    every: Annotated[
        str, typer.Option(metavar="250ms", help="Interval at which sources are polled.")
    ] = "250ms",
    home: Annotated[
        Path | None,
        typer.Option(help="Take task costs from this home directory, in which the queries have run."),
    ] = None,
    costs: Annotated[
        Path | None, typer.Option(help="Take task costs from a file that --save has written.")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Write the measured task costs to this file.")] = None,
    validate: Annotated[
        str | None,
        typer.Option(
            metavar="30s",
            help="Also run on Spark for this time under each policy, and compare with the prediction.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random number generators.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Predict response times, slowdown, staleness and memory of every query.

    Without --home or --costs, each task of the script first runs alone on Spark for about a minute, over rows
    of the script's own sources.
    """
    from slicemill.capacity.simulate import SimulationRequest
    from slicemill.capacity.simulate import simulate as print_plan

    wish = SimulationRequest(
        rates=rate or [],
        policies=policy or ["fcfs"],
        cores=cores,
        duration_s=seconds_of(duration) or 0.0,
        every_s=seconds_of(every) or 0.0,
        validate_s=seconds_of(validate),
        seed=seed,
        home=home,
        costs=costs,
        save=save,
    )
    print_plan(read(file), wish, as_json)
