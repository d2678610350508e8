"""The steps at which drivers and workers are killed, chain by chain.

A chain is one home: a run is killed at the first point, the next run at the second, and so on; the last runs
to the end. A run whose worker is killed goes on to the next point.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from recovery.kill import (
    ADMIT,
    AFTER,
    ANYWHERE,
    BEFORE,
    COMMIT,
    DRAINING,
    DRIVER,
    OPERATIONS,
    TORN,
    WORKER,
    Point,
)


def _in(phase: str, points: Iterable[Point]) -> tuple[Point, ...]:
    return tuple(replace(point, phase=phase) for point in points)


# The units of queries that share a join's slices or a window's panes are called after what they share.
_JOINS = "joins%20of[^/]*"
_WINDOWS = "windows%20of[^/]*"

_STARTING = (
    Point("a log exists without its schema", DRIVER, "replace", r"^logs/bid/schema"),
    Point("a stream's intake has no identity yet", DRIVER, "replace", r"^intake/bid/unit.json"),
    Point("a stream's intake has no version yet", DRIVER, "link", r"^intake/ask/versions/"),
    Point("some units exist", DRIVER, "link", r"^units/[^/]+/versions/", AFTER, 3),
    Point("a unit has no version yet", DRIVER, "link", r"^units/[^/]+/versions/", nth=2),
    Point("nothing says yet which streams are read together", DRIVER, "replace", r"^sources/groups"),
    Point("the streams' groups are known, nothing is read", DRIVER, "replace", r"^sources/groups", AFTER),
)

_READING = (
    Point("before the packer writes a chunk", WORKER, "write", r"^logs/bid/chunks/", nth=2),
    Point("in the middle of the packer's chunk", WORKER, "write", r"^logs/bid/chunks/", TORN),
    Point("after the packer has written a chunk", WORKER, "write", r"^logs/ask/chunks/", AFTER, 2),
    Point("between the packer's bad and good rows", WORKER, "write", r"^logs/bid_errors/chunks/", AFTER),
    Point("before tuples held back are put in order", DRIVER, "write", r"^logs/ask/chunks/", nth=2),
    Point("after late tuples are written", DRIVER, "write", r"^logs/bid_late/chunks/", AFTER),
    Point("after held tuples are written", DRIVER, "write", r"^intake/ask/slices/", AFTER, 2),
    Point("in the middle of an intake's manifest", DRIVER, "write", r"^intake/bid/versions/", TORN),
    Point("before an intake's commit", DRIVER, "link", r"^intake/bid/versions/", nth=2),
    Point("after an intake's commit, before the log", DRIVER, "link", r"^intake/bid/versions/", AFTER),
    Point("between two logs of one intake", DRIVER, "link", r"^logs/bid_errors/epochs/", AFTER),
    Point("before the log's epoch", DRIVER, "link", r"^logs/ask/epochs/", nth=2),
    Point("after the log's epoch", DRIVER, "link", r"^logs/bid/epochs/", AFTER, 2),
    Point("between the commits of two streams of a batch", DRIVER, ADMIT, r"^ask$", nth=2),
    Point("after our commits, before Spark's", DRIVER, ADMIT, r"^ask$", AFTER),
    Point("after Spark's commit, with the next batch read", DRIVER, ADMIT, r"^bid$", nth=2),
    Point("while an intake's old versions go", DRIVER, "remove", r"^intake/ask/versions/.*json$", AFTER),
    Point("while an intake's old slices go", DRIVER, "remove", r"^intake/ask/slices/"),
    Point("before a log's manifests are merged", DRIVER, "replace", r"^logs/bid/epochs/"),
    Point("after a log's manifests are merged", DRIVER, "replace", r"^logs/bid/epochs/", AFTER),
)

_RUNNING = (
    Point("before a task writes results", WORKER, "write", r"^logs/every/chunks/"),
    Point("in the middle of a task's results", WORKER, "write", r"^logs/match/chunks/", TORN),
    Point("after a task has written results", WORKER, "write", r"^logs/both/chunks/", AFTER),
    Point("before a task writes state", WORKER, "write", r"^units/level/slices/", nth=2),
    Point("in the middle of a task's state", WORKER, "write", rf"^units/{_JOINS}/slices/", TORN),
    Point("before a task writes the panes of windows", WORKER, "write", rf"^units/{_WINDOWS}/slices/"),
    Point("after a task has written state", WORKER, "write", r"^units/mean/slices/", AFTER),
    Point("before a unit's commit", DRIVER, "link", r"^units/level/versions/"),
    Point("after a unit's commit, before the result log", DRIVER, "link", r"^units/both/versions/", AFTER),
    Point("in the middle of a unit's manifest", DRIVER, "write", rf"^units/{_JOINS}/versions/", TORN),
    Point("between two result logs of a unit", DRIVER, "link", r"^logs/(every|cheap)/epochs/", AFTER),
    Point("after a result log's epoch", DRIVER, "link", r"^logs/match/epochs/", AFTER),
    Point("between a derived stream and its reader", DRIVER, "link", r"^logs/dear_bid/epochs/", AFTER),
    Point("between two units", DRIVER, "remove", r"^logs/level/epochs/.*tmp$", AFTER),
    Point("while a unit's old versions go", DRIVER, "remove", r"^units/mean/versions/.*json$", AFTER),
    Point("while a unit's old slices go", DRIVER, "remove", r"^units/level/slices/", AFTER),
)

_FREEING = (
    Point("before a log's new start is named", DRIVER, "replace", r"^logs/bid/base.json"),
    Point("after a log's new start, with all files there", DRIVER, "replace", r"^logs/bid/base.json", AFTER),
    Point("between the removals of two chunks", DRIVER, "remove", r"^logs/bid/chunks/", AFTER),
    Point("before the removal of a manifest", DRIVER, "remove", r"^logs/ask/epochs/[\d-]+.json$"),
    Point("after the removal of a manifest", DRIVER, "remove", r"^logs/dear_bid/epochs/[\d-]+.json$", AFTER),
)

_ENDING = (
    Point("before the last held tuples are admitted", DRIVER, "write", r"^logs/ask/chunks/"),
    Point("after the last held tuples are admitted", DRIVER, "link", r"^intake/ask/versions/", AFTER),
    Point("after some units have been told the end", DRIVER, "link", r"^units/[^/]+/versions/", AFTER, 3),
    Point("before the last windows are in their log", DRIVER, "link", r"^logs/busy/epochs/"),
)

# All but the first are reached before anything runs again.
_RECOVERING = (
    Point("a promise is left", DRIVER, "link", r"^units/both/versions/", AFTER, 2),
    Point("before a promise is kept", DRIVER, "link", r"^logs/both/epochs/"),
    Point("after a promise is kept", DRIVER, "link", r"^logs/both/epochs/", AFTER),
    Point("before a unit promises nothing any more", DRIVER, "link", r"^units/both/versions/"),
    Point(
        "between the removals of what nobody names",
        DRIVER,
        "remove",
        r"^\w+/\w+/(chunks|slices|epochs|versions)/",
        AFTER,
    ),
)

# The driver goes on: Spark tries again.
_WORKERS = (
    Point("a packer in the middle of a chunk", WORKER, "write", r"^logs/bid/chunks/", TORN, 2, WORKER),
    Point("a task before its results", WORKER, "write", r"^logs/match/chunks/", victim=WORKER),
    Point("a task between results and state", WORKER, "write", r"^logs/level/chunks/", AFTER, 2, WORKER),
    Point("a task after its state", WORKER, "write", r"^units/both/slices/", AFTER, 1, WORKER),
)

# The query `every` goes to files, `match` to a database; each has a cursor in the home.
_DELIVERING = (
    Point("before a sink has a cursor", DRIVER, "replace", r"^sinks/every/", phase=ANYWHERE),
    Point("a sink's folder is nobody's yet", DRIVER, "replace", r"^../out/_slicemill"),
    Point("in the middle of a sink's file", DRIVER, "write", r"^../out/_unfinished", TORN),
    Point("before a sink's file has its name", DRIVER, "replace", r"^../out/\d"),
    Point("after a sink's file, before its cursor", DRIVER, "replace", r"^../out/\d", AFTER),
    Point("before a sink's cursor moves", DRIVER, "replace", r"^sinks/match/", nth=2),
    Point("after a sink's cursor has moved", DRIVER, "replace", r"^sinks/every/", AFTER),
    Point("before the database commits", DRIVER, COMMIT, "database", nth=2),
    Point("after the database's commit, before the cursor", DRIVER, COMMIT, "database", AFTER, 2),
)


def _seeded(seed: int, count: int) -> Iterator[Point]:
    """Whatever is being written, linked, renamed, removed or committed, early in a run."""
    dice = random.Random(seed)
    steps = ((WORKER, "write"), *((DRIVER, operation) for operation in (*OPERATIONS, COMMIT)))
    for number in range(count):
        process, operation = dice.choice(steps)
        when = dice.choice((BEFORE, AFTER, TORN) if operation == "write" else (BEFORE, AFTER))
        nth = dice.randint(1, 2 if operation == COMMIT else 5)
        yield Point(f"{number} of seed {seed}", process, operation, "", when, nth)


CHAINS: Mapping[str, tuple[Point, ...]] = {
    "starting": _in(ANYWHERE, _STARTING),
    "reading": _READING,
    "running": _RUNNING,
    "delivering": _DELIVERING,
    "freeing": _FREEING,
    "ending": _in(DRAINING, _ENDING),
    "recovering": (_RECOVERING[0], *_in(ANYWHERE, _RECOVERING[1:])),
    "workers": _WORKERS,
    "seeded": tuple(_seeded(seed=1, count=20)),
}


def _named(*names: str) -> tuple[Point, ...]:
    points = {point.name: point for chain in CHAINS.values() for point in chain}
    return tuple(points[name] for name in names)


def _at_once(*names: str) -> tuple[Point, ...]:
    # The first transaction of a run only asks where to go on.
    return tuple(p if p.operation == COMMIT else replace(p, nth=1) for p in _named(*names))


# One of each kind, for a JVM that dies with its driver, which takes longest to start again.
WITH_JVM = _named(
    "in the middle of a task's state",
    "after our commits, before Spark's",
    "after a unit's commit, before the result log",
)

# What every test run has time for: before and after every kind of write, link and commit, at the first
# occasion, so that little has to be read on the way.
SHORT = _at_once(
    "a unit has no version yet",
    "before the packer writes a chunk",
    "after the packer has written a chunk",
    "before an intake's commit",
    "after an intake's commit, before the log",
    "before the log's epoch",
    "after our commits, before Spark's",
    "in the middle of a task's results",
    "before a task writes state",
    "a packer in the middle of a chunk",
    "a task between results and state",
    "after a task has written state",
    "before a unit's commit",
    "after a unit's commit, before the result log",
    "between a derived stream and its reader",
    "in the middle of a sink's file",
    "after a sink's file, before its cursor",
    "before the database commits",
    "after the database's commit, before the cursor",
    "after a log's new start, with all files there",
)
