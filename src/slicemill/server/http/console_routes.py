"""Routes of the web console. One response has all data of a page, from one sample of metrics."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Query, Request
from fastapi.responses import HTMLResponse, Response

from slicemill import __version__
from slicemill.errors import SlicemillError
from slicemill.extension import extensions, load
from slicemill.scheduling.policies import POLICIES
from slicemill.server.auth import Access, UserRole
from slicemill.server.http.console_messages import (
    ComponentLine,
    CutMoveBody,
    CutsBody,
    EditorWords,
    EventBody,
    FigureColumns,
    GraphArc,
    GraphBody,
    GraphNode,
    MadeToken,
    MillHistory,
    Overview,
    PlanAnswer,
    PlanPreview,
    PlanRequest,
    Policies,
    PolicyLine,
    PolicySince,
    QueryLine,
    SliceChain,
    StoredSliceBody,
    StreamFigures,
    TaskPriority,
    TokenLine,
    TokenRequest,
    WorkerFigures,
)
from slicemill.server.http.messages import RefusedRequest, StatementText
from slicemill.server.http.protection import CurrentSession
from slicemill.server.pages.completion import completions_for
from slicemill.server.pages.live_graph import FoldMode, LiveGraphReader, components_of
from slicemill.server.pages.preview import preview
from slicemill.server.pages.priorities import RULES, priorities_of, simulate_policies
from slicemill.server.pages.stored_slices import SliceWatch, StoredChain, inputs_of, name_part, window_extents
from slicemill.server.sampling import MillSample, QuerySample, Sampler
from slicemill.server.service import MillService
from slicemill.server.user_session import UserSession
from slicemill.time import wall_clock_us

T = TypeVar("T")

REFUSED: dict[int | str, dict[str, Any]] = {
    status: {"model": RefusedRequest} for status in (400, 401, 403, 404, 422)
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EVENTS_SHOWN = 30

_SORTS: dict[str, Callable[[QuerySample], Any]] = {
    "attention": lambda q: (-q.attention, -(q.slowdown or 0.0), q.name),
    "name": lambda q: q.name,
    "rate": lambda q: (-q.rate, q.name),
    "p99": lambda q: (-(q.p99_ms or 0.0), q.name),
    "slowdown": lambda q: (-(q.slowdown or 0.0), q.name),
    "lag": lambda q: (-(q.lag_s or 0.0), q.name),
    "waiting": lambda q: (-q.rows_waiting, q.name),
    "cpu": lambda q: (-q.cpu, q.name),
    "shed": lambda q: (-(q.shed or 0), q.name),
    "state": lambda q: (-q.state_bytes, q.name),
}


def add_console_data(
    app: FastAPI, service: MillService, sampler: Sampler, cuts: SliceWatch, access: Access
) -> None:
    """Add the console's routes to an application."""
    _add_overview(app, sampler)
    _add_graph(app, service, sampler)
    _add_preview(app, service)
    _add_completions(app)
    _add_slices(app, service, cuts)
    _add_scheduling(app, service, sampler)
    for extension in extensions().values():
        for add_routes in extension.routes:
            load(add_routes)(app, service)
    _add_tokens(app, access)


async def in_thread(function: Callable[[], T]) -> T:
    return await asyncio.to_thread(function)


def _add_overview(app: FastAPI, sampler: Sampler) -> None:
    @app.get("/v1/overview", responses=REFUSED, tags=["console"])
    async def overview(
        session: CurrentSession,
        search: Annotated[str, Query(max_length=200)] = "",
        sort: Annotated[str, Query(pattern=f"^({'|'.join(_SORTS)})$")] = "attention",
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
        offset: Annotated[int, Query(ge=0)] = 0,
    ) -> Overview:
        """Return streams, queries with the causes of slowness, workers and events."""
        sample = await in_thread(sampler.look)
        return _overview(session, sample, sampler, search, sort, limit, offset)

    @app.get("/v1/history", responses=REFUSED, tags=["console"])
    async def mill_history(session: CurrentSession) -> MillHistory:
        """Return half an hour of engine metrics: rates, response times, slowdown, scheduling policies."""
        session.require_all_names(None)
        columns, policies = sampler.mill_history()
        since = [PolicySince(at_s=at_s, policy=policy) for at_s, policy in policies]
        return MillHistory(columns=columns, policies=since)

    @app.get("/v1/history/{name}", responses=REFUSED, tags=["console"])
    async def query_history(name: str, session: CurrentSession) -> FigureColumns:
        """Return half an hour of metrics of one query."""
        return FigureColumns(columns=sampler.history_of(session.query(name).name))

    @app.get("/v1/queries/{name}/line", responses=REFUSED, tags=["console"])
    async def line(name: str, session: CurrentSession) -> QueryLine:
        """Return one query with its metrics and the cause of slowness, as a line of the overview."""
        known = session.query(name).name
        sample = await in_thread(sampler.look)
        return QueryLine.model_validate(asdict(sample.queries[known]))


