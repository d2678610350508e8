"""Retirement flag: this process ends after its current Spark task.

Spark reuses the Python processes of finished tasks. A process that was a worker has threads, files and memory
of its own, so it ends when the result of its task is delivered. `slicemill.engine.daemon` reads the flag.
"""

from __future__ import annotations

_retired = False


def retire() -> None:
    global _retired
    _retired = True


def is_retired() -> bool:
    return _retired
