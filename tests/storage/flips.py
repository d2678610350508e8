"""Bit flips in the files of a home directory, and their effects on slicemill.

`make_home` runs an engine that leaves files of every kind. `outcome_of_flip` flips one bit in a copy, checks
the copy, opens an engine on it, feeds the rest of the input and compares all results with those of the
undamaged home directory:

    refused    the home directory does not open; the message has the reason
    stopped    queries that need the damaged bytes stop with a message; all other results are equal
    recovered  `home check` names the damage, and all results are equal
    harmless   no component uses the bytes, and all results are equal
    wrong      results differ and there is no message
    crashed    an error other than SlicemillError occurs
"""

from __future__ import annotations

import json
import logging
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slicemill.api.mill import Mill
from slicemill.connectors.files.ledger import Ledger
from slicemill.connectors.sinks.sink import open_cursor
from slicemill.connectors.stored_files import source_errors
from slicemill.connectors.tcp.spool import Spool, SpoolPosition
from slicemill.errors import SlicemillError
from slicemill.storage.check import check_home
from slicemill.testing import Clock, inline_pool
from support.engine import fed_mill, feed_rows, finish

SECOND = 1_000_000
SCRIPT = """
CREATE STREAM bid (item int, price double, ts timestamp micros) ORDER BY ts SLACK 1 SECOND;
CREATE STREAM ask (item int, price double, ts timestamp micros) ORDER BY ts;
CREATE TABLE item (id int, name varchar(20), PRIMARY KEY (id));
CREATE QUERY every_bid AS SELECT item, price FROM bid;
CREATE QUERY matched AS SELECT B.item, B.price AS bid, A.price AS ask
  FROM bid [RANGE 30 SECONDS] AS B, ask [RANGE 30 SECONDS] AS A WHERE B.item = A.item;
CREATE QUERY total AS SELECT item, sum(price) OVER (PARTITION BY item ROWS 9 PRECEDING) AS s FROM bid;
CREATE QUERY named AS SELECT b.item, i.name FROM bid AS b, item AS i WHERE b.item = i.id;
"""
ITEMS = "INSERT INTO item VALUES (0, 'lamp'), (1, 'clock'), (2, 'chair')"
MORE_ITEMS = "INSERT INTO item VALUES (3, 'vase'), (4, 'atlas')"
_FEEDS, _LAST = 8, 2  # number of feeds in all, and number of feeds after the damage
_SPOOLED = [b"".join(b"%d,line %d\n" % (part, n) for n in range(40)) for part in range(3)]
_READ = [f"file-{n}.json" for n in range(30)]


@dataclass(frozen=True)
class Flip:
    """One bit of one file of a home directory."""

    kind: str
    path: str
    byte: int
    bit: int


@dataclass(frozen=True)
class Outcome:
    """Effect of a bit flip; `found` is True if `home check` names the file."""

    what: str
    found: bool
    words: str = ""


def kind_of(path: Path) -> str:
    """Return the kind of a file by its path in the home directory."""
    if path.name.endswith(".lines"):
        return "spool lines"
    if path.name.endswith(".sums"):
        return "spool checksums"
    folder, suffix = path.parts[0], path.suffix
    return {
        ("journal", ".records"): "journal records",
        ("journal", ".snapshot"): "journal snapshots",
        ("journal", ""): "journal end",
        ("logs", ".arrows"): "segments",
        ("checkpoints", ".state"): "checkpoint heads",
        ("checkpoints", ".arrow"): "slices",
        ("tables", ".arrow"): "tables",
        ("sinks", ".json"): "cursors",
        ("sources", ""): "read-files",
        ("FORMAT", ""): "FORMAT",
        ("lock", ""): "lock",
    }[folder, suffix]


