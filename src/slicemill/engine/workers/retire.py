"""Whether this process is to end after the Spark task that it runs.

Spark keeps the Python processes of tasks that are done, to use them again. One that was a worker has threads,
files and memory of its own: it ends, once its task's result is delivered. `slicemill.engine.daemon` looks
here.
"""

from __future__ import annotations

_retired = False


def retire() -> None:
    global _retired
    _retired = True


def is_retired() -> bool:
    return _retired
