"""Framing of the journal's records: lines with a checksum.

    1c291ca3 {"e":17,…}\\n          crc32 of the JSON in hexadecimal, a blank, the JSON, a newline

JSON has no raw newline, so line starts can be found again after damage. A crash during an append leaves an
incomplete last line or a wrong checksum there. A bad line before whole lines is damage.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32


class FramedLines(NamedTuple):
    """Whole lines at the start of some bytes, without their frames."""

    contents: list[bytes]
    end: int  # start of the first line that is not whole
    damaged: bool  # whole lines follow after it


def frame(content: bytes) -> bytes:
    return b"%08x %b\n" % (crc32(content), content)


def unframe(line: bytes) -> bytes | None:
    """Return the content of a line; None if it is not whole."""
    if len(line) < 10 or line[8:9] != b" " or line[-1:] != b"\n":
        return None
    content = line[9:-1]
    return content if line[:8] == b"%08x" % crc32(content) else None


def split_lines(data: bytes) -> FramedLines:
    """Split bytes into lines, up to the first that is not whole."""
    contents: list[bytes] = []
    start = 0
    while end := data.find(b"\n", start) + 1:
        content = unframe(data[start:end])
        if content is None:
            later = data[end:].split(b"\n")[:-1]
            return FramedLines(contents, start, any(unframe(line + b"\n") is not None for line in later))
        contents.append(content)
        start = end
    return FramedLines(contents, start, False)
