"""Many clients of a server in one separate process, which record results and delays.

The process reads one line of JSON, `{"http": 8080, "postgres": 5432, "queries": […], "sse": 200, "pg": 50}`,
and prints `ready` when all clients are connected. After another input line it prints what the clients
received. A row has a number `n`, which counts up in each query, and `sent`, the time of sending in
microseconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

import psycopg

US = 1_000_000
_CONNECTED_S = 120.0


class SubscriberLog:
    """Results that one client received of one query: numbers in order of arrival, and delays."""

    def __init__(self, query: str, way: str) -> None:
        self.query = query
        self.way = way
        self.numbers: list[int] = []
        self.delays_ms: list[float] = []
        self.epochs = 0

    def take(self, number: int, sent_us: int) -> None:
        self.numbers.append(number)
        self.delays_ms.append((time.time() * US - sent_us) / 1000)

    def plain(self) -> dict[str, Any]:
        return {
            "query": self.query,
            "way": self.way,
            "numbers": self.numbers,
            "delays_ms": [round(delay, 2) for delay in self.delays_ms],
            "epochs": self.epochs,
        }


async def follow_events(port: int, log: SubscriberLog, connected: asyncio.Semaphore) -> None:
    """Follow a query with server-sent events, over a plain socket."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    writer.write(f"GET /v1/queries/{log.query}/live HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    status = await reader.readline()
    assert b" 200 " in status, status
    connected.release()
    async for line in reader:
        if line.startswith(b"data: {"):
            log.epochs += 1
            for row in json.loads(line[6:])["rows"]:
                log.take(row["n"], row["sent"])


async def follow_rows(port: int, log: SubscriberLog, connected: asyncio.Semaphore) -> None:
    """Follow a query over the PostgreSQL protocol. The columns are the result's time, n and sent."""
    connection = await psycopg.AsyncConnection.connect(
        host="127.0.0.1", port=port, user="bench", dbname="x", autocommit=True
    )
    async with connection, connection.cursor() as cursor:
        connected.release()
        async for row in cursor.stream(f"SUBSCRIBE {log.query}"):
            log.take(row[-2], row[-1])


async def run() -> None:
    wanted = json.loads(await asyncio.to_thread(sys.stdin.readline))
    queries = wanted["queries"]
    logs: list[SubscriberLog] = []
    tasks: list[asyncio.Task[None]] = []
    connected = asyncio.Semaphore(0)
    for way, follow, port in (
        ("sse", follow_events, wanted["http"]),
        ("pg", follow_rows, wanted["postgres"]),
    ):
        for place in range(wanted[way]):
            logs.append(SubscriberLog(queries[place % len(queries)], way))
            tasks.append(asyncio.create_task(follow(port, logs[-1], connected)))
    async with asyncio.timeout(_CONNECTED_S):
        for _ in tasks:
            await connected.acquire()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    failed = [str(task.exception()) for task in tasks if task.done() and task.exception() is not None]
    print(json.dumps({"failed": failed, "clients": [log.plain() for log in logs]}), flush=True)
    os._exit(0)  # an orderly disconnect of all clients would take long


if __name__ == "__main__":
    asyncio.run(run())
