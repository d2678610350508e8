"""Files that cannot be read: damaged, of another format, or inaccessible."""

from __future__ import annotations

from pathlib import Path

from slicemill.errors import SlicemillError

# Prefix of the reason of a bad row that stands for a whole file, with the file's name as text.
FILE_LOST = "this file cannot be read"


class UnreadableFile(SlicemillError):
    """File with unreadable content; retries are useless until it is rewritten."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"cannot read {path}: {why}")
        self.why = why


def unreadable(path: Path, problem: Exception) -> SlicemillError:
    """Convert a reader's exception: bad content, or a (temporary) system error."""
    text = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
    if getattr(problem, "errno", None) is None:
        return UnreadableFile(path, text)
    return SlicemillError(f"cannot read {path}: {text}; reading goes on when it can be read or is gone")