def _overview(
    session: UserSession,
    sample: MillSample,
    sampler: Sampler,
    search: str,
    sort: str,
    limit: int,
    offset: int,
) -> Overview:
    principal, wanted = session.principal, search.strip().lower()
    seen = [query for query in sample.queries.values() if principal.may_name(query.name)]
    found = [
        query
        for query in seen
        if wanted in query.name.lower() or (query.cause is not None and wanted in query.cause.text.lower())
    ]
    found.sort(key=_SORTS[sort])
    streams = [stream for stream in sample.streams.values() if principal.may_name(stream.name)]
    events = [event for event in list(sampler.events) if principal.may_name(event.name)]
    return Overview(
        at_s=sample.at_s,
        version=__version__,
        policy=sample.policy,
        user=principal.name,
        role=principal.role.word,
        problems=list(sample.problems) if not principal.names else [],
        streams=[StreamFigures.model_validate(asdict(stream)) for stream in streams],
        queries=[QueryLine.model_validate(asdict(query)) for query in found[offset : offset + limit]],
        total=len(seen),
        matching=len(found),
        needing_attention=sum(query.attention > 1 for query in seen),
        rate_in=sum(stream.rate for stream in streams),
        rate_out=sum(query.rate for query in seen),
        cpu=sum(query.cpu for query in seen),
        rows_waiting=sum(task.rows_waiting for task in sample.tasks.values()),
        state_bytes=sum(task.state_bytes for task in sample.tasks.values()),
        workers=[WorkerFigures.model_validate(asdict(worker)) for worker in sample.workers],
        events=[EventBody.model_validate(asdict(event)) for event in events[:_EVENTS_SHOWN]],
    )


def _add_graph(app: FastAPI, service: MillService, sampler: Sampler) -> None:
    @app.get("/v1/graph", responses=REFUSED, tags=["console"])
    async def graph(
        session: CurrentSession,
        query: Annotated[str | None, Query(max_length=1000)] = None,
        component: Annotated[int | None, Query(ge=0)] = None,
        fold: FoldMode | None = None,
        limit: Annotated[int, Query(ge=1, le=2000)] = 150,
    ) -> GraphBody:
        """Return the running query graph with its rates: ancestors of a query, a component, or all.

        Large graphs are folded, unless `fold` is set.
        """
        session.require_all_names(query)
        name = None if query is None else session.query(query).name

        def read() -> GraphBody:
            found = LiveGraphReader(service.mill, sampler.look()).read(name, component, fold, limit)
            return GraphBody(
                nodes=[GraphNode.model_validate(asdict(node)) for node in found.nodes],
                arcs=[GraphArc.model_validate(asdict(arc)) for arc in found.arcs],
                components=found.components,
                left_out=found.left_out,
                shared_cpu=found.shared_cpu,
                alone_cpu=found.alone_cpu,
            )

        return await in_thread(read)

    @app.get("/v1/graph/components", responses=REFUSED, tags=["console"])
    async def components(session: CurrentSession) -> list[ComponentLine]:
        """Return the connected components of the query graph, by descending number of queries."""
        session.require_all_names(None)
        found = await in_thread(lambda: components_of(service.mill, sampler.look()))
        return [ComponentLine.model_validate(asdict(one)) for one in found]


def _add_preview(app: FastAPI, service: MillService) -> None:
    @app.post("/v1/preview", responses=REFUSED, tags=["console"])
    async def preview_text(body: StatementText, session: CurrentSession) -> PlanPreview:
        """Return the plan of the queries in a text, and the operators they would share. Nothing is run."""
        session.require_all_names(None)
        found = await in_thread(lambda: preview(service.mill, body.text))
        return PlanPreview.model_validate(asdict(found))


