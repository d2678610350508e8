"""The origin of a stream or table: the format and options that its source clause names.

A source is a URL (`tcp://host:port`, `port4445`, `rate://?rowsPerSecond=5`, `nexmark://bid?rate=1000`,
`rfid://reading?tags=5`, `highway://road?days=7`, `kafka://host:9092/topic`, a path with options like
`readings?format=csv`) or `USING format OPTIONS (…)`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from slicemill.errors import SlicemillError
from slicemill.esl.types.catalog import SourceSpec

LINES_IN_FILES = ("csv", "json", "jsonl", "ndjson")
TYPED_FILES = ("parquet", "orc", "avro")

_PORT = re.compile(r"port(\d+)")


@dataclass(frozen=True, slots=True)
class SourceOrigin:
    """A format and its options, in lower case where Spark does not care."""

    format: str
    options: Mapping[str, str]

    def option(self, name: str) -> str | None:
        return {key.lower(): value for key, value in self.options.items()}.get(name.lower())

    def without(self, *names: str) -> dict[str, str]:
        return {key: value for key, value in self.options.items() if key.lower() not in names}

    def path(self, folder: Path) -> Path | None:
        """The file or folder on this machine that is named, taken from `folder`; None if it is elsewhere."""
        given = self.option("path")
        if given is None:
            raise SlicemillError(f"USING {self.format} needs OPTIONS (path '…')")
        if urlsplit(given).scheme not in ("", "file"):
            return None
        return folder / (urlsplit(given).path if given.startswith("file:") else given)


def origin_of(spec: SourceSpec, name: str, folder: Path = Path()) -> SourceOrigin:
    """The origin that a source clause names; `name` is what is declared with it."""
    if spec.format is not None:
        return SourceOrigin(spec.format.lower(), dict(spec.options))
    if spec.url is None:
        raise SlicemillError(f"{name} has no SOURCE, so there is nothing to read; rows are fed by a program")
    port = _PORT.fullmatch(spec.url)
    url = urlsplit(f"tcp://localhost:{port[1]}" if port else spec.url)
    options = dict(parse_qsl(url.query))
    if url.scheme == "tcp":
        return SourceOrigin(
            "tcp", {"host": url.hostname or "", "port": url.netloc.rpartition(":")[2], **options}
        )
    if url.scheme in ("highway", "nexmark", "rfid"):
        return SourceOrigin(url.scheme, {"stream": url.netloc or url.path.strip("/"), **options})
    if url.scheme == "kafka":
        return SourceOrigin(
            "kafka", {"kafka.bootstrap.servers": url.netloc, "subscribe": url.path.strip("/"), **options}
        )
    if url.scheme == "rate":
        return SourceOrigin("rate", options)
    path = unquote(url.path) if url.scheme == "file" else spec.url.partition("?")[0]
    return SourceOrigin(options.pop("format", "") or _format_of(folder / path), {"path": path, **options})


def _format_of(path: Path) -> str:
    """By a file's name, or that of a file in the folder."""
    inside = sorted(path.glob("[!._]*")) if path.is_dir() else []
    for entry in (path, *inside):
        for suffix in entry.suffixes:
            if suffix[1:].lower() in (*LINES_IN_FILES, *TYPED_FILES):
                return suffix[1:].lower()
    if not path.exists() and not set("*?[{") & set(str(path)):
        raise SlicemillError(f"there is no file or folder {path}")
    raise SlicemillError(f"cannot tell the format of {path}; say USING csv OPTIONS (path '…'), or another")


def is_socket(spec: SourceSpec) -> bool:
    """Do lines come to it, which nobody could read a second time?"""
    if spec.format is not None:
        return spec.format.lower() == "tcp"
    return spec.url is not None and bool(_PORT.fullmatch(spec.url) or urlsplit(spec.url).scheme == "tcp")
