"""Asynchronous client, for programs with an asyncio event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from types import TracebackType
from typing import Any

import httpx

from slicemill_client.connection import headers_of
from slicemill_client.errors import ServerUnreachable
from slicemill_client.messages import (
    SYSTEM_COLUMNS,
    EventParser,
    LiveRows,
    StatementResult,
    checked,
    decode_rows,
    results_of,
)

_SILENCE_S = 60.0
_RETRY_S = 1.0


def connect_async(
    url: str = "http://127.0.0.1:8080", token: str | None = None, **options: Any
) -> AsyncConnection:
    """Return a connection to a server, for use with `async with`."""
    return AsyncConnection(url, token, **options)


class AsyncConnection:
    """Asynchronous connection to a server: statements, ad hoc queries and live results."""

    def __init__(self, url: str, token: str | None = None, **options: Any) -> None:
        self.url = url.rstrip("/")
        timeout = options.pop("timeout", httpx.Timeout(10.0, read=300.0))
        self._http = httpx.AsyncClient(
            base_url=self.url, headers=headers_of(token), timeout=timeout, **options
        )

    async def execute(self, text: str) -> list[StatementResult]:
        """Run statements and return their results. Raises StatementRefused with all errors."""
        try:
            response = checked(await self._http.post("/v1/statements", json={"text": text}))
        except httpx.HTTPError as problem:
            raise ServerUnreachable(f"no server answers at {self.url}: {problem}") from None
        return results_of(response.json())

    async def ask(self, sql: str) -> list[dict[str, Any]]:
        """Run an ad hoc query (SELECT) and return its rows."""
        *_, last = await self.execute(sql)
        return decode_rows(last.rows, last.columns or ())

    async def follow(self, query: str, since: int | None = None) -> AsyncIterator[LiveRows]:
        """Yield results as they are committed, until the query is dropped.

        The first result is that of epoch (commit) `since`; by default only new results are returned.
        """
        version, types = 0, list[tuple[str, str]]()
        while True:
            params = {} if since is None else {"since": since}
            parser = EventParser()
            try:
                async with self._http.stream(
                    "GET",
                    f"/v1/queries/{query}/live",
                    params=params,
                    timeout=httpx.Timeout(10.0, read=_SILENCE_S),
                ) as response:
                    if not response.is_success:
                        await response.aread()
                    async for line in checked(response).aiter_lines():
                        found = parser.line(line)
                        if found is not None:
                            since = found.next
                            if found.version != version:
                                version, types = found.version, await self._types(query)
                            yield replace(found, rows=decode_rows(found.rows, types))
            except httpx.HTTPError:
                await asyncio.sleep(_RETRY_S)
                continue
            if parser.ended:
                return

    async def _types(self, query: str) -> list[tuple[str, str]]:
        """Return the columns of a query with their types; only `_ts` if the query was dropped meanwhile."""
        response = await self._http.get(f"/v1/queries/{query}")
        columns = response.json()["columns"] if response.is_success else []
        return [*SYSTEM_COLUMNS, *((column["name"], column["type"]) for column in columns)]

    async def __aenter__(self) -> AsyncConnection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()
