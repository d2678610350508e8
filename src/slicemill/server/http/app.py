"""HTTP application of the server. Every route calls one method of the service."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Header, HTTPException, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse

from slicemill import __version__
from slicemill.adhoc.errors import AdhocQueryRejected
from slicemill.columns.arrow_schema import to_arrow
from slicemill.connectors.webhook import url_origin
from slicemill.errors import EngineStopped, SlicemillError, format_count
from slicemill.lifecycle.alerts import AlertStatus
from slicemill.server.answer import StatementAnswer
from slicemill.server.auth import Access, PermissionDenied, UserRole
from slicemill.server.encoding import ARROW, CSV, ENCODERS, JSON, EpochRows, json_of_epoch, json_rows
from slicemill.server.http.console_routes import add_console_data, add_console_files
from slicemill.server.http.messages import (
    AlertEntry,
    CatalogEntry,
    Health,
    QueryEntry,
    RefusedRequest,
    RequestProblem,
    ResultRows,
    StatementAnswers,
    StatementText,
    VersionEntry,
    answers_as_json,
    columns_of_table,
    problems_of,
)
from slicemill.server.http.prometheus import prometheus_text
from slicemill.server.http.protection import (
    CurrentPrincipal,
    CurrentSession,
    Unauthenticated,
    connection_of,
    current_principal,
    protect,
)
from slicemill.server.listings import state_of
from slicemill.server.live_results import LiveResults, recent_epoch
from slicemill.server.logs import note_event
from slicemill.server.pages.stored_slices import SliceWatch
from slicemill.server.sampling import Sampler
from slicemill.server.service import MillService, NotFound
from slicemill.server.support_bundle import support_bundle
from slicemill.server.user_session import UserSession
from slicemill.storage.filesystem import StorageFull, full_message, is_full
from slicemill.storage.log import Epoch

T = TypeVar("T")

_REFUSED: dict[int | str, dict[str, Any]] = {
    400: {"model": RefusedRequest, "description": "The request has errors"},
    401: {"model": RefusedRequest, "description": "A token is required"},
    403: {"model": RefusedRequest, "description": "The token's role or names do not allow it"},
    404: {"model": RefusedRequest, "description": "No query has this name"},
    422: {"model": RefusedRequest, "description": "The request does not match its description"},
}
_FULL: dict[int | str, dict[str, Any]] = {
    507: {"model": RefusedRequest, "description": "The disk is full; nothing was done"}
}
_BUSY: dict[int | str, dict[str, Any]] = {
    429: {"model": RefusedRequest, "description": "The user, or all users, have too many ad hoc queries"},
    503: {"model": RefusedRequest, "description": "The engine has stopped"},
}
_FORMATS: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {JSON: {}, ARROW: {}, CSV: {}},
        "description": "The results, in the format of the Accept header",
    }
}
_PLAN_TYPES = {
    "text": "text/plain",
    "json": JSON,
    "svg": "image/svg+xml",
    "mermaid": "text/vnd.mermaid",
    "dot": "text/vnd.graphviz",
}
_PLANS: dict[int | str, dict[str, Any]] = {
    200: {"content": {kind: {} for kind in _PLAN_TYPES.values()}, "description": "The plan"}
}
_NEXT = "Slicemill-Next-Epoch"
_IDLE_S = 5.0  # seconds without rows after which a client is checked and sent a keep-alive
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

QueryName = Annotated[str, Path(description="Name of a query", max_length=1000)]
Since = Annotated[int, Query(ge=0, le=2**62, description="First epoch (commit number) to return")]


def create_app(
    service: MillService, live: LiveResults, sampler: Sampler, cuts: SliceWatch, access: Access
) -> FastAPI:
    """Return the HTTP application of a service."""
    app = FastAPI(
        title="slicemill",
        version=__version__,
        description="Standing SQL queries over streams, planned together and run on Spark.",
        docs_url=None,  # FastAPI's page of the docs loads scripts from other hosts
        redoc_url=None,
    )
    _add_errors(app, service)
    protect(app, service, access)
    _add_statements(app)
    _add_catalog(app)
    _add_results(app, live)
    _add_state(app, service, live, access)
    add_console_data(app, service, sampler, cuts, access)
    add_console_files(app)
    return app


async def _call(function: Callable[[], T]) -> T:
    """Run a blocking function in a thread."""
    return await asyncio.to_thread(function)


async def _run_until_disconnect(
    request: Request, threads: Executor, function: Callable[[threading.Event], T]
) -> T:
    """Run a function in a thread. Set the function's event if the client disconnects."""
    interrupted = threading.Event()
    running = asyncio.get_running_loop().run_in_executor(threads, function, interrupted)
    gone = asyncio.create_task(_wait_for_disconnect(request))
    try:
        waited: set[asyncio.Future[Any]] = {running, gone}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    finally:  # this also runs when the server shuts down
        if not running.done():
            interrupted.set()
        gone.cancel()
    return await running


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _in_threads(
    parts: Iterator[bytes], first: bytes, threads: Executor, answers: list[StatementAnswer]
) -> AsyncIterator[bytes]:
    """Yield the parts of a response, each computed in a thread.

    The next part is computed after the client has drained the previous ones.
    """
    loop = asyncio.get_running_loop()
    try:
        yield first
        while (part := await loop.run_in_executor(threads, lambda: next(parts, None))) is not None:
            yield part
    except SlicemillError as problem:
        note_event(
            "ad hoc query failed", f"an ad hoc query failed behind its first rows: {problem}", logging.WARNING
        )
        raise
    finally:
        for answer in answers:
            if answer.rows is not None:
                answer.rows.close()


