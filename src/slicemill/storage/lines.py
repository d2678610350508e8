"""Lines with a checksum: the framing of the journal's records.

    1c291ca3 {"e":17,…}\\n          crc32 of the JSON in hexadecimal, a blank, the JSON, a newline

JSON has no newline in it, so lines can be found again after damage. An append that a crash cut short is a
line without its end, or one whose checksum is wrong: the tail. The same in front of whole lines is damage.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32


class FramedLines(NamedTuple):
    """The whole lines at the start of some bytes, without their frames."""

    contents: list[bytes]
    end: int  # where the first line starts that is not whole
    damaged: bool  # whole lines follow after it


def frame(content: bytes) -> bytes:
    return b"%08x %b\n" % (crc32(content), content)


def unframe(line: bytes) -> bytes | None:
    """The content of a line; None if it is not whole."""
    if len(line) < 10 or line[8:9] != b" " or line[-1:] != b"\n":
        return None
    content = line[9:-1]
    return content if line[:8] == b"%08x" % crc32(content) else None


def split_lines(data: bytes) -> FramedLines:
    """Cut bytes into lines, up to the first that is not whole."""
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
