"""Error classes of slicemill, and helpers for error messages.

All errors derive from SlicemillError. A message says what is wrong, where, and what to do about it. The
CLI prints it without a stack trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


class SlicemillError(Exception):
    """Base class of all errors that users cause or must handle."""


class EngineStopped(SlicemillError):
    """Error: the engine has failed, so queries do not run and statements are rejected."""


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """Return a hint with the candidates most similar to a misspelt word, or "".

    >>> did_you_mean("prise", ["price", "itemID"])
    'did you mean price?'
    """
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    near = get_close_matches(word.lower(), by_lower, n=3, cutoff=0.6)
    if not near:
        return ""
    return f"did you mean {' or '.join(by_lower[name] for name in near)}?"


def one_of(words: Sequence[str], last: str = "or") -> str:
    """Join words as alternatives: `a`, `a or b`, `a, b or c`."""
    if len(words) <= 1:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def all_of(words: Sequence[str]) -> str:
    """Join words as a list: `a`, `a and b`, or `a, b and c`."""
    return one_of(words, "and")


def format_count(number: int, word: str) -> str:
    """Format a count with its noun: `1 column`, `2 columns`."""
    return f"{number} {word}{'' if number == 1 else 's'}"
