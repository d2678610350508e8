"""The steps at which drivers and workers are killed, chain by chain.

A chain is one home: a run is killed at the first point, the next run at the second, and so on; the last runs
to the end. A run whose worker is killed goes on to the next point.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from recovery.kill import (
    AFTER,
    ANYWHERE,
    APPEND,
    BEFORE,
    CUT,
    DRAINING,
    DRIVER,
    ITEM,
    LEDGER,
    MESSAGE,
    REMOVE,
    REPLACE,
    RESTORE,
    STATE,
    TORN,
    TRANSACTION,
    WORKER,
    WRITE,
    Point,
)


def _in(phase: str, points: Iterable[Point]) -> tuple[Point, ...]:
    return tuple(replace(point, phase=phase) for point in points)


# Tasks are called after what their queries share; in folders a blank is %20.
_JOINS = r"joins(%20| )of"
_BIDS = r"aggregates(%20| )of(%20| )bid"
_ASKS = r"aggregates(%20| )of(%20| )ask"

_STARTING = (
    Point("a folder is no home yet", DRIVER, REPLACE, r"^FORMAT$"),
    Point("a home has no record yet", DRIVER, REPLACE, r"^FORMAT$", AFTER),
    Point("before the first logs are created", DRIVER, APPEND, r"^journal/.* created"),
    Point("in the middle of a catalog change", DRIVER, APPEND, r"^journal/.* created", TORN, 2),
    Point("after a catalog change", DRIVER, APPEND, r"^journal/.* created", AFTER),
    Point("before a statement is noted", DRIVER, APPEND, r"^journal/.* catalog", nth=2),
    Point("before a task exists", DRIVER, APPEND, r"^journal/.* new "),
    Point("units exist, and none has run", DRIVER, APPEND, r"^journal/.* new ", AFTER),
)
_FIRST_READ = Point("before a worker reads anything", WORKER, MESSAGE, r"read bid")

_READING = (
    Point("before rows of a stream are appended", WORKER, APPEND, r"^logs/bid/", nth=3),
    Point("in the middle of a stream's segment", WORKER, APPEND, r"^logs/bid/", TORN, 2),
    Point("in the middle of a segment's schema", WORKER, APPEND, r"^logs/ask/", TORN),
    Point("after rows of a stream are appended", WORKER, APPEND, r"^logs/ask/", AFTER, 2),
    Point("between good and bad rows", WORKER, APPEND, r"^logs/bid_errors/", AFTER, 2),
    Point("in the middle of bad rows", WORKER, APPEND, r"^logs/bid_errors/", TORN, 2),
    Point("in the middle of late rows", WORKER, APPEND, r"^logs/bid_late/", TORN, 2),
    Point("after late rows", WORKER, APPEND, r"^logs/ask_late/", AFTER, 2),
    Point("in the middle of held rows", WORKER, APPEND, r"^logs/ask_held/", TORN, 2),
    Point("after held rows, before the answer", WORKER, APPEND, r"^logs/ask_held/", AFTER, 3),
    Point("after a read, before its answer", WORKER, ITEM, r"^read bid", AFTER, 2),
    Point("before the record of a read", DRIVER, APPEND, r"^journal/.* read bid"),
    Point("in the middle of the record of a read", DRIVER, APPEND, r"^journal/.* read ask", TORN, 2),
    Point("after the record of a read", DRIVER, APPEND, r"^journal/.* read ask", AFTER),
    Point("before names of read files are noted", WORKER, LEDGER, r"bid", nth=1),
    Point("in the middle of names of read files", WORKER, LEDGER, r"bid", TORN),
    Point("after names of read files are noted", WORKER, LEDGER, r"ask", AFTER),
)

_RUNNING = (
    Point("before results are appended", WORKER, APPEND, r"^logs/every/"),
    Point("in the middle of a result's segment", WORKER, APPEND, r"^logs/match/", TORN, 2),
    Point("after results are appended", WORKER, APPEND, r"^logs/steady/", AFTER, 2),
    Point("between two results of a unit", WORKER, APPEND, r"^logs/busy/", AFTER),
    Point("after one subtask of a task has run", WORKER, ITEM, rf"^run {_JOINS}", AFTER),
    Point("before the record of a run", DRIVER, APPEND, rf"^journal/.* run {_BIDS}"),
    Point("in the middle of the record of a run", DRIVER, APPEND, rf"^journal/.* run {_JOINS}", TORN),
    Point("after the record of a run", DRIVER, APPEND, r"^journal/.* run both", AFTER),
    Point(
        "between a derived stream and its reader", DRIVER, APPEND, r"^journal/.* run select from bid", AFTER
    ),
    Point("in the middle of a derived stream", WORKER, APPEND, r"^logs/dear_bid/", TORN, 2),
)

_CHECKPOINTING = (
    Point("before a checkpoint is written", WORKER, WRITE, rf"^checkpoints/{_BIDS}"),
    Point("in the middle of a checkpoint's head", WORKER, WRITE, r"^checkpoints/.*state$", TORN, 2),
    Point("in the middle of a slice", WORKER, WRITE, r"^checkpoints/.*arrow$", TORN),
    Point("after a slice, before its head", WORKER, WRITE, r"^checkpoints/.*arrow$", AFTER),
    Point("after a checkpoint is written", WORKER, WRITE, rf"^checkpoints/{_JOINS}.*state$", AFTER),
    Point("between the checkpoints of two cells", WORKER, WRITE, rf"^checkpoints/{_ASKS}.*state$", AFTER),
    Point("before the record of a checkpoint", DRIVER, APPEND, rf"^journal/.* checkpoint {_ASKS}"),
    Point("in the middle of a checkpoint's record", DRIVER, APPEND, r"^journal/.* checkpoint", TORN, 2),
    Point("after the record of a checkpoint", DRIVER, APPEND, rf"^journal/.* checkpoint {_JOINS}", AFTER),
)

# A query comes to a task that runs, and leaves it.
_CHANGING = (
    Point("before a query comes to a unit", DRIVER, APPEND, rf"^journal/.* members {_ASKS}"),
    Point("in the middle of the record of a new query", DRIVER, APPEND, r"^journal/.* created", TORN),
    Point("after a query has come", DRIVER, APPEND, r"^journal/.* catalog", AFTER),
    Point("before a dropped query's log goes", DRIVER, APPEND, r"^journal/.* dropped"),
    Point("after a dropped query's log has gone", DRIVER, APPEND, r"^journal/.* dropped", AFTER),
)

_FREEING = (
    Point("before rows are freed", DRIVER, APPEND, r"^journal/.* freed"),
    Point("after rows are freed, with all files there", DRIVER, APPEND, r"^journal/.* freed", AFTER),
    Point("before a segment is removed", DRIVER, REMOVE, r"^logs/bid/"),
    Point("between the removals of two segments", DRIVER, REMOVE, r"^logs/", AFTER),
    Point("before a snapshot of the journal", DRIVER, WRITE, r"^journal/.*snapshot"),
    Point("in the middle of a snapshot", DRIVER, WRITE, r"^journal/.*snapshot", TORN),
    Point("a snapshot has no name yet", DRIVER, REPLACE, r"^journal/.*snapshot$"),
    Point("after a snapshot, with old records there", DRIVER, REPLACE, r"^journal/.*snapshot$", AFTER),
    Point("before old records go", DRIVER, REMOVE, r"^journal/.*records$"),
    Point("between an old snapshot and its records", DRIVER, REMOVE, r"^journal/.*snapshot$", AFTER),
    Point("in the middle of a file's first record", DRIVER, APPEND, r"^journal/0*[1-9].* first", TORN),
)

_ENDING = (
    Point("before the last held rows are admitted", WORKER, APPEND, r"^logs/ask/"),
    Point("in the middle of the last held rows", WORKER, APPEND, r"^logs/ask/", TORN),
    Point("before the record of the last held rows", DRIVER, APPEND, r"^journal/.* read ask"),
    Point("after the record of the last held rows", DRIVER, APPEND, r"^journal/.* read ask", AFTER),
    Point("before the last windows are committed", DRIVER, APPEND, rf"^journal/.* run {_BIDS}"),
    Point(
        "in the middle of the record of the last windows", DRIVER, APPEND, rf"^journal/.* run {_BIDS}", TORN
    ),
    Point("all is committed, and the last checkpoint is torn", WORKER, WRITE, r"^checkpoints/", TORN),
)

# Something is left, and the next starts are killed while they take it up.
_RECOVERING = (
    Point("a checkpoint is left that nobody names", DRIVER, APPEND, r"^journal/.* checkpoint"),
    Point("before the first orphan is removed", DRIVER, REMOVE, r"^(logs|checkpoints)/", phase=ANYWHERE),
    Point(
        "between the removals of two orphans", DRIVER, REMOVE, r"^(logs|checkpoints)/", AFTER, phase=ANYWHERE
    ),
    Point("a record is torn", DRIVER, APPEND, r"^journal/.* run ", TORN),
    Point("before a torn record is cut off", DRIVER, CUT, r"^journal/", phase=ANYWHERE),
    Point("after a torn record is cut off", DRIVER, CUT, r"^journal/", AFTER, phase=ANYWHERE),
    Point("a checkpoint is committed", DRIVER, APPEND, r"^journal/.* checkpoint", AFTER),
    Point("before a cell's checkpoint is read", WORKER, STATE, r"^checkpoints/"),
    Point("after a cell's checkpoint is read", WORKER, STATE, r"^checkpoints/", AFTER),
    Point("results without a checkpoint are left", DRIVER, APPEND, rf"^journal/.* run {_BIDS}", AFTER),
    Point("after a replay, before the run", WORKER, RESTORE, r"^replayed", AFTER),
)

# The driver goes on: workers come back, and others take over their subtasks.
_WORKERS = tuple(
    replace(point, victim=WORKER)
    for point in (
        Point("a worker in the middle of a stream's segment", WORKER, APPEND, r"^logs/bid/", TORN, 2),
        Point("a worker before its results", WORKER, APPEND, r"^logs/match/"),
        Point("a worker before it reads a checkpoint", WORKER, STATE, r"^checkpoints/"),
        Point("a worker in the middle of results", WORKER, APPEND, r"^logs/level/", TORN, 2),
        Point("a worker between two items of a message", WORKER, ITEM, r"^run select from bid", AFTER),
        Point("a worker between results and answer", WORKER, MESSAGE, r"run both", AFTER),
        Point("a worker in the middle of a checkpoint", WORKER, WRITE, rf"^checkpoints/{_BIDS}", TORN),
        # Runs of the lost worker have no checkpoint, so the workers that take over its subtasks repeat them.
        Point("a worker after a replay", WORKER, RESTORE, r"^replayed", AFTER),
        Point("a worker after its cell's checkpoint", WORKER, ITEM, rf"^checkpoint {_BIDS}.* 1$", AFTER),
        Point("a worker with held rows", WORKER, APPEND, r"^logs/ask_held/", AFTER, 2),
        Point("a worker that notes read files", WORKER, LEDGER, r"ask", AFTER),
        Point("a worker before it reads", WORKER, MESSAGE, r"read ask"),
    )
)
# The same while the mill drains, to the end: one that reads the rest, one that flushes, one that runs.
_WORKERS_AT_THE_END = tuple(
    replace(point, victim=WORKER, phase=DRAINING)
    for point in (
        Point("a worker that reads the rest", WORKER, MESSAGE, r"read bid"),
        Point("a worker that ends a stream", WORKER, MESSAGE, r"flush bid"),
        Point("a worker that has ended a stream", WORKER, MESSAGE, r"flush ask", AFTER),
        Point("a worker that runs to the end", WORKER, APPEND, r"^logs/busy/", TORN),
        Point("a worker that writes the last checkpoint", WORKER, WRITE, r"^checkpoints/", AFTER),
    )
)

# The query `every` goes to files, `match` to a database; each has a cursor in the home.
_DELIVERING = (
    Point("before a sink has a cursor", DRIVER, REPLACE, r"^sinks/every/", phase=ANYWHERE),
    Point("a sink's folder is nobody's yet", DRIVER, REPLACE, r"^../out/_slicemill"),
    Point("in the middle of a sink's file", DRIVER, WRITE, r"^../out/_unfinished", TORN),
    Point("before a sink's file has its name", DRIVER, REPLACE, r"^../out/\d"),
    Point("after a sink's file, before its cursor", DRIVER, REPLACE, r"^../out/\d", AFTER),
    Point("before a sink's cursor moves", DRIVER, REPLACE, r"^sinks/match/", nth=2),
    Point("after a sink's cursor has moved", DRIVER, REPLACE, r"^sinks/every/", AFTER),
    Point("before the database commits", DRIVER, TRANSACTION, "database", nth=2),
    Point("after the database's commit, before the cursor", DRIVER, TRANSACTION, "database", AFTER, 2),
)

# A batch of Spark's tasks is handed over in files, committed, and then noted as done by Spark.
READ_BY_SPARK = (
    Point("before Spark's task writes rows", WORKER, APPEND, r"^sources/trade/handed"),
    Point("in the middle of rows of Spark's task", WORKER, APPEND, r"^sources/trade/handed", TORN, 2),
    Point("after Spark's task has written rows", WORKER, APPEND, r"^sources/trade/handed", AFTER, 2),
    Point("in the middle of rows that Spark has handed over", WORKER, APPEND, r"^logs/trade/", TORN, 2),
    Point("before the record of a batch", DRIVER, APPEND, r"^journal/.* read trade"),
    Point("after a batch, before Spark notes it", DRIVER, APPEND, r"^journal/.* read trade", AFTER),
    Point("before what was handed over is removed", DRIVER, REMOVE, r"^sources/trade/handed"),
    replace(Point("a worker that admits a batch", WORKER, MESSAGE, r"read trade", AFTER), victim=WORKER),
)

# What happens to files in every run, often enough that the fifth time comes soon.
_OFTEN = (
    *((process, operation) for process in (DRIVER, WORKER) for operation in (APPEND, WRITE)),
    *((DRIVER, operation) for operation in (REPLACE, REMOVE, TRANSACTION)),
    *((WORKER, operation) for operation in (MESSAGE, ITEM)),
)


def _seeded(seed: int, count: int) -> Iterator[Point]:
    """Whatever is being appended, written, renamed, removed or answered, early in a run."""
    dice = random.Random(seed)
    for number in range(count):
        process, operation = dice.choice(_OFTEN)
        when = dice.choice((BEFORE, AFTER, TORN) if operation in (APPEND, WRITE) else (BEFORE, AFTER))
        nth = dice.randint(1, 2 if operation == TRANSACTION else 5)
        yield Point(f"{number} of seed {seed}", process, operation, "", when, nth)


CHAINS: Mapping[str, tuple[Point, ...]] = {
    "starting": (*_in(ANYWHERE, _STARTING), _FIRST_READ),
    "reading": _READING,
    "running": _RUNNING,
    "checkpointing": _CHECKPOINTING,
    "changing": _CHANGING,
    "freeing": _FREEING,
    "delivering": _DELIVERING,
    "ending": _in(DRAINING, _ENDING),
    "recovering": _RECOVERING,
    "workers": _WORKERS,
    "workers at the end": _WORKERS_AT_THE_END,
    "seeded": tuple(_seeded(seed=1, count=20)),
}


def _named(*names: str) -> tuple[Point, ...]:
    points = {point.name: point for chain in CHAINS.values() for point in chain}
    return tuple(points[name] for name in names)


def _at_once(*names: str) -> tuple[Point, ...]:
    # The first transaction of a run only asks where to go on.
    return tuple(p if p.operation == TRANSACTION else replace(p, nth=1) for p in _named(*names))


# One of each kind, for a JVM that dies with its driver, which takes longest to start again.
WITH_JVM = _named(
    "in the middle of a stream's segment",
    "after the record of a run",
    "after a checkpoint is written",
)

# What every test run has time for: before, in and after every kind of write and commit, at the first
# occasion, so that little has to be read on the way.
SHORT = _at_once(
    "before a task exists",
    "in the middle of a stream's segment",
    "before the record of a read",
    "in the middle of the record of a read",
    "after the record of a read",
    "in the middle of held rows",
    "in the middle of a result's segment",
    "before the record of a run",
    "after the record of a run",
    "a worker in the middle of results",
    "a worker after a replay",
    "a worker after its cell's checkpoint",
    "in the middle of a checkpoint's head",
    "before the record of a checkpoint",
    "before the first orphan is removed",
    "after the record of a checkpoint",
    "in the middle of a snapshot",
    "before a segment is removed",
    "after a sink's file, before its cursor",
    "after the database's commit, before the cursor",
)