def _add_completions(app: FastAPI) -> None:
    @app.get("/v1/words", responses=REFUSED, tags=["console"])
    async def words(session: CurrentSession) -> EditorWords:
        """Return the words that an editor of statements can highlight and complete."""
        return EditorWords.model_validate(asdict(await in_thread(lambda: completions_for(session))))


def _add_slices(app: FastAPI, service: MillService, watch: SliceWatch) -> None:
    @app.get("/v1/slices", responses=REFUSED, tags=["console"])
    async def chains(session: CurrentSession) -> list[SliceChain]:
        """Return the tasks whose joins store state slices, without the slices."""
        session.require_all_names(None)
        tasks = service.mill.dispatcher.tasks
        found = await in_thread(watch.chains)
        return [_chain(session, StoredChain(one.task, [], [], [])) for one in found if one.task in tasks]

    @app.get("/v1/slices/{query}", responses=REFUSED, tags=["console"])
    async def slices(query: str, session: CurrentSession) -> list[SliceChain]:
        """Return the state slices that the joins of a query use, as of the last checkpoint."""
        name = session.query(query).name

        def read() -> list[SliceChain]:
            return [_chain(session, chain) for chain in watch.chains(_tasks_of(service, name))]

        return await in_thread(read)


def _tasks_of(service: MillService, query: str) -> set[str]:
    """Return the tasks that a query depends on."""
    graph = service.mill.running.plan.graph
    needed = graph.ancestors(query) if query in graph.nodes else frozenset()
    tasks = service.mill.dispatcher.running.tasks
    return {task.id for task in tasks if not needed.isdisjoint(task.plan.task.nodes)}


def _chain(session: UserSession, chain: StoredChain) -> SliceChain:
    mill, sees = session.service.mill, session.principal.may_name
    running = mill.dispatcher.tasks.get(chain.task)
    outputs = [log for _, log in running.plan.task.outputs] if running is not None else []
    inputs = inputs_of(mill, chain.task)
    return SliceChain(
        task=chain.task,
        subtasks=running.subtasks if running is not None else 1,
        queries=[log for log in outputs if log in mill.queries and sees(log)],
        slices=[
            StoredSliceBody(
                subtask=one.subtask,
                worker=mill.dispatcher.worker_of(running, one.subtask) if running else None,
                part=name_part(one.part, inputs),
                rows=one.rows,
                bytes=one.bytes,
                earliest_us=one.earliest_us,
                latest_us=one.latest_us,
                wanted={who: rows for who, rows in one.wanted.items() if sees(who)},
            )
            for one in chain.slices
        ],
        cuts=[
            CutsBody(
                subtask=subtask,
                part=name_part(one.part, inputs),
                rate=one.rate,
                finest=list(one.finest),
                cheapest=list(one.cheapest),
                used=list(one.used),
                expected_rows=one.expected_rows,
            )
            for subtask, one in chain.cuts
        ],
        reaches={who: back for who, back in window_extents(mill, chain.task).items() if sees(who)},
        moves=[
            CutMoveBody.model_validate(asdict(move) | {"part": name_part(move.part, inputs)})
            for move in chain.moves
        ],
    )


def _add_scheduling(app: FastAPI, service: MillService, sampler: Sampler) -> None:
    @app.get("/v1/policies", responses=REFUSED, tags=["console"])
    async def policies(session: CurrentSession) -> Policies:
        """Return all scheduling policies, the current policy, and the priority of each task."""
        session.require_all_names(None)
        found = await in_thread(lambda: priorities_of(service.mill, sampler.look()))
        chooser = service.mill.dispatcher.chooser
        return Policies(
            policy=chooser.policy.name,
            components={name: policy.name for name, policy in chooser.components.items()},
            policies=[
                PolicyLine(name=policy.name, aim=policy.aim, rule=RULES[policy.name])
                for policy in POLICIES.values()
            ],
            tasks=[TaskPriority.model_validate(asdict(one)) for one in found],
        )

    @app.post("/v1/simulate", responses=REFUSED, tags=["console"])
    async def simulate(body: PlanRequest, session: CurrentSession) -> PlanAnswer:
        """Simulate response times and slowdown for a load, with the costs that this server has measured."""
        session.require_all_names(None)
        if body.text:
            await in_thread(lambda: session.check_trial(body.text))
        verdict, outcomes = await in_thread(
            lambda: simulate_policies(
                service.mill, body.rates, body.policies, body.cores, body.seconds, body.text
            )
        )
        return PlanAnswer(verdict=verdict, outcomes=outcomes)


