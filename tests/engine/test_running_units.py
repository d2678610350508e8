"""The running units against asking every unit, while rows arrive, units run and time goes on."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.engine.running_units import Goal, RunningUnits
from slicemill.engine.unit import RunningUnit
from slicemill.time import END
from support.engine import Clock, fed_mill, feed_rows, inline_pool

SCRIPT = """
CREATE STREAM a (x int, ts timestamp) ORDER BY ts;
CREATE STREAM b (x int, ts timestamp) ORDER BY ts;
CREATE QUERY plain AS SELECT x FROM a WHERE x > 3;
CREATE QUERY slid WITH (weight = 2) AS
  SELECT x, count(*) AS n FROM a [RANGE 5 SECONDS SLIDE 1 SECOND] GROUP BY x;
CREATE STREAM both AS SELECT x FROM a UNION ALL SELECT x FROM b;
CREATE QUERY later AS SELECT x FROM both WHERE x > 5;
"""
SECOND = 1_000_000


class Works:
    """A mill whose units run one by one, over streams that grow."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock(1)
        self.mill = fed_mill(folder, self.clock, inline_pool(1))
        self.mill.execute(SCRIPT)
        self.mill.open()
        self.units = self.mill.dispatcher.running.units
        self.renew()

    @property
    def running(self) -> RunningUnits:
        return self.mill.dispatcher.running

    def close(self) -> None:
        self.mill.close()

    def renew(self) -> None:
        self.mill.dispatcher.replace(self.units, {"plain": Goal(), "slid": Goal(2.0, 1.0)})

    def arrive(self, stream: str, rows: list[int]) -> None:
        feed_rows(self.mill, stream, [(x, self.clock.now) for x in rows])

    def run(self, unit: RunningUnit) -> None:
        dispatcher = self.mill.dispatcher
        with dispatcher.paused():
            dispatcher._give_runs([unit], 1.0)
            dispatcher._finish_asked()

    def can_run(self, unit: RunningUnit) -> bool:
        """What the table says, by asking."""
        reached = {log: self.mill.watermark(log)[0] for log in unit.plan.unit.inputs}
        held = any(all(reached[log] >= ts for log, ts in due.items()) for due in unit.due)
        end = any(until == END and unit.input_watermarks().get(log) != END for log, until in reached.items())
        return bool(unit.pending()) or held or end

    def check(self) -> list[RunningUnit]:
        now = self.clock.now
        self.running.refresh(now)
        positions, batches = self.running.ready(self.mill.watermark, now)
        ready = [self.units[position] for position in positions]
        assert ready == [unit for unit in self.units if self.can_run(unit)]
        for unit, rows, wait in zip(ready, batches.rows, batches.wait, strict=True):
            pending = unit.pending()
            assert rows == max(sum(epoch.rows for epoch in pending), 1)
            if pending:
                oldest = min(epoch.arrival_us for epoch in pending)
                assert wait >= (now - oldest) / SECOND
        return ready


steps = st.one_of(
    st.tuples(st.sampled_from(["a", "b"]), st.lists(st.integers(0, 9), max_size=3)),
    st.integers(0, 5),
    st.sampled_from(["time", "new table"]),
)


@given(st.lists(steps, max_size=20))
@settings(max_examples=15)
def test_the_table_knows_what_every_unit_would_say(history: list[object]) -> None:
    with TemporaryDirectory() as folder, closing(Works(Path(folder))) as works:
        for step in [*history, "end", 0, 1, 2, 3, 4, 5]:
            works.clock.now += SECOND // 2
            if isinstance(step, tuple):
                works.arrive(*step)
            elif isinstance(step, int):
                ready = works.check()
                if ready:
                    works.run(ready[step % len(ready)])
            elif step == "end":
                works.mill.dispatcher.end_streams()
            elif step == "new table":
                works.renew()
            works.check()


def test_weights_deadlines_and_levels_are_those_of_the_queries(tmp_path: Path) -> None:
    with closing(Works(tmp_path)) as works:
        works.arrive("a", [1, 5, 9])
        works.clock.now += 3 * SECOND
        works.check()
        positions, batches = works.running.ready(works.mill.watermark, works.clock.now)
        by_name = {works.units[position].id: place for place, position in enumerate(positions)}
        plain, slid = (by_name[works.running.writers[name].id] for name in ("plain", "slid"))
        assert batches.weight[[plain, slid]].tolist() == [1, 2]
        assert batches.wait[slid] == pytest.approx(3)
        assert batches.slack[slid] == pytest.approx(1 - 3)
        assert np.isinf(batches.slack[plain])
        works.clock.now += SECOND
        works.running.refresh(works.clock.now)
        # Three rows since they arrived, for all of the four seconds that the table is old.
        assert works.running.rows_waiting(works.running.writers["slid"].id) == (
            3,
            pytest.approx(3, rel=1e-3),
            3,
        )
