"""Which streams are read by which ingest query, and restarting those when queries need something else.

A checkpoint belongs to one set of sources. So streams that are first read together stay together, for good: a
group. A stream that is declared later gets a group of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from slicemill.engine.cause import cause
from slicemill.errors import SlicemillError
from slicemill.ingest.ingest import Feed, open_feed, start_ingest
from slicemill.ingest.intake import Intake
from slicemill.ingest.needs import Need
from slicemill.storage.files import LOCAL, ensure_folder, write_whole

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_GROUPS = "groups.json"


@dataclass
class Reader:
    """All ingest queries of a mill. `frames` are those that a program has given for streams."""

    spark: SparkSession
    sources: Path
    folder: Path
    clock: Callable[[], int]
    notify: Callable[[], None]
    frames: dict[str, DataFrame] = field(default_factory=dict)
    _running: dict[int, tuple[StreamingQuery, Mapping[str, Need]]] = field(default_factory=dict)

    def start(self, intakes: Mapping[str, Intake], needs: Mapping[str, Need], poll_ms: int) -> None:
        """Read every stream that has a source; groups that read already, and need nothing else, go on."""
        for number, streams in enumerate(self._groups(intakes)):
            wanted = {name: needs[name] for name in streams}
            if number in self._running:
                query, known = self._running[number]
                if known == wanted and query.isActive:
                    continue
                query.stop()
            feeds = {name: self._feed(intakes[name], wanted[name]) for name in streams}
            checkpoint = self.sources / f"checkpoint-{number}"
            query = start_ingest(feeds, intakes, checkpoint, poll_ms, self.clock, self.notify)
            self._running[number] = (query, wanted)

    def stop_outdated(self, needs: Mapping[str, Need]) -> None:
        """Stop the groups that leave out rows which are needed from now on."""
        for number, (query, known) in list(self._running.items()):
            if known != {name: needs[name] for name in known}:
                query.stop()
                del self._running[number]

    def read_to_the_end(self, intakes: Mapping[str, Intake], needs: Mapping[str, Need]) -> None:
        """Read all that the sources hold now."""
        self.stop()
        self.start(intakes, needs, 0)
        for query, _ in self._running.values():
            _until_it_ends(query)
        self._running.clear()

    def stop(self) -> None:
        for query, _ in self._running.values():
            query.stop()
        self._running.clear()

    def failure(self) -> str | None:
        """Why an ingest query has stopped by itself, if one has."""
        for query, _ in self._running.values():
            problem = query.exception()
            if problem is not None:
                return cause(problem)
        return None

    def _feed(self, intake: Intake, need: Need) -> Feed:
        given = self.frames.get(intake.stream.name.lower())
        return open_feed(self.spark, intake, need, self.sources, self.folder, given)

    def _groups(self, intakes: Mapping[str, Intake]) -> list[list[str]]:
        groups = self._known_groups()
        known = self.streams()
        missing = sorted(known - set(intakes))
        if missing:
            raise SlicemillError(
                f"this home reads {', '.join(missing)} together with other streams; declare it, with or "
                "without a query that reads it, or use a new home"
            )
        fresh = sorted(
            name for name, intake in intakes.items() if name not in known and self._has_source(intake)
        )
        if fresh:
            groups.append(fresh)
            ensure_folder(LOCAL, self.sources)
            write_whole(LOCAL, self.sources / _GROUPS, json.dumps(groups).encode())
        return groups

    def streams(self) -> set[str]:
        """The streams that have been read in this home."""
        return {name for group in self._known_groups() for name in group}

    def _known_groups(self) -> list[list[str]]:
        path = self.sources / _GROUPS
        groups: list[list[str]] = json.loads(path.read_text()) if path.exists() else []
        return groups

    def _has_source(self, intake: Intake) -> bool:
        source = intake.stream.source
        return intake.stream.name.lower() in self.frames or bool(source.url or source.format)


def _until_it_ends(query: StreamingQuery) -> None:
    from pyspark.errors import StreamingQueryException

    try:
        query.awaitTermination()
    except StreamingQueryException as problem:
        raise SlicemillError(f"reading the sources stopped: {cause(problem)}") from problem
