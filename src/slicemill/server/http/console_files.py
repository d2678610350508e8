"""Static files of the web console, as built by `make console`, or a page that says how to build it."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response

FOLDER = Path(__file__).resolve().parents[1] / "console"
NOT_BUILT = "without the console: it is built by `make console`, which needs npm's registry once"
# Content security policy: nothing from other hosts, no inline code or style sheet, no embedding in frames.
# Browsers write inline style attributes themselves in text editors.
# attributes themselves where text is edited.
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
    """File in memory, plain and compressed."""

    content: bytes
    packed: bytes
    media_type: str
    lasting: bool
    """True if the name contains a digest of the content, so the file can be cached for ever."""


def console_files(folder: Path = FOLDER) -> dict[str, ConsoleFile]:
    """Return the built files; empty if the console was not built."""
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
