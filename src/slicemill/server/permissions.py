"""Permissions of statements that arrive over the network: names, code, files and addresses.

Options of `slicemill serve` set which folders and schemes statements may use, and if they may run Python
code. Permissions are not checked for the start-up script of `slicemill serve`.

`guess_origin` and `sink_target` determine the file or address that a source or sink opens. The check uses
the same result as readers and sinks. Unknown formats and options are rejected, because any option may name a
file, a host or a class of the JVM.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import parse_qsl

from slicemill.catalog.aggregates import AggregateDefinition
from slicemill.catalog.alert import Alert
from slicemill.catalog.catalog import (
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
from slicemill.catalog.extended import ComputedStream
from slicemill.catalog.function import FunctionDefinition
from slicemill.catalog.table_change import TableChange, source_relations
from slicemill.connectors.files.listing import BY_SPARK, CSV_ONLY, GLOB, LISTING, WITHOUT_EFFECT
from slicemill.connectors.generators.generator import GENERATORS
from slicemill.connectors.origin import (
    GUESSED,
    LINES_IN_FILES,
    TYPED_FILES,
    SourceOrigin,
    climbs,
    guess_origin,
    scheme_of,
)
from slicemill.connectors.sinks.registry import POSTGRES_SINKS, SinkTarget, sink_target
from slicemill.connectors.webhook import Address, host_and_port
from slicemill.plan.statement_equality import relations_named
from slicemill.secrets import redact_address
from slicemill.server.auth import PermissionDenied
from slicemill.types import Schema

_FILES = (GUESSED, *LINES_IN_FILES, *TYPED_FILES)
# Sources of generated rows, and sinks whose results stay in the process: these open no file and no address
_SOURCES_HERE = (*GENERATORS, "rate")
_SINKS_HERE = ("memory", "console")

# options that let Spark move or delete the files that it has read
_MOVING = frozenset(("cleansource", "sourcearchivedir"))
_LINES = CSV_ONLY | {"lines"}
# Options of each format, in lower case. Generators and tcp check their options when a source is opened.
_OPTIONS = {
    **dict.fromkeys(_FILES, (LISTING | WITHOUT_EFFECT | CSV_ONLY | BY_SPARK) - _MOVING),
    "rate": frozenset(("rowspersecond", "rampuptime", "numpartitions")) | _LINES,
    "kafka": frozenset(
        (
            "kafka.bootstrap.servers",
            "kafka.client.id",
            "kafka.group.id",
            "kafka.security.protocol",
            "subscribe",
            "subscribepattern",
            "assign",
            "startingoffsets",
            "startingoffsetsbytimestamp",
            "startingtimestamp",
            "endingoffsets",
            "endingoffsetsbytimestamp",
            "endingtimestamp",
            "failondataloss",
            "groupidprefix",
            "includeheaders",
            "maxoffsetspertrigger",
            "minoffsetspertrigger",
            "maxtriggerdelay",
            "minpartitions",
        )
    )
    | _LINES,
}
# Options of PostgreSQL, except those that name files on the server (passfile, sslkey, service, …)
_POSTGRES_OPTIONS = frozenset(
    (
        "host",
        "hostaddr",
        "port",
        "dbname",
        "user",
        "password",
        "table",
        "sslmode",
        "connect_timeout",
        "application_name",
        "channel_binding",
        "client_encoding",
        "keepalives",
        "options",
        "target_session_attrs",
    )
)
_OPTION_REFUSED = (
    "{} has the option {}, which statements over the network must not use; remove the option, or put "
    "the statement into the start-up script of the server"
)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class ClientPermissions:
    """Permissions that the operator of a server grants: folders, schemes, Python code, and webhook hosts."""

    folders: tuple[Path, ...] = ()
    schemes: frozenset[str] = frozenset()
    python: bool = False
    webhooks: frozenset[str] = frozenset()

    def check(self, statements: Iterable[Statement], folder: Path = Path(), home: Path | None = None) -> None:
        """Raise PermissionDenied if a statement does something that is not allowed.

        Relative paths are resolved against `folder`. The `home` directory is never allowed, because it
        contains the hashes of tokens and the rows of all streams.
        """
        folder = Path(os.path.realpath(folder))
        for statement in statements:
            if (code := _code(statement)) is not None and not self.python:
                raise PermissionDenied(
                    f"{statement.name} runs Python code ({code}), which is not allowed; "
                    "start the server with --allow-python"
                )
            if isinstance(statement, Alert):
                self._check_webhook(statement)
            if isinstance(statement, (Stream, Table)) and statement.source != SourceSpec():
                self._check_source(
                    guess_origin(statement.source, statement.name, folder), statement.name, home
                )
            if (sink := _sink_named(statement)) is not None:
                self._check_sink(sink_target(sink, statement.name, folder), statement.name, home)

    def _check_webhook(self, alert: Alert) -> None:
        """Check the host to which an alert sends messages.

        An allowed host without a port means the default port of the scheme.
        """
        host, _ = host_and_port(alert.url)
        needed = self._webhook_needed(alert.url, host)
        if needed is not None:
            raise PermissionDenied(
                f"alert {alert.name} must not send messages to {needed}; "
                f"start the server with --allow-webhook {needed}"
            )

    def check_address(self, url: str, address: Address) -> None:
        """Raise PermissionDenied if an alert's host resolves to an address that is not allowed.

        A host name may resolve to public addresses, and localhost to loopback addresses. Any other address
        must be allowed explicitly. A host that is not in `webhooks` was named in a script of the operator,
        which is not checked.
        """
        host, _ = host_and_port(url)
        local = host == "localhost" or host.endswith(".localhost")
        if address.is_global or (local and address.is_loopback) or _is_address(host):
            return
        needed = self._webhook_needed(url, str(address))
        if needed is not None and self._webhook_needed(url, host) is None:
            raise PermissionDenied(
                f"{host} resolves to {address}, which is not a public address; start the server with "
                f"--allow-webhook {needed} as well"
            )

    def _webhook_needed(self, url: str, host: str) -> str | None:
        """Return the host that must be allowed for an alert's URL, or None if it is allowed."""
        _, port = host_and_port(url)
        shown = f"[{host}]" if ":" in host else host
        usual = port == (443 if url.lower().startswith("https:") else 80)
        if f"{shown}:{port}" in self.webhooks or (usual and shown in self.webhooks):
            return None
        return shown if usual else f"{shown}:{port}"

    def _check_source(self, origin: SourceOrigin, name: str, home: Path | None) -> None:
        """Check the format, the location, and every option of a source."""
        form = origin.format
        if form not in (*_FILES, *_SOURCES_HERE):
            self._require_scheme(form, name)
        path = origin.option("path")
        if origin.file is not None:
            self._check_path(origin.file, path or "", name, home)
        elif path is not None:  # Spark reads the path in another file system than the local one
            self._require_scheme(scheme_of(path), name)
        known = _OPTIONS.get(form)
        for option in origin.options:
            if option.lower() == "paths" or (known is not None and option.lower() not in known):
                raise PermissionDenied(_OPTION_REFUSED.format(name, option))

    def _check_sink(self, target: SinkTarget, name: str, home: Path | None) -> None:
        if target.path is not None:
            self._check_path(target.path, target.url.partition(":")[2], name, home)
            return
        if target.scheme not in _SINKS_HERE:
            self._require_scheme(target.scheme, name)
        if target.scheme in POSTGRES_SINKS:
            query = target.url.partition("?")[2]
            for option, _ in parse_qsl(query, keep_blank_values=True):
                if option not in _POSTGRES_OPTIONS:
                    raise PermissionDenied(_OPTION_REFUSED.format(f"the sink of {name}", option))

    def _require_scheme(self, scheme: str, name: str) -> None:
        if scheme not in self.schemes:
            raise PermissionDenied(
                f"{name} uses {scheme}:…, which is not allowed; start the server with --allow-scheme {scheme}"
            )

    def _check_path(self, path: Path, given: str, name: str, home: Path | None) -> None:
        """Check a path or glob pattern, after links in it are resolved.

        The path must be inside an allowed folder and outside of the home directory.
        """
        shown = redact_address(given)
        if climbs(path):
            raise PermissionDenied(f"{name} uses {shown}; write the path without ..")
        if not all(self._holds(place) for place in _resolve_links(path)):
            raise PermissionDenied(
                f"{name} uses {shown}, which is not allowed; "
                "start the server with --allow-folder for a folder above it"
            )
        if home is not None and any(_overlap(place, _real(home)) for place in _resolve_links(path)):
            raise PermissionDenied(
                f"{name} uses {shown}, which overlaps with the home directory of the server; "
                "use another folder"
            )

    def _holds(self, place: Path) -> bool:
        return any(place.is_relative_to(_real(folder)) for folder in self.folders)


