"""`slicemill serve`: a mill that many people use at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slicemill.cli.common import read, seconds_of


def serve(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="Statements to run first, if the home does not have them yet."),
    ] = None,
    home: Annotated[Path | None, typer.Option(help="Keep the catalog, logs and state here.")] = None,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes any that is free.")] = 8080,
    master: Annotated[str | None, typer.Option(help="A Spark master; this machine if left out.")] = None,
    duration: Annotated[
        str | None, typer.Option("--for", metavar="30s", help="End by itself after this time.")
    ] = None,
) -> None:
    """Serve a mill over HTTP: statements in, results out, until ctrl-c or SIGTERM.

    What is declared is in the home: a server that is started again with the same home goes on where it was,
    and needs no FILE.
    """
    from slicemill.engine.session import begin_session, check_master
    from slicemill.server.http.run import HttpAddress, listening_socket

    seconds = seconds_of(duration)
    source = read(file) if file is not None else None
    # What can be found out at once is told before Spark starts.
    if source is not None:
        from slicemill.cli.run import check_home

        check_home(home, source)
    if master is not None:
        check_master(master)
    address = HttpAddress(host, port)
    listening = listening_socket(address)
    spark = begin_session(master)
    from slicemill.server.serve import ServeOptions, run_server

    run_server(listening, address, ServeOptions(home, source, seconds), spark)
