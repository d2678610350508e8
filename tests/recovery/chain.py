"""Running a chain of kills on one home, and checking what is there after each."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

from recovery import scenario
from recovery.child import Work
from recovery.drivers import Drivers
from recovery.kill import DRAINING, DRIVER, RUNNING, Point, occurrences

_LAST_FILES = 3


def runs(points: tuple[Point, ...]) -> Iterator[tuple[Point, ...]]:
    """The points of each run: up to the one that kills the driver."""
    run: list[Point] = []
    for point in points:
        run.append(point)
        if point.victim == DRIVER:
            yield tuple(run)
            run = []
    if run:
        yield tuple(run)


class Chain:
    """One home and all that is going to be killed there, with at least so many new files for each run."""

    def __init__(
        self,
        folder: Path,
        database: str,
        points: tuple[Point, ...],
        files: int = 2,
        by_spark: bool = False,
    ) -> None:
        self.folder = folder
        self._home = folder / "home"
        self._counters = folder / "counters"
        self._counters.mkdir()
        self._database = database
        self._files = files
        self._by_spark = by_spark
        self._feed = scenario.Feed(folder, sum(map(self._new_files, runs(points))) + _LAST_FILES)
        self._truth = self._feed.truth(folder / "all")

    def kill_at(self, points: tuple[Point, ...], drivers: Drivers) -> None:
        """Kill at each point in turn; whatever comes out before is right."""
        for run in runs(points):
            self._kill(run, drivers)
            for where, rows in self._found().items():
                extra = rows - self._truth[scenario.query_of(where)]
                assert not extra, (run[-1].name, where, extra)

    def finish(self, drivers: Drivers) -> None:
        """Run to the end; all is there, once."""
        self._feed.release(self._feed.rest)
        assert self._drive((), drivers) == 0
        found = self._found()
        if not self._by_spark:
            assert not found.pop("traded")
        scenario.compare(found, self._truth)

    def _kill(self, run: tuple[Point, ...], drivers: Drivers) -> None:
        last = run[-1]
        # Nothing may come after the end of the streams.
        self._feed.release(self._feed.rest if last.phase == DRAINING else self._new_files(run))
        status = self._drive(run, drivers)
        for point in run:
            reached = occurrences(self._counters / point.counter)
            assert reached >= point.nth, f"{point.name}: reached {reached} times, status {status}"
        assert status == (-signal.SIGKILL if last.victim == DRIVER else 0), (last.name, status)

    def _new_files(self, run: tuple[Point, ...]) -> int:
        """So many that every point is reached; none for a run that ends before it reads."""
        return max(self._files, sum(point.nth for point in run)) if run[-1].phase == RUNNING else 0

    def _drive(self, points: tuple[Point, ...], drivers: Drivers) -> int:
        drain = not points or points[-1].phase == DRAINING
        work = Work(
            str(self._home),
            str(self.folder),
            self._database,
            drain,
            by_spark=self._by_spark,
            points=points,
            counters=str(self._counters),
        )
        return drivers.run(work)

    def _found(self) -> dict[str, scenario.Rows]:
        return {**scenario.found(self._home), **scenario.delivered(self.folder, self._database)}
