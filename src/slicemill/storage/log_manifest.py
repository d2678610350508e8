"""How a log's manifest lies on disk: which file holds which epochs, and where the log starts.

A manifest file covers the epochs [start, end) and is named by them, `epochs/<start>-<end>.json`. An append
writes a file for one epoch; whenever 64 files of a width are complete they are merged into one of the next
width (1, 64, 4096), and then removed. So an epoch is written at most three times, whatever the length of the
log, and a log of N epochs has at most N / 4096 + 128 manifest files to open. Where two files cover an epoch
they agree, and the wider one is read: a merge may stop at any step.

`base.json` says where the log starts after truncation, and carries on what the freed epochs knew: each
writer's last sequence number and the frontier.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slicemill.storage.files import FileSystem
from slicemill.storage.log_epoch import EpochList, LogError, last_sequences, split_epochs

EPOCHS = "epochs"
BASE = "base.json"
MERGED_WIDTHS = (4096, 64)
_SUFFIX = ".json"
_ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class Base:
    first: int = 0
    frontier: int | None = None
    writers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """A manifest file by its name."""

    start: int
    end: int

    @property
    def name(self) -> str:
        return f"{self.start:012d}-{self.end:012d}{_SUFFIX}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """All that is committed, from an epoch on."""

    base: Base
    epochs: EpochList
    writers: dict[str, int]


def encode_base(base: Base) -> bytes:
    content = {"first": base.first, "frontier": base.frontier, "writers": dict(base.writers)}
    return json.dumps(content, separators=(",", ":")).encode()


def read_base(files: FileSystem, folder: Path) -> Base:
    try:
        return Base(**json.loads(files.read(folder / BASE)))
    except FileNotFoundError:
        return Base()
    except ValueError as problem:
        raise _damaged(folder / BASE, problem) from problem


def list_spans(files: FileSystem, folder: Path) -> list[Span]:
    """The manifest files, in order, the wider first; temporary files are left out."""
    spans = []
    for name in files.names(folder / EPOCHS):
        start, dash, end = name.removesuffix(_SUFFIX).partition("-")
        if name.endswith(_SUFFIX) and dash and start.isdigit() and end.isdigit():
            spans.append(Span(int(start), int(end)))
    return sorted(spans, key=lambda span: (span.start, -span.end))


def cover(spans: Iterable[Span], position: int) -> tuple[list[Span], bool]:
    """The fewest spans that hold the epochs from `position` on; True if there is a gap between them."""
    chosen: list[Span] = []
    for span in spans:
        if span.start > position:
            return chosen, True
        if span.end > position:
            chosen.append(span)
            position = span.end
    return chosen, False


def load(files: FileSystem, folder: Path, position: int = 0) -> Manifest:
    """The committed epochs from `position` or the start of the log on, whichever is later.

    A writer may merge and truncate meanwhile. Files then vanish between listing and reading, and a second
    look finds what replaced them.
    """
    for _ in range(_ATTEMPTS):
        base = read_base(files, folder)
        start = max(position, base.first)
        chosen, gap = cover(list_spans(files, folder), start)
        if gap:
            continue
        try:
            return _read_spans(files, folder, base, start, chosen)
        except FileNotFoundError:
            continue
    raise LogError(f"log {folder}: epochs after {start} are missing in {EPOCHS}; restore them from a copy")


def _read_spans(files: FileSystem, folder: Path, base: Base, start: int, spans: Sequence[Span]) -> Manifest:
    writers = [base.writers]
    epochs = EpochList(start, ())
    for span in spans:
        path = folder / EPOCHS / span.name
        try:
            known, lines = split_epochs(files.read(path))
        except ValueError as problem:
            raise _damaged(path, problem) from problem
        # A file merged after a truncation starts later than its name says, but never ends earlier.
        missing = span.end - epochs.end
        if len(lines) < missing:
            raise _damaged(path, ValueError(f"{len(lines)} epochs, not {missing}"))
        epochs.add(lines[-missing:])
        writers.append(known)
    return Manifest(base, epochs, last_sequences(*writers))


def _damaged(path: Path, problem: ValueError) -> LogError:
    return LogError(f"{path} is damaged ({problem}); to outlive a loss of power a log needs durable=True")


def merge_due(end: int) -> Span | None:
    """The widest span that is complete once the log has `end` epochs.

    >>> merge_due(128)
    Span(start=64, end=128)
    """
    return next((Span(end - width, end) for width in MERGED_WIDTHS if end % width == 0), None)


def redundant(spans: Iterable[Span], first: int) -> list[Span]:
    """The files whose epochs are freed, or lie in a wider file as well."""
    reached = first
    out = []
    for span in spans:
        if span.end <= reached:
            out.append(span)
        else:
            reached = span.end
    return out