def _add_errors(app: FastAPI, service: MillService) -> None:
    @app.exception_handler(Unauthenticated)
    async def unknown_user(_: Request, error: Unauthenticated) -> JSONResponse:
        headers = {"WWW-Authenticate": "Bearer"}
        return JSONResponse(problems_of(error).model_dump(), 401, headers)

    @app.exception_handler(PermissionDenied)
    async def denied(_: Request, error: PermissionDenied) -> JSONResponse:
        return JSONResponse(problems_of(error).model_dump(), 403)

    @app.exception_handler(NotFound)
    async def not_there(_: Request, error: NotFound) -> JSONResponse:
        return JSONResponse(problems_of(error).model_dump(), 404)

    @app.exception_handler(EngineStopped)
    async def stopped(_: Request, error: EngineStopped) -> JSONResponse:
        return JSONResponse(problems_of(error).model_dump(), 503)

    @app.exception_handler(AdhocQueryRejected)
    async def too_many(_: Request, error: AdhocQueryRejected) -> JSONResponse:
        return JSONResponse(problems_of(error).model_dump(), 429)

    @app.exception_handler(StorageFull)
    async def full(_: Request, error: StorageFull) -> JSONResponse:
        return JSONResponse(problems_of(error).model_dump(), 507)

    @app.exception_handler(OSError)
    async def file_failed(_: Request, error: OSError) -> JSONResponse:
        if not is_full(error):
            raise error
        return JSONResponse(problems_of(full_message(service.mill.home.folder)).model_dump(), 507)

    @app.exception_handler(SlicemillError)
    async def refused(_: Request, error: SlicemillError) -> JSONResponse:
        return JSONResponse(problems_of(error).model_dump(), 400)

    @app.exception_handler(RequestValidationError)
    async def not_as_described(_: Request, error: RequestValidationError) -> JSONResponse:
        found = [
            RequestProblem(message=f"{'.'.join(map(str, one['loc']))}: {one['msg']}")
            for one in error.errors()
        ]
        return JSONResponse(RefusedRequest(errors=found).model_dump(), 422)

    @app.exception_handler(404)
    async def no_route(request: Request, _: Exception) -> JSONResponse:
        found = RequestProblem(
            message=f"there is no route {request.url.path}", hint="see /openapi.json for all routes"
        )
        return JSONResponse(RefusedRequest(errors=[found]).model_dump(), 404)

    @app.exception_handler(405)
    async def no_method(request: Request, error: HTTPException) -> JSONResponse:
        message = f"{request.url.path} does not accept {request.method}"
        found = RequestProblem(message=message, hint="see /openapi.json for the methods of each route")
        return JSONResponse(RefusedRequest(errors=[found]).model_dump(), 405, error.headers)

    @app.exception_handler(408)
    @app.exception_handler(413)
    async def no_body(_: Request, error: HTTPException) -> JSONResponse:
        found = RequestProblem(message=error.detail)
        return JSONResponse(RefusedRequest(errors=[found]).model_dump(), error.status_code, error.headers)


