"""Command `slicemill calibrate`: measure the cost of the algorithms for models on this machine."""

from __future__ import annotations

import os

import typer


def calibrate() -> None:
    """Measure the costs of the algorithms for models on this machine.

    New queries choose their algorithms by these costs, and `slicemill explain` shows the costs.
    """
    from dataclasses import asdict

    from slicemill.extensions.models.compiler.calibration import measure_costs
    from slicemill.extensions.models.cost import store_core_costs

    os.environ["SLICEMILL_COMPILE"] = "always"
    costs = measure_costs()
    for name, figure in asdict(costs).items():
        if name != "measured":
            typer.echo(f"{name:8}{figure:8.2f} ns")
    typer.echo(f"stored in {store_core_costs(costs)}")
