"""The scenario once in this process: what is forked from it has compiled code loaded and starts at once."""

from __future__ import annotations

import tempfile
from pathlib import Path

from recovery.scenario import Feed, statements
from slicemill.testing import inline_pool, open_mill


def warm_up() -> None:
    with tempfile.TemporaryDirectory() as folder:
        feed = Feed(Path(folder), files=3)
        feed.release(feed.rest)
        # The second mill reads the checkpoints of the first.
        for _ in range(2):
            with open_mill(home=Path(folder) / "home", pool=inline_pool(), folder=folder, subtasks=2) as mill:
                mill.execute(";".join(statements(None)))
                mill.drain()
