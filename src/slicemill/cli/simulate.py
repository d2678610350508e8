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
            help="Rows of a stream, as bid=200/min, bid=5000/s:poisson, bid=5000/s:bursty or bid=FILE.csv "
            "(lines of seconds,rows); without a name, of all other streams.",
        ),
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Several are compared; fcfs if left out.")
    ] = None,
    cores: Annotated[int | None, typer.Option(min=1, help="Those of this machine if left out.")] = None,
    duration: Annotated[str, typer.Option("--for", metavar="10m", help="How long rows come.")] = "10m",
    every: Annotated[str, typer.Option(metavar="250ms", help="How often sources are read.")] = "250ms",
    home: Annotated[
        Path | None, typer.Option(help="Take costs from the home of a mill that has run.")
    ] = None,
    costs: Annotated[Path | None, typer.Option(help="Take costs from a file that --save wrote.")] = None,
    save: Annotated[Path | None, typer.Option(help="Keep the costs that are measured.")] = None,
    validate: Annotated[
        str | None, typer.Option(metavar="30s", help="Also run for so long on Spark, under each policy.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Where the random numbers start.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
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
