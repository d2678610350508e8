"""`slicemill serve`: run a server with which many users share one engine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slicemill.cli.common import Conf, Packages, read, seconds_of, spark_settings
from slicemill.errors import SlicemillError


def serve(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="Script to run first, unless the home directory already has its statements.",
        ),
    ] = None,
    home: Annotated[Path | None, typer.Option(help="Home directory for queries, results and state.")] = None,
    host: Annotated[str, typer.Option(help="Address at which the server listens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="HTTP port; 0 uses any free port.")] = 8080,
    postgres_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port for psql and other PostgreSQL clients, for example 5433. Default: no such port.",
        ),
    ] = None,
    master: Annotated[
        str | None, typer.Option(help="Spark master, for example spark://host:7077. Default: this machine.")
    ] = None,
    packages: Packages = None,
    conf: Conf = None,
    duration: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="30s",
            help="Stop after this time, for example 30s or 8h. Default: run until ctrl-c.",
        ),
    ] = None,
    allow_folder: Annotated[
        list[Path] | None,
        typer.Option(help="Allow statements to use files below this folder; repeatable."),
    ] = None,
    allow_scheme: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Allow statements to use sources and sinks of this URL scheme, for example tcp; repeatable.",
        ),
    ] = None,
    allow_python: Annotated[bool, typer.Option(help="Allow statements to run Python code.")] = False,
    allow_webhook: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST[:PORT]", help="Allow alerts to send messages to this host; repeatable."),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="File of the TLS certificate (PEM); requires --key.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="File of the certificate's private key (PEM).")] = None,
    adhoc_queries: Annotated[
        int | None,
        typer.Option(min=1, max=256, help="Maximum number of ad hoc queries that run at the same time."),
    ] = None,
    adhoc_queries_per_user: Annotated[
        int | None, typer.Option(min=1, max=256, help="Maximum number of running ad hoc queries of one user.")
    ] = None,
    adhoc_memory: Annotated[
        int, typer.Option(min=64, metavar="MB", help="Maximum memory of an ad hoc query.")
    ] = 1024,
    adhoc_seconds: Annotated[
        float, typer.Option(min=0.1, help="Maximum run time of an ad hoc query in seconds.")
    ] = 300.0,
    max_connections: Annotated[
        int,
        typer.Option(
            min=1,
            help="Maximum number of open connections of all ports; one client address may use half of them.",
        ),
    ] = 2_000,
    log_format: Annotated[
        str, typer.Option(help="Format of the log: text or json, with one line per event.")
    ] = "text",
) -> None:
    """Run a server over HTTP until ctrl-c or SIGTERM.

    All declarations are stored in the home directory. A server that is restarted with the same home directory
    continues where it stopped, and needs no FILE. Connections from other machines are accepted once there is
    a token (slicemill token add). FILE may use any file, host and code; later statements may only use what
    the options allow.
    """
    from slicemill.runtime.spark_session import begin_session, check_master
    from slicemill.server.auth import Access
    from slicemill.server.connections import ConnectionLimits
    from slicemill.server.logs import LogFormat
    from slicemill.server.network import Certificate, ServerSockets, check_address
    from slicemill.server.permissions import ClientPermissions

    seconds = seconds_of(duration)
    settings = spark_settings(packages, conf)
    source = read(file) if file is not None else None
    # Errors that can be found without Spark are reported before Spark starts.
    if source is not None:
        from slicemill.cli.run import check_home

        check_home(home, source)
    if master is not None:
        check_master(master)
    if log_format not in tuple(LogFormat):
        raise SlicemillError(f"there is no log format {log_format}; use one of {', '.join(LogFormat)}")
    if (certificate is None) != (key is None):
        raise SlicemillError("only one of --certificate and --key is given; TLS requires both")
    tls = Certificate(str(certificate), str(key)) if certificate is not None else None
    access = Access(home)
    check_address(host, access)
    listening = ServerSockets(host, port, postgres_port, tls, ConnectionLimits.of_process(max_connections))
    spark = begin_session(master, settings)
    from slicemill.server.adhoc.pool import AdhocLimits
    from slicemill.server.serve import ServeOptions, run_server

    allowed = ClientPermissions(
        tuple(allow_folder or ()),
        frozenset(map(str.lower, allow_scheme or ())),
        allow_python,
        frozenset(map(str.lower, allow_webhook or ())),
    )
    limits = AdhocLimits(seconds=adhoc_seconds, memory_bytes=adhoc_memory << 20)
    limits = limits.with_counts(adhoc_queries, adhoc_queries_per_user)
    options = ServeOptions(home, source, seconds, allowed, LogFormat(log_format), limits)
    run_server(listening, access, options, spark)