def _add_statements(app: FastAPI) -> None:
    @app.post(
        "/v1/statements",
        responses={**_REFUSED, **_BUSY, **_FULL},
        response_model=StatementAnswers,
        tags=["statements"],
    )
    async def execute(request: Request, body: StatementText, session: CurrentSession) -> Response:
        """Run statements: declarations, commands such as SHOW QUERIES, and ad hoc queries.

        An ad hoc query ends when its client disconnects. Rows of the last statement are sent as they are
        computed. If its query fails, the response is cut off.
        """
        threads = session.service.threads

        def begin(interrupted: threading.Event) -> tuple[list[StatementAnswer], Iterator[bytes], bytes]:
            answers = session.execute(body.text, interrupted)
            parts = answers_as_json(answers)
            return answers, parts, next(parts)

        answers, parts, first = await _run_until_disconnect(request, threads, begin)
        return StreamingResponse(_in_threads(parts, first, threads, answers), media_type=JSON)

    @app.post("/v1/check", responses=_REFUSED, tags=["statements"])
    async def check(body: StatementText, session: CurrentSession) -> RefusedRequest:
        """Return all errors in some statements, without running them."""
        try:
            await _call(lambda: session.check(body.text))
        except SlicemillError as error:
            return problems_of(error)
        return RefusedRequest(errors=[])


def _add_catalog(app: FastAPI) -> None:
    @app.get("/v1/catalog", responses=_REFUSED, tags=["catalog"])
    async def catalog(session: CurrentSession) -> list[CatalogEntry]:
        """Return all declarations in force, with user and time."""
        return [
            CatalogEntry(
                kind=entry["kind"],
                name=entry["name"],
                text=entry["text"],
                by=entry.get("by", ""),
                at=_iso(entry["at"]),
            )
            for entry in session.statements()
        ]

    @app.get("/v1/queries", responses=_REFUSED, tags=["catalog"])
    async def queries(session: CurrentSession) -> list[QueryEntry]:
        """Return all queries with their state and metrics."""
        return await _call(lambda: [_query_entry(session.service, name) for name in session.queries()])

    @app.get("/v1/queries/{name}", responses=_REFUSED, tags=["catalog"])
    async def query(name: QueryName, session: CurrentSession) -> QueryEntry:
        """Return the state and metrics of one query."""
        session.query(name)
        return await _call(lambda: _query_entry(session.service, name))

    @app.get("/v1/alerts", responses=_REFUSED, tags=["catalog"])
    async def alerts(session: CurrentSession) -> list[AlertEntry]:
        """Return all alerts with their state."""
        return [_alert_entry(one) for one in await _call(session.alerts)]

    @app.get("/v1/explain", responses={**_REFUSED, **_PLANS}, tags=["catalog"], response_class=Response)
    async def explain_all(
        session: CurrentSession,
        format: ExplainFormat = "text",  # noqa: A002
    ) -> Response:
        """Return the execution plan of all queries."""
        return await _call(lambda: _explain_response(session, None, format))

    @app.get(
        "/v1/queries/{name}/explain",
        responses={**_REFUSED, **_PLANS},
        tags=["catalog"],
        response_class=Response,
    )
    async def explain(
        name: QueryName,
        session: CurrentSession,
        format: ExplainFormat = "text",  # noqa: A002
    ) -> Response:
        """Return the execution plan of one query."""
        return await _call(lambda: _explain_response(session, name, format))


