"""Files that cannot be read: damaged, of another format, or out of reach for now."""

from __future__ import annotations

from pathlib import Path

from slicemill.errors import SlicemillError

# How the reason begins of a bad row that stands for a whole file, with its name in place of a text.
FILE_LOST = "this file cannot be read"


class UnreadableFile(SlicemillError):
    """A file whose content nobody can read: trying again is of no use unless somebody writes to it."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"cannot read {path}: {why}")
        self.why = why


def unreadable(path: Path, problem: Exception) -> SlicemillError:
    """What a reader's exception means: the content is wrong, or the system could not give it (yet)."""
    text = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
    if getattr(problem, "errno", None) is None:
        return UnreadableFile(path, text)
    return SlicemillError(f"cannot read {path}: {text}; reading goes on when it can be read or is gone")
