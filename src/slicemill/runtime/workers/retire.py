"""Retirement flag: this process ends after its current Spark task.

Spark reuses the Python processes of finished tasks. A process that was a worker has threads, files and memory
of its own, so it ends when the result of its task is delivered. `runtime.workers.daemon` reads the flag. The
daemon imports this module before it cleans its path, so the module imports nothing.
"""

from __future__ import annotations

_retired = False


def retire() -> None:
    """Let this process end after its current Spark task."""
    global _retired
    _retired = True


def is_retired() -> bool:
    """Return True if this process ends after its current Spark task."""
    return _retired