ExplainFormat = Annotated[str, Query(pattern=f"^({'|'.join(_PLAN_TYPES)})$")]


def _explain_response(session: UserSession, name: str | None, form: str) -> Response:
    return Response(session.explain(name, form), media_type=_PLAN_TYPES[form])


def _query_entry(service: MillService, name: str) -> QueryEntry:
    query = service.mill.catalog.queries[name.lower()]
    handle = service.mill.queries.get(query.name)
    life = handle.status() if handle is not None else None
    return QueryEntry(
        name=query.name,
        state=state_of(service.mill, query),
        version=handle.version if handle is not None else 1,
        columns=columns_of_table(to_arrow(query.schema).empty_table()),
        text=query.text,
        error=life.why if life is not None else None,
        failures=life.failures if life is not None else 0,
        next_try=_iso(life.next_try_us) if life is not None and life.next_try_us is not None else None,
        paused_since=_iso(life.paused_us) if life is not None and life.paused_us is not None else None,
        paused_by=life.paused_by if life is not None else None,
        metrics=handle.metrics() if handle is not None else None,
        progress=handle.progress() if handle is not None else None,
    )


def _alert_entry(one: AlertStatus) -> AlertEntry:
    return AlertEntry(
        name=one.name,
        on=one.on,
        condition=one.condition or None,
        state=one.state,
        since=None if one.since_us is None else _iso(one.since_us),
        firing=list(one.firing),
        sent=one.sent,
        last_sent=None if one.sent_us is None else _iso(one.sent_us),
        waiting=one.waiting,
        webhook=url_origin(one.url),
        error=one.error,
    )


def _iso(us: int) -> str:
    return (_EPOCH + timedelta(microseconds=us)).isoformat()


def _add_results(app: FastAPI, live: LiveResults) -> None:
    @app.get(
        "/v1/queries/{name}/results",
        responses={**_REFUSED, **_FORMATS},
        response_model=ResultRows,
        tags=["results"],
    )
    async def results(
        name: QueryName,
        session: CurrentSession,
        since: Since = 0,
        most_rows: Annotated[int, Query(ge=1, le=1_000_000)] = 10_000,
        accept: Annotated[str, Header()] = JSON,
    ) -> Response:
        """Return results from an epoch (commit) on, as JSON, Arrow or CSV (by the Accept header).

        `next`, and the header Slicemill-Next-Epoch, have the epoch to request next. All rows are of one
        `version` of the query (header Slicemill-Version).
        """
        kind = next((one for one in (ARROW, CSV) if one in accept), JSON)

        def read() -> Response:
            page = session.results(name, since, most_rows)
            headers = {_NEXT: str(page.next_epoch), "Slicemill-Gap": str(page.gap).lower()}
            headers["Slicemill-Version"] = str(page.version)
            if kind != JSON:
                return Response(ENCODERS[kind](page.table), media_type=kind, headers=headers)
            gap = str(page.gap).lower()
            fields = f'"next": {page.next_epoch}, "gap": {gap}, "version": {page.version}'
            content = f'{{"rows": {json_rows(page.table)}, {fields}}}'
            return Response(content, media_type=JSON, headers=headers)

        return await _call(read)

    @app.get("/v1/queries/{name}/versions", responses=_REFUSED, tags=["results"])
    async def versions(name: QueryName, session: CurrentSession) -> list[VersionEntry]:
        """Return all versions of a query, oldest first."""
        found = await _call(lambda: session.query(name).versions())
        return [
            VersionEntry(
                version=one.number,
                epoch=one.epoch,
                at=_iso(one.at_us),
                by=one.by,
                text=one.text,
                because=one.because,
            )
            for one in found
        ]

    @app.get(
        "/v1/queries/{name}/live",
        responses={**_REFUSED, 200: {"content": {"text/event-stream": {}}, "description": "Events"}},
        tags=["results"],
    )
    async def follow(
        request: Request,
        name: QueryName,
        session: CurrentSession,
        since: Annotated[int | None, Query(ge=0, le=2**62)] = None,
        last_event_id: Annotated[str | None, Header()] = None,
        recent: Annotated[int, Query(ge=0, le=10_000)] = 0,
    ) -> StreamingResponse:
        """Stream results as they are committed, as server-sent events.

        Without `since`, results start with the next commit. With `recent`, the latest epochs with about
        `recent` rows are sent first. An event `rows` has rows, their epoch and the `next` epoch, which is
        also the event's id. A client that reconnects with this id as Last-Event-ID continues without gaps.
        """
        query = session.query(name)
        if last_event_id:
            if not last_event_id.isdecimal() or len(last_event_id) > 18:
                raise SlicemillError(
                    "Last-Event-ID is not the id of an event; omit it to start with the next results"
                )
            since = int(last_event_id)
        start = since if since is not None else await _call(lambda: recent_epoch(query.log, recent))

        async def events() -> AsyncIterator[bytes]:
            connection = connection_of(request.scope)
            async for epoch in live.follow(query, start, _as_event, _IDLE_S, connection):
                if current_principal(request) != session.principal:
                    return  # the token has been revoked since the request began
                if epoch.gap:
                    yield b"event: gap\ndata: {}\n\n"
                yield epoch.content or b": nothing new\n\n"
            # The query was dropped, and the server is not shutting down.
            if session.service.mill.queries.get(query.name) is not query:
                yield b"event: end\ndata: {}\n\n"

        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(events(), media_type="text/event-stream", headers=headers)


