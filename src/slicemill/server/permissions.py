"""What statements that come over the network may do: names, code, files and addresses.

The operator of a server says which folders and schemes statements may name, and whether they may run code in
Python. What the operator writes into the script of `slicemill serve` is not asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from slicemill.connectors.origin import origin_of
from slicemill.connectors.webhook import host_and_port
from slicemill.esl.types.aggregate import AggregateDefinition
from slicemill.esl.types.alert import Alert
from slicemill.esl.types.catalog import (
    AlteredQuery,
    Catalog,
    DerivedStream,
    QueryDefinition,
    SourceSpec,
    Statement,
    Stream,
    Table,
    View,
    relations_of,
    tables_written,
)
from slicemill.esl.types.classifier import Classifier
from slicemill.esl.types.function import FunctionDefinition
from slicemill.plan.reads import relations_read
from slicemill.server.access import Denied

_FILES = frozenset(("", "file", "csv", "json", "jsonl", "parquet", "arrow"))
# Rows that are made here, by formula: no file is read and nobody is asked.
MADE_HERE = frozenset(("nexmark", "rfid", "highway", "rate", "memory", "console"))


@dataclass(frozen=True, slots=True)
class Allowed:
    """What an operator allows: folders below which files may be, schemes, code in Python, webhooks' hosts."""

    folders: tuple[Path, ...] = ()
    schemes: frozenset[str] = frozenset()
    python: bool = False
    webhooks: frozenset[str] = frozenset()

    def check(self, statements: Iterable[Statement]) -> None:
        """Raise Denied if one of some statements does what is not allowed."""
        for statement in statements:
            if (code := _code(statement)) is not None and not self.python:
                raise Denied(
                    f"{statement.name} runs code in Python ({code}); start the server with --allow-python"
                )
            if isinstance(statement, Alert):
                self._check_webhook(statement)
            for place in _places(statement):
                self._check_place(place, statement.name)

    def _check_webhook(self, alert: Alert) -> None:
        """A host is named without a port for the usual one of its scheme, with a port for that one."""
        host, port = host_and_port(alert.url)
        shown = f"[{host}]" if ":" in host else host
        usual = port == (443 if alert.url.lower().startswith("https:") else 80)
        if f"{shown}:{port}" not in self.webhooks and not (usual and shown in self.webhooks):
            needed = shown if usual else f"{shown}:{port}"
            raise Denied(f"{alert.name} tells {needed}; start the server with --allow-webhook {needed}")

    def _check_place(self, place: str, name: str) -> None:
        scheme, colon, rest = place.partition(":")
        scheme = scheme.lower() if colon else ""
        if scheme in MADE_HERE or scheme in self.schemes:
            return
        parts = urlsplit(place)
        if scheme in _FILES:
            path = unquote(parts.path if scheme == "file" else (rest if colon else place).partition("?")[0])
            if any(_is_below(Path(path), folder) for folder in self.folders):
                return
            raise Denied(f"{name} names {path}; start the server with --allow-folder for a folder above it")
        raise Denied(f"{name} names {scheme}:…; start the server with --allow-scheme {scheme}")


def _is_below(path: Path, folder: Path) -> bool:
    """With links followed: a link out of the folder leads out of it."""
    return path.resolve().is_relative_to(folder.resolve())


def relations_read_by(statement: Statement, catalog: Catalog) -> Iterator[str]:
    """The names in FROM of what a statement declares, and the tables that it writes.

    Of an alert it is what the alert is on, * where that is anything.
    """
    if isinstance(statement, AggregateDefinition):  # who calls it sees what its body reads
        yield from sorted(relations_read(catalog, statement))
        yield from (one.into for one in statement.written if one.into is not None)
    if isinstance(statement, (DerivedStream, View, QueryDefinition)):
        yield from relations_of(statement.query)
    written = statement.after if isinstance(statement, AlteredQuery) else statement
    if isinstance(written, (DerivedStream, View, QueryDefinition)):
        yield from tables_written(written)
    if isinstance(statement, Alert):
        yield "*" if statement.target is None else statement.target
    elif isinstance(statement, Table) and statement.materialized is not None:
        yield statement.materialized.name
    elif isinstance(statement, Classifier):
        yield from (*(entry.stream for entry in statement.inputs), statement.training)


def _code(statement: Statement) -> str | None:
    if isinstance(statement, (AggregateDefinition, FunctionDefinition)):
        return statement.external
    return statement.options.observe if isinstance(statement, Classifier) else None


def _places(statement: Statement) -> Iterator[str]:
    """What a statement names outside of the mill: sources and sinks, as scheme:rest."""
    if isinstance(statement, AlteredQuery) and statement.after.options.sink != statement.before.options.sink:
        yield from _places(statement.after)
    if isinstance(statement, QueryDefinition) and statement.options.table is None:
        yield from [statement.options.sink] if statement.options.sink is not None else []
    if isinstance(statement, (Stream, Table)) and statement.source != SourceSpec():
        spec = statement.source
        if spec.format is None and spec.url is not None and urlsplit(spec.url).scheme in ("", "file"):
            yield f"file:{urlsplit(spec.url).path}"
            return
        origin = origin_of(spec, statement.name)
        path = origin.option("path")
        if path is None:
            yield f"{origin.format}:"
        else:
            scheme = urlsplit(path).scheme
            yield path if scheme not in ("", "file") else f"file:{urlsplit(path).path}"