def rows_of(number: int, stream: str) -> list[tuple[int, float, int]]:
    """Return the rows of one feed; some rows are out of order, within the slack."""
    dice = random.Random(f"{number} {stream}")
    times = [number * 3 * SECOND + n * SECOND // 5 + dice.randrange(SECOND // 2) for n in range(12)]
    return [(dice.randrange(5), round(dice.uniform(1, 99), 2), ts) for ts in times]


def make_home(home: Path, *, collect: bool = False) -> None:
    """Run an engine and end it like a killed process: the last runs have no checkpoint.

    With `collect`, rows that all tasks have consumed are freed.
    """
    with fed_mill(home, Clock(1), inline_pool(1)) as mill:
        mill.home._least_bytes, mill.home._most_bytes, mill.home._background = 20_000, 20_000, False
        mill.execute(SCRIPT)
        mill.execute(ITEMS)
        mill.open()
        for number in range(_FEEDS - _LAST):
            feed(mill, number)
            if number in (1, 3, 4):
                mill.dispatcher.checkpoint_all()
            if collect:
                mill.retention.collect()
            if number == 2:
                mill.execute(MORE_ITEMS)
        mill.close(checkpoint=False)
    spool = Spool(home / "sources" / "socket", None)
    for n, lines in enumerate(_SPOOLED):
        spool.append(lines, n)
    spool.close()
    Ledger(home / "sources" / "folder").write(0, _READ)
    open_cursor(home, "sinks", "sink", "total").advance(7)


def feed(mill: Mill, number: int) -> None:
    feed_rows(mill, "bid", rows_of(number, "bid"))
    feed_rows(mill, "ask", sorted(rows_of(number, "ask"), key=lambda row: row[2]))
    mill.dispatcher.run_all()


def results_after(home: Path) -> tuple[dict[str, Any], list[str]]:
    """Feed the rest of the input; return the results, and the reasons for incomplete results."""
    with fed_mill(home, Clock(1), inline_pool(1)) as mill:
        mill.execute(SCRIPT)
        mill.open()
        for number in range(_FEEDS - _LAST, _FEEDS):
            feed(mill, number)
        finish(mill)
        told = [query.error for query in mill.queries.values() if query.error is not None]
        told += [why for task in mill.dispatcher.tasks.values() for why in task.failed.values()]
        told += [stream.error for stream in mill.running.streams.values() if stream.error is not None]
        found = {}
        for name in mill.queries:
            try:
                found |= {name: sorted((t.ts, t.row) for t in mill.queries[name].timed_rows())}
            except SlicemillError as problem:
                told.append(str(problem))
        try:
            found["item"] = sorted(mill.tables.rows("item"))
        except SlicemillError as problem:
            told.append(str(problem))
        return found, told


def expected_results(home: Path, folder: Path) -> dict[str, Any]:
    """Return the results of the undamaged home directory."""
    copy = folder / "undamaged"
    shutil.copytree(home, copy)
    found, told = results_after(copy)
    assert not told, told
    return found


def read_spool(home: Path) -> bytes:
    spool = Spool(home / "sources" / "socket", None)
    try:
        data, at = b"", SpoolPosition(1, 0)
        while (part := spool.read(at, 1_000)).data:
            data, at = data + part.data, part.next
        return data
    finally:
        spool.close()


# Files that tasks do not read, with the reader of each kind and its expected content.
_APART: dict[str, tuple[Callable[[Path], object], object]] = {
    "spool lines": (read_spool, b"".join(_SPOOLED)),
    "spool checksums": (read_spool, b"".join(_SPOOLED)),
    "read-files": (
        lambda home: Ledger(home / "sources" / "folder").names(sum(len(json.dumps(n)) + 10 for n in _READ)),
        _READ,
    ),
    "cursors": (lambda home: open_cursor(home, "sinks", "sink", "total").epoch, 7),
}


def flips(home: Path, count: int, seed: int) -> Iterator[Flip]:
    """Yield `count` flips, spread evenly over the kinds of files; small kinds may have fewer bits."""
    dice = random.Random(seed)
    by_kind: dict[str, list[Path]] = {}
    for path in sorted(path for path in home.rglob("*") if path.is_file() and path.stat().st_size):
        relative = path.relative_to(home)
        if ("handed" not in relative.parts and relative.name != "lock") or relative == Path("lock"):
            by_kind.setdefault(kind_of(relative), []).append(relative)
    for number in range(count):
        kind = list(by_kind)[number % len(by_kind)]
        paths = by_kind[kind]
        path = dice.choices(paths, [(home / path).stat().st_size for path in paths])[0]
        yield Flip(kind, str(path), dice.randrange((home / path).stat().st_size), dice.randrange(8))


def outcome_of_flip(home: Path, flip: Flip, folder: Path, expected: dict[str, Any]) -> Outcome:
    """Return the effect of a flip in a copy of a home directory, which is made in `folder`.

    Each copy has its own path, because readers of this process identify files by their paths.
    """
    with tempfile.TemporaryDirectory(dir=folder) as made:
        shutil.copytree(home, Path(made) / "home")
        return _outcome(Path(made) / "home", flip, expected)


def _outcome(copy: Path, flip: Flip, expected: dict[str, Any]) -> Outcome:
    path = copy / flip.path
    data = bytearray(path.read_bytes())
    data[flip.byte] ^= 1 << flip.bit
    path.write_bytes(data)
    logger = logging.getLogger("slicemill")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        try:
            found = bool(check_home(copy).errors or list(source_errors(copy)))
        except SlicemillError:
            found = True
        if flip.kind in _APART:
            return _outcome_apart(copy, flip, found)
        try:
            results, told = results_after(copy)
        except SlicemillError as problem:
            return Outcome("refused", found, str(problem))
    except Exception as problem:
        return Outcome("crashed", False, f"{type(problem).__name__}: {problem}")
    finally:
        logger.setLevel(level)
    if results == expected and not told:
        return Outcome("recovered" if found else "harmless", found)
    # Rows that were computed must be right; rows may be missing only if a message names the reason.
    if told and all(_is_part(results[name], expected[name]) for name in results):
        return Outcome("stopped", found, told[0])
    return Outcome("wrong", found, "; ".join(told))


def _is_part(some: list[Any], whole: list[Any]) -> bool:
    left = list(whole)
    for row in some:
        if row not in left:
            return False
        left.remove(row)
    return True


def _outcome_apart(copy: Path, flip: Flip, found: bool) -> Outcome:
    read, expected = _APART[flip.kind]
    try:
        if read(copy) == expected:
            return Outcome("recovered" if found else "harmless", found)
    except SlicemillError as problem:
        return Outcome("stopped", found, str(problem))
    return Outcome("wrong", found)