def _as_event(rows: EpochRows, epoch: Epoch, version: int) -> bytes:
    fields = f'"epoch": {epoch.number}, "next": {epoch.number + 1}, "version": {version}'
    data = f'{{{fields}, "rows": {json_of_epoch(rows)}}}'
    return f"id: {epoch.number + 1}\nevent: rows\ndata: {data}\n\n".encode()


def _add_state(app: FastAPI, service: MillService, live: LiveResults, access: Access) -> None:
    @app.get("/v1/metrics", responses=_REFUSED, tags=["state"])
    async def metrics(session: CurrentSession) -> dict[str, Any]:
        """Return all metrics of the engine, its queries and its streams."""
        return await _call(session.metrics)

    @app.get("/metrics", responses=_REFUSED, tags=["state"], response_class=Response)
    async def prometheus(session: CurrentSession) -> Response:
        """Return the metrics in Prometheus format.

        If the server requires tokens, Prometheus must send one (`authorization` in its configuration).
        """
        names = [service.mill.catalog.queries[name].name for name in session.queries()]
        content = await _call(lambda: prometheus_text(service.mill, names, live.counts))
        return Response(content, media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/v1/support-bundle", responses=_REFUSED, tags=["state"], response_class=Response)
    async def bundle(session: CurrentSession) -> Response:
        """Return a support bundle: a ZIP file of statements, plans and metrics, without rows."""
        session.principal.require(UserRole.ADMIN, "a support bundle")
        headers = {"Content-Disposition": 'attachment; filename="slicemill-support.zip"'}
        content = await _call(lambda: support_bundle(service))
        return Response(content, media_type="application/zip", headers=headers)

    @app.get("/health", tags=["state"])
    async def health(response: Response, principal: CurrentPrincipal) -> Health:
        """Return whether the server is ready and queries run. The status is 503 if queries do not run.

        Names of failing objects are shown only with a token for all names.
        """
        # Without a working token, no client could read these problems over another route.
        locked = access.problems()
        found = [one for one in service.problems() if one not in locked]
        if found and (principal is None or principal.names):
            found = [f"{format_count(len(found), 'problem')}; a token for all names shows them"]
        found = [*locked, *found]
        ready = service.mill.dispatcher.failure is None
        if not ready:
            response.status_code = 503
        return Health(ready=ready, version=__version__, problems=found)
