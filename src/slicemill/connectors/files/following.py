"""Growing files: read appended complete lines, like `tail -F`.

A file is identified by its inode and its first bytes. So a rotated log is continued under its new name, and a
truncated or replaced file is read from the beginning. A line is read once it is complete. Lines that are
written between the last poll and the file's removal are lost, as with `tail -F`.

An offset is `{"followed": [[name, inode, position, memory, [bytes, checksum]], …]}`.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slicemill.connectors.files.file_format import FilePiece
from slicemill.connectors.files.listing import Listing
from slicemill.connectors.files.text import COMPRESSION, TextFiles
from slicemill.errors import SlicemillError
from slicemill.ingest.formats.checked import joined
from slicemill.ingest.formats.unreadable import unreadable
from slicemill.ingest.reader import SourceBatch

_FIRST_AGAIN_US, _MOST_AGAIN_US = 50_000, 200_000
# Each offset names all followed files.
_MOST_FILES = 1_000
# Number of first bytes that distinguish files with the same inode.
_MARK_BYTES = 256


@dataclass(slots=True)
class _Followed:
    """File with its read position, and a checksum of its beginning."""

    name: str
    inode: int
    position: int = 0
    memory: Any = None
    mark: tuple[int, int] = (0, 0)


class FollowingReader:
    """Reader of growing files as one partition."""

    def __init__(self, listing: Listing, form: TextFiles, clock: Callable[[], int]) -> None:
        self._listing = listing
        self._form = form
        self._clock = clock
        self._again_us = _FIRST_AGAIN_US

    def read(self, offset: Any | None, limit_rows: int) -> SourceBatch:
        """Return the complete lines that were appended after an offset."""
        known = {
            inode: _Followed(name, inode, position, memory, (mark[0], mark[1]))
            for name, inode, position, memory, mark in (offset or {}).get("followed", ())
        }
        found_us = self._clock()
        listed = self._listed()
        taken: list[FilePiece] = []
        followed: list[_Followed] = []
        left = limit_rows
        try:
            for name, status in listed:
                file = self._resumed(name, status, known.get(status.st_ino))
                followed.append(file)
                while left > 0 and file.position < status.st_size:
                    piece = self._form.take(self._listing.root / name, file.position, left, file.memory)
                    if piece.content is not None:
                        taken.append(piece)
                    left -= piece.rows
                    file.position, file.memory = piece.position, piece.memory
                    if piece.ended:
                        break
                file.mark = self._mark(name, file.position)
        except FileNotFoundError:
            pass  # it was renamed after the listing; the next poll finds it
        except OSError as problem:
            raise unreadable(self._listing.root, problem) from None
        finally:
            self._form.close()
        pieces = self._form.parse(taken)
        more = left <= 0
        self._again_us = _FIRST_AGAIN_US if taken else min(2 * self._again_us, _MOST_AGAIN_US)
        names = {one.inode for one in followed}
        kept = [
            *followed,
            *(one for one in known.values() if one.inode not in names and _is_there(one, listed)),
        ]
        return SourceBatch(
            table=joined([rows for rows, _ in pieces]),
            errors=joined([bad for _, bad in pieces if bad is not None]),
            offset={
                "followed": [[one.name, one.inode, one.position, one.memory, list(one.mark)] for one in kept]
            },
            arrival_us=found_us,
            more=more,
            again_us=0 if more else self._again_us,
        )

    def committed(self, offset: Any) -> None:
        """Nothing is to be freed, because the offset has all state."""

    def close(self) -> None:
        self._form.close()

    def _listed(self) -> list[tuple[str, os.stat_result]]:
        """Return the files, the least recently changed first."""
        found: list[tuple[str, os.stat_result]] = []
        for name in self._listing.names():
            if Path(name or self._listing.root.name).suffix.lower() in COMPRESSION:
                raise SlicemillError(
                    f"{name} is compressed, and only plain text can be followed; move it away"
                )
            try:
                found.append((name, (self._listing.root / name).stat()))
            except FileNotFoundError:
                continue
        if len(found) > _MOST_FILES:
            raise SlicemillError(
                f"{self._listing.root} has {len(found):,} files, and at most {_MOST_FILES:,} can be "
                "followed; move old ones away, or leave the option follow out"
            )
        return sorted(found, key=lambda one: (one[1].st_mtime_ns, one[0]))

    def _resumed(self, name: str, status: os.stat_result, known: _Followed | None) -> _Followed:
        """Return a file's position; a truncated or replaced file starts at 0."""
        if known is None or status.st_size < known.position:
            return _Followed(name, status.st_ino)
        if known.position and self._mark(name, known.mark[0]) != known.mark:
            return _Followed(name, status.st_ino)
        return _Followed(name, status.st_ino, known.position, known.memory, known.mark)

    def _mark(self, name: str, position: int) -> tuple[int, int]:
        with (self._listing.root / name).open("rb") as file:
            begin = file.read(min(position, _MARK_BYTES))
        return len(begin), zlib.crc32(begin)


def _is_there(one: _Followed, listed: list[tuple[str, os.stat_result]]) -> bool:
    return any(status.st_ino == one.inode for _, status in listed)
