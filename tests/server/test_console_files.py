"""Static files of the console, and the page of a server without built files."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path

import httpx
from fastapi import FastAPI

from slicemill.server.http.console_routes import add_console_files, console_files


def get(folder: Path, path: str, encoding: str = "gzip") -> httpx.Response:
    app = FastAPI()
    add_console_files(app, folder)

    async def asked() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return await client.get(path, headers={"accept-encoding": encoding})

    return asyncio.run(asked())


def built(folder: Path) -> Path:
    (folder / "index.html").write_text("<p>here</p>")
    (folder / "console-ABC.js").write_text("1;" * 1000)
    (folder / "licences.txt").write_text("MIT")
    return folder


def test_console_files_are_compressed_cached_and_restricted_by_a_content_security_policy(
    tmp_path: Path,
) -> None:
    folder = built(tmp_path)
    page = get(folder, "/")
    assert (page.text, page.headers["cache-control"]) == ("<p>here</p>", "no-cache")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    script = get(folder, "/console/console-ABC.js")
    assert "immutable" in script.headers["cache-control"]
    assert (script.headers["content-encoding"], len(script.text)) == ("gzip", 2000)
    plain = get(folder, "/console/console-ABC.js", "identity")
    assert "content-encoding" not in plain.headers


def test_files_outside_of_the_console_folder_are_not_served(tmp_path: Path) -> None:
    (tmp_path / "secret.py").write_text("x")
    folder = built(tmp_path)
    for name in ("secret.py", "..%2findex.html", "nothing.js"):
        assert get(folder, f"/console/{name}").status_code == 404


def test_a_server_without_console_files_shows_how_to_build_them(tmp_path: Path) -> None:
    assert console_files(tmp_path) == {}
    page = get(tmp_path, "/")
    assert (page.status_code, "make console" in page.text) == (200, True)


def test_compression_of_console_files_is_deterministic(tmp_path: Path) -> None:
    first, second = (console_files(built(tmp_path))["index.html"] for _ in range(2))
    assert first.packed == second.packed
    assert gzip.decompress(first.packed) == first.content