def _add_tokens(app: FastAPI, access: Access) -> None:
    @app.get("/v1/tokens", responses=REFUSED, tags=["console"])
    async def tokens(session: CurrentSession) -> list[TokenLine]:
        """Return the principals that have tokens, with roles and names, but without the tokens."""
        session.principal.require(UserRole.ADMIN, "listing tokens")
        return [
            TokenLine(name=entry["name"], role=entry["role"], names=entry["names"])
            for entry in access.entries()
        ]

    @app.post("/v1/tokens", responses=REFUSED, tags=["console"])
    async def add_token(body: TokenRequest, session: CurrentSession) -> MadeToken:
        """Create a token. The first token must be an admin's; from then on every client needs a token."""
        session.principal.require(UserRole.ADMIN, "creating a token")
        if not access.requires_token and (body.role.lower() != UserRole.ADMIN.word or body.names):
            raise SlicemillError(
                "the first token must have role admin and all names, so that it can create other tokens"
            )
        return MadeToken(token=access.add(body.name, body.role, body.names, wall_clock_us()))

    @app.delete("/v1/tokens/{name}", responses=REFUSED, tags=["console"], status_code=204)
    async def drop_token(name: str, session: CurrentSession) -> None:
        """Revoke a token."""
        session.principal.require(UserRole.ADMIN, "revoking a token")
        if name == session.principal.name:
            raise SlicemillError("your own token cannot be revoked; ask another admin to revoke it")
        access.drop(name)


# Static files of the web console
#
# `make console` builds the files. Without them, a page describes how to build them.


FOLDER = Path(__file__).resolve().parents[1] / "console"
NOT_BUILT = "the web console is not built; run `make console`, which needs npm's registry once"
# Content security policy: nothing from other hosts, no inline code or style sheet, no embedding in frames.
# Inline style attributes are allowed, because browsers write them in text editors.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; "
    "img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
}
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_START = "index.html"
_NO_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>slicemill</title>
<h1>slicemill runs, without its console</h1>
<p>Build it with <code>make console</code> in a checkout (it needs npm's registry once) and start the server
again. <a href="/health">/health</a> and <a href="/openapi.json">/openapi.json</a> are there all the same.</p>
</html>
"""


@dataclass(frozen=True, slots=True)
class ConsoleFile:
    """File of the console in memory, plain and compressed."""

    content: bytes
    packed: bytes
    media_type: str
    lasting: bool
    """True if the name contains a digest of the content. The file can then be cached for ever."""


def console_files(folder: Path = FOLDER) -> dict[str, ConsoleFile]:
    """Return the built files of the console, or an empty dict if the console was not built."""
    if not (folder / _START).is_file():
        return {}
    found = {}
    for path in sorted(folder.iterdir()):
        if path.suffix in _TYPES:
            content = path.read_bytes()
            packed = gzip.compress(content, 9, mtime=0)
            lasting = path.suffix in (".js", ".css")
            found[path.name] = ConsoleFile(content, packed, _TYPES[path.suffix], lasting)
    return found


def add_console_files(app: FastAPI, folder: Path = FOLDER) -> None:
    """Serve the console at `/` and its files below `/console`."""
    files = console_files(folder)

    @app.get("/", include_in_schema=False)
    async def start(request: Request) -> Response:
        if not files:
            return HTMLResponse(_NO_PAGE, headers=_HEADERS)
        return _answer(files[_START], request)

    @app.get("/console/{name}", include_in_schema=False)
    async def file(name: str, request: Request) -> Response:
        found = files.get(name)
        return Response(status_code=404) if found is None else _answer(found, request)


def _answer(file: ConsoleFile, request: Request) -> Response:
    headers = {
        **_HEADERS,
        "Cache-Control": "public, max-age=31536000, immutable" if file.lasting else "no-cache",
        "Vary": "Accept-Encoding",
    }
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        return Response(file.packed, media_type=file.media_type, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)
