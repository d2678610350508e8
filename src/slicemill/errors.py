"""The exception tree: everything slicemill raises on purpose derives from SlicemillError.

A message says what is wrong, where, and what to do about it; the CLI prints it without a stack trace.
"""

from __future__ import annotations


class SlicemillError(Exception):
    """Base of every error a user can cause or should read."""
