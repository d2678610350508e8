"""First rows of windows: what has ended is told once, and nothing is kept of it."""

from __future__ import annotations

from pathlib import Path

from slicemill.api.mill import Mill
from slicemill.storage.home_state import checkpoint_files
from slicemill.testing import Clock, inline_pool
from support.engine import fed_mill, feed_rows, finish

SECOND = 1_000_000
SCRIPT = """
CREATE STREAM s (k int, ts timestamp) ORDER BY ts;
CREATE QUERY top AS SELECT k, n, w FROM
  (SELECT k, count(*) AS n, window_end() AS w FROM s [RANGE 10 SECONDS SLIDE 2 SECONDS] GROUP BY k) AS counted
  QUALIFY rank() OVER (PARTITION BY w ORDER BY n DESC) = 1;
"""


def checkpoint_bytes(mill: Mill) -> int:
    return sum(
        (mill.home.checkpoint_folder(name) / file).stat().st_size
        for name, task in mill.home.tasks.items()
        for file in checkpoint_files(task)
    )


def test_a_rank_in_windows_keeps_only_windows_that_have_not_ended(tmp_path: Path) -> None:
    with fed_mill(tmp_path, Clock(), inline_pool()) as mill:
        mill.execute(SCRIPT)
        mill.open()
        query = mill.queries["top"]
        assert not query.schema.changelog
        sizes = []
        for step in range(60):
            feed_rows(mill, "s", [(n * n % 13, (4 * step + n) * SECOND) for n in range(4)])
            mill.dispatcher.run_all()
            if step % 20 == 19:
                mill.dispatcher.checkpoint_all()
                sizes.append(checkpoint_bytes(mill))
        # From the second on there are two checkpoints. A window has some groups of 40 bytes; forty more of
        # them would be seen.
        assert max(sizes) < sizes[1] + 1_000
        finish(mill)
        assert len({row.row[2] for row in query.timed_rows()}) == (4 * 60 + 8) // 2
