"""`slicemill serve`: run a server, with which many users share a mill."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slicemill.cli.common import Conf, Packages, read, seconds_of, spark_settings
from slicemill.errors import SlicemillError


def serve(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="Statements to run first, if the home does not have them yet."),
    ] = None,
    home: Annotated[Path | None, typer.Option(help="Keep the catalog, logs and state here.")] = None,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes any that is free.")] = 8080,
    postgres_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Listen for psql and other clients of PostgreSQL here too."),
    ] = None,
    master: Annotated[str | None, typer.Option(help="A Spark master; this machine if left out.")] = None,
    packages: Packages = None,
    conf: Conf = None,
    duration: Annotated[
        str | None, typer.Option("--for", metavar="30s", help="End by itself after this time.")
    ] = None,
    allow_folder: Annotated[
        list[Path] | None,
        typer.Option(help="Statements may name files below this folder; may be given several times."),
    ] = None,
    allow_scheme: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Statements may name sources and sinks of this kind, such as tcp."),
    ] = None,
    allow_python: Annotated[bool, typer.Option(help="Statements may run code in Python.")] = False,
    allow_webhook: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST[:PORT]", help="Alerts may tell this host; may be given several times."),
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="The file of a TLS certificate.")] = None,
    key: Annotated[Path | None, typer.Option(help="The file of the certificate's key.")] = None,
    adhoc_queries: Annotated[
        int | None, typer.Option(min=1, max=256, help="How many ad hoc queries run at once.")
    ] = None,
    adhoc_queries_per_user: Annotated[
        int | None, typer.Option(min=1, max=256, help="How many of them one user may have.")
    ] = None,
    adhoc_memory: Annotated[
        int, typer.Option(min=64, metavar="MB", help="The memory that an ad hoc query may take.")
    ] = 1024,
    adhoc_seconds: Annotated[
        float, typer.Option(min=0.1, help="How long the answer to an ad hoc query may take to compute.")
    ] = 300.0,
    max_connections: Annotated[
        int, typer.Option(min=1, help="Open connections of all ports; one address may have half of them.")
    ] = 2_000,
    log_format: Annotated[str, typer.Option(help="text or json: one line for each event.")] = "text",
) -> None:
    """Serve a mill over HTTP until ctrl-c or SIGTERM.

    All declarations are stored in the home. A server that is restarted with the same home continues where it
    stopped, and needs no FILE. Connections from other machines are accepted once there is a token (slicemill
    token add). FILE may use any file, host and code; later statements may only use what the options allow.
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
    # Report errors that can be found quickly before Spark starts.
    if source is not None:
        from slicemill.cli.run import check_home

        check_home(home, source)
    if master is not None:
        check_master(master)
    if log_format not in tuple(LogFormat):
        raise SlicemillError(f"there is no log format {log_format}; there are {', '.join(LogFormat)}")
    if (certificate is None) != (key is None):
        raise SlicemillError("--certificate and --key belong together")
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
