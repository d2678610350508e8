"""Python client of a slicemill server, without Spark or Java.

    from slicemill_client import connect

    with connect("http://127.0.0.1:8080") as mill:
        mill.execute("CREATE QUERY dear AS SELECT item, price FROM bid WHERE price > 100")
        print(mill.ask("SELECT count(*) FROM dear"))
        for epoch in mill.queries["dear"].follow():
            print(epoch.rows)

A `slicemill.Mill`, which runs queries without a server, has the same methods (`SqlConnection`).
"""

from __future__ import annotations

from slicemill_client.asynchronous import AsyncConnection, connect_async
from slicemill_client.connection import Connection, RemoteQuery, connect
from slicemill_client.errors import ClientError, ServerUnreachable, StatementMistake, StatementRefused
from slicemill_client.messages import LiveRows, QueryStatus, QueryVersion, ReplaceEffect, StatementResult
from slicemill_client.protocols import QueryHandle, SqlConnection

__all__ = [
    "AsyncConnection",
    "ClientError",
    "Connection",
    "LiveRows",
    "QueryHandle",
    "QueryStatus",
    "QueryVersion",
    "RemoteQuery",
    "ReplaceEffect",
    "ServerUnreachable",
    "SqlConnection",
    "StatementMistake",
    "StatementRefused",
    "StatementResult",
    "connect",
    "connect_async",
]