def _real(path: Path) -> Path:
    """Return an absolute path with links resolved. The last parts of the path need not exist."""
    return Path(os.path.realpath(path))


def _overlap(place: Path, home: Path) -> bool:
    return place.is_relative_to(home) or home.is_relative_to(_folder_before_wildcard(place))


def _folder_before_wildcard(path: Path) -> Path:
    """Return the folder above the first wildcard of a glob pattern.

    A path without wildcards is returned unchanged. Spark reads a name with a wildcard as a pattern even if a
    file has that name.
    """
    first = next((number for number, part in enumerate(path.parts) if GLOB.search(part)), None)
    return path if first is None else Path(*path.parts[:first])


def _resolve_links(path: Path) -> Iterator[Path]:
    """Yield the resolved path and, recursively, the targets of all links below it."""
    waiting, known = [_real(path)], set[Path]()
    while waiting:
        place = waiting.pop()
        if place in known:
            continue
        known.add(place)
        yield place
        for folder, folders, files in os.walk(_folder_before_wildcard(place)):
            links = (Path(folder, entry) for entry in (*folders, *files))
            waiting += [_real(link) for link in links if link.is_symlink()]


def relations_read_by(statement: Statement, catalog: Catalog) -> Iterator[str]:
    """Yield the relations that a statement reads, and the tables that it writes.

    Relations read by aggregates and functions count for the statement that calls them. A view counts under
    its own name only, because its owner had access to the relations that it reads. An alert on a single
    object reads that object. An alert on all objects reads `*`.
    """
    yield from sorted(relations_named(catalog, _content(statement)))
    if isinstance(statement, AggregateDefinition):
        yield from (one.into for one in statement.written if one.into is not None)
    if isinstance(statement, FunctionDefinition) and isinstance(statement.returns, Schema):
        words = _tokenize(statement.body or "")
        yield from (one.name for one in catalog.relations.values() if _tokenize(one.name) <= words)
    if isinstance(statement, (DerivedStream, View, QueryDefinition)):
        yield from relations_of(statement.query)
    written = statement.after if isinstance(statement, AlteredQuery) else statement
    if isinstance(written, (DerivedStream, View, QueryDefinition)):
        yield from tables_written(written)
    if isinstance(statement, Alert):
        yield "*" if statement.target is None else statement.target
    elif isinstance(statement, Table) and statement.materialized is not None:
        yield statement.materialized.name
    elif isinstance(statement, ComputedStream):
        yield from statement.reads


def relations_changed(change: TableChange, catalog: Catalog) -> set[str]:
    """Return the relations that an INSERT, UPDATE or DELETE reads, directly or in called aggregates."""
    return {*source_relations(change), *relations_named(catalog, change)}


def _tokenize(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def _content(statement: Statement) -> object:
    """Return the part of a statement that may read relations and call aggregates."""
    if isinstance(statement, (DerivedStream, View, QueryDefinition)):
        return statement.query
    return statement if isinstance(statement, AggregateDefinition) else None


def _code(statement: Statement) -> str | None:
    if isinstance(statement, (AggregateDefinition, FunctionDefinition, ComputedStream)):
        return statement.external
    return None


def _sink_named(statement: Statement) -> str | None:
    """Return the sink of a query that writes to no table. For ALTER QUERY, return only a changed sink."""
    if isinstance(statement, AlteredQuery):
        same = statement.after.options.sink == statement.before.options.sink
        return None if same else _sink_named(statement.after)
    if isinstance(statement, QueryDefinition) and statement.options.table is None:
        return statement.options.sink
    return None
