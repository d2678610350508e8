"""For long work at a terminal: what runs, and for how long it has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


@contextmanager
def running(name: str, console: Console) -> Iterator[None]:
    """Shown while the block runs, and gone after it."""
    columns = (SpinnerColumn(), TextColumn("running {task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        progress.add_task(name, total=None)
        yield
