"""Progress display for long runs on a terminal: what runs, and the elapsed time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

_say: Callable[[str], None] | None = None


@contextmanager
def running(name: str, console: Console) -> Iterator[None]:
    """Show the name and elapsed time while the block runs."""
    global _say
    columns = (SpinnerColumn(), TextColumn("running {task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(name, total=None)
        before, _say = _say, lambda what: progress.update(task, description=f"{name}: {what}")
        try:
            yield
        finally:
            _say = before


def say(what: str) -> None:
    """Show which part of the work runs now. Does nothing without a progress display."""
    if _say is not None:
        _say(what)
