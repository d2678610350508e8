"""The dispatcher: decides what workers do next, and commits what they have done (DESIGN §2).

    wait for answers ──► ONE journal record ──► deliver ──► policy ──► a message to each idle worker
          ▲                                                                     │
          └─────────────────────────────────────────────────────────────────────┘

There is no barrier: a worker that answers gets its next message while others are at work. A message holds
reads of sources first, then runs of units in the order of the policy, as many as fit into a quantum of
estimated cost. A unit that is not picked falls behind in its logs; nothing is lost.

Pacing: what arrives while a round is under way goes into the next one, and reads of a trickle wait until a
round is worth its cost: rounds take at most a share of one core while little comes. Under load batches grow.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from slicemill.engine.board import Board, Goal
from slicemill.engine.cause import cause
from slicemill.engine.streams import RunningStream
from slicemill.engine.unit import RunningUnit
from slicemill.engine.work import (
    CheckpointDone,
    Forget,
    Item,
    ItemFailed,
    Message,
    ReadDone,
    Reply,
    RunDone,
    Watermark,
)
from slicemill.engine.workers.events import Answer, Failure, Joined, Left, Notice
from slicemill.engine.workers.sharing import Pool
from slicemill.errors import SlicemillError
from slicemill.metrics.stages import spent, stage
from slicemill.scheduling.dispatch import Chooser
from slicemill.scheduling.metrics import Summary
from slicemill.storage.changes import Appended, Change
from slicemill.storage.files import StorageFull
from slicemill.storage.home import Home
from slicemill.storage.segments import parse_segment
from slicemill.time import US

AfterRun = Callable[[RunningUnit, list[RunDone]], None]

# Of one core, what rounds over a trickle may take: the time between reads is at least their cost over this.
_PACE = 0.2
_LONGEST_PAUSE_S = 0.05
# A full decision ranks all ready units; a message never holds more than these.
_UNITS_PER_ROUND = 256
_POLL_S = 0.05
_DISK_FULL_PAUSE_S = 0.5


@dataclass(slots=True)
class Crew:
    """One worker as the dispatcher knows it: which process it is now, what it has, what it was asked."""

    incarnation: int
    plans: set[str] = field(default_factory=set)
    writers: set[str] = field(default_factory=set)  # the names under which it writes segments
    asked: tuple[Item, ...] = ()

    @property
    def idle(self) -> bool:
        return not self.asked


class Dispatcher:
    """`watermark` says how far a log is complete; `after_run` sees every run that is committed."""

    def __init__(
        self,
        pool: Pool,
        home: Home,
        mill: str,
        watermark: Callable[[str], Watermark],
        clock: Callable[[], int],
        chooser: Chooser,
        after_run: AfterRun,
        *,
        quantum_s: float = 0.02,
    ) -> None:
        self.chooser = chooser
        self.changed = threading.Condition()
        self.failure: BaseException | None = None
        self.decisions = Summary()
        self.rounds = 0
        self.trouble: str | None = None  # what keeps it from going on
        self.streams: dict[str, RunningStream] = {}
        self.board = Board([], home.logs, {}, clock())
        self.quantum_s = quantum_s
        self._pool = pool
        self._home = home
        self._mill = mill
        self._watermark = watermark
        self._clock = clock
        self._after_run = after_run
        self._crews = {joined.worker: Crew(joined.incarnation) for joined in pool.members()}
        self._placed: dict[tuple[str, int], int] = {}  # cell of a unit → worker
        self._loaded: dict[tuple[str, int], tuple[int, int]] = {}  # … → worker and incarnation that has it
        self._visitor: RunningUnit | None = None
        self._given_up: list[RunningUnit] = []  # in the round under way
        self._reads_sources = False
        # Who wants to change the plan, or to run something here and now, waits until the loop is parked.
        self._control = threading.Condition()
        self._pausing = threading.RLock()
        self._pauses = 0
        self._parked = True
        self._stop = False
        self._thread: threading.Thread | None = None
        self._round_cost_s = 0.001
        self._next_reads_s = 0.0

    # -- for the mill ----------------------------------------------------------------------------------

    @property
    def units(self) -> dict[str, RunningUnit]:
        return {unit.id: unit for unit in self.board.units}

    @property
    def writers(self) -> set[str]:
        """The names of those who may still append to their segments."""
        return {name for crew in self._crews.values() for name in crew.writers}

    def replace(self, units: Iterable[RunningUnit], goals: Mapping[str, Goal]) -> None:
        """Run these units from now on, for the queries that have these goals; while paused."""
        fresh = list(units)
        kept = {(unit.id, unit.digest) for unit in fresh}
        gone = [unit for unit in self.board.units if (unit.id, unit.digest) not in kept]
        for unit in gone:
            self._unload(unit.id)
        self.board = Board(fresh, self._home.logs, goals, self._clock(), self.board)

    def _unload(self, unit_id: str) -> None:
        for place in [place for place in self._loaded if place[0] == unit_id]:
            del self._loaded[place]

    def notify(self) -> None:
        """Something has changed that the loop should look at."""
        self._pool.wake()
        with self.changed:
            self.changed.notify_all()

    def start(self) -> None:
        self._stop, self._reads_sources, self._parked = False, True, False
        self._thread = threading.Thread(target=self._loop, name="slicemill-dispatcher", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the loop when the work under way is done."""
        self._stop, self._reads_sources = True, False
        self._pool.wake()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        with self.paused():
            pass

    def check(self) -> None:
        if self.failure is not None:
            raise SlicemillError(f"the dispatcher stopped: {cause(self.failure)}") from self.failure

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Between two rounds, with nothing under way: the plan may be changed here."""
        with self._pausing:
            with self._control:
                self._pauses += 1
                self._pool.wake()
                if threading.current_thread() is not self._thread:
                    self._control.wait_for(lambda: self._parked)
            try:
                self._finish_asked()
                yield
            finally:
                with self._control:
                    self._pauses -= 1
                    self._control.notify_all()

    def finish(self, unit: RunningUnit) -> None:
        """Run a unit, while paused, until it has read all there is, and write its state.

        It need not be one of those that run: its plan may be about to change.
        """
        self._visitor = unit
        try:
            self.catch_up(unit)
            while unit.unwritten and not _stopped(unit):
                self._give_runs([unit], math.inf, checkpoint=True)
                self._finish_asked()
        finally:
            self._visitor = None
            self._unload(unit.id)

    def catch_up(self, unit: RunningUnit) -> None:
        """Run a unit, while paused, until it has read all there is."""
        while unit.pending() and not _stopped(unit):
            self._give_runs([unit], math.inf)
            self._finish_asked()

    def checkpoint(self, units: Iterable[RunningUnit]) -> None:
        """Write the state of units, while paused, so that nobody has to replay what came before."""
        for unit in units:
            if unit.dirty and not _stopped(unit):
                self._give_checkpoint(unit)
                self._finish_asked()

    def admit_handed(self) -> None:
        """Admit what was handed over for streams, and run nothing."""
        with self.paused():
            while self._give_reads(handed_only=True):
                self._finish_asked()

    def read_all(self) -> None:
        """Read all that the sources hold now, and run nothing."""
        with self.paused():
            for stream in self.streams.values():
                if not stream.handed and not stream.ended:
                    stream.next_read_us = 0
            while self._give_reads(every=True):
                self._finish_asked()

    def end_streams(self) -> None:
        """The input has ended for good: admit what is held back."""
        with self.paused():
            for stream in self.streams.values():
                crew = self._reader_of(stream)
                self._ask({crew: [self._read_item(stream, crew, flush=True)]})
                self._finish_asked()
                stream.ended = True

    def run_all(self) -> None:
        """Run until no unit has anything left to do."""
        while self.run_some():
            pass

    def run_some(self) -> bool:
        """Run the units that the policy picks, as much as fits into a quantum; False if none can run."""
        with self.paused():
            while self._give_reads(handed_only=True):
                self._finish_asked()
            asked = self._give_runs(self._ranked(), self.quantum_s)
            self._finish_asked()
            return asked

    # -- the loop --------------------------------------------------------------------------------------

    def _loop(self) -> None:
        try:
            while not self._stop:
                self._park()
                self._take(self._pool.wait(self._patience_s()))
                if not self._pauses and not self._stop:
                    self._give()
        except BaseException as problem:  # the thread's last words, for whoever waits for it
            self.failure = problem
            with self.changed:
                self.changed.notify_all()
        finally:
            with self._control:
                self._parked = True
                self._control.notify_all()

    def _park(self) -> None:
        """Leave the workers to whoever has asked for a pause, until it is over."""
        with self._control:
            while self._pauses and not self._stop:
                self._parked = True
                self._control.notify_all()
                self._control.wait()
            self._parked = False

    def _patience_s(self) -> float:
        """How long nothing has to be looked at, unless something comes."""
        now = self._clock()
        moments = [
            stream.next_read_us
            for stream in self.streams.values()
            if stream.next_read_us is not None and stream.reading_us is None and not stream.ended
        ]
        soonest = min(((moment - now) / US for moment in moments), default=_POLL_S)
        paced = max(soonest, self._next_reads_s - time.monotonic())
        return min(max(paced, 0.0), _POLL_S)

    def _finish_asked(self) -> None:
        """Wait for the work under way."""
        while any(not crew.idle for crew in self._crews.values()):
            self._take(self._pool.wait(_POLL_S))

    def _give(self) -> None:
        asked = False
        if self._reads_sources and time.monotonic() >= self._next_reads_s:
            asked = self._give_reads()
            if asked:
                pause = min(self._round_cost_s / _PACE, _LONGEST_PAUSE_S)
                self._next_reads_s = time.monotonic() + pause
        asked |= self._give_runs(self._ranked(), self.quantum_s)
        if not asked:
            self._give_due_checkpoints()

    # -- answers ---------------------------------------------------------------------------------------

    def _take(self, events: Iterable[object]) -> None:
        """Note what workers say, and commit what they have done as one record."""
        change = Change()
        finished: list[tuple[RunningUnit, list[RunDone]]] = []
        handed: list[RunningStream] = []
        for event in events:
            if isinstance(event, Joined):
                self._crews[event.worker] = Crew(event.incarnation)
            elif isinstance(event, Left):
                self._left(event, change)
            elif isinstance(event, Notice):
                stream = self.streams.get(str(event.payload))
                if stream is not None:
                    stream.noticed()
            elif isinstance(event, Answer):
                self._answered(event, change, finished, handed)
        if change:
            self._commit(change)
        given_up, self._given_up = self._given_up, []
        finished += [(unit, []) for unit in given_up]
        for stream in handed:
            stream.took_handed()
        if finished or handed:
            self._deliver(finished)

    def _commit(self, change: Change) -> None:
        """One record. While the disk is full nothing goes on, and nothing is lost."""
        while True:
            try:
                with stage("commit"):
                    self._home.commit(change)
            except StorageFull as problem:
                self.trouble = str(problem)
                if self._stop:
                    raise
                time.sleep(_DISK_FULL_PAUSE_S)
            else:
                self.trouble = None
                self.rounds += 1
                return

    def _deliver(self, finished: list[tuple[RunningUnit, list[RunDone]]]) -> None:
        with stage("deliver"):
            for unit, done in finished:
                self.board.ran(unit, self._clock())
                self._after_run(unit, done)
        with self.changed:
            self.changed.notify_all()

    def _answered(
        self,
        answer: Answer,
        change: Change,
        finished: list[tuple[RunningUnit, list[RunDone]]],
        handed: list[RunningStream],
    ) -> None:
        crew = self._crews.get(answer.worker)
        if crew is None or crew.incarnation != answer.incarnation:
            return
        asked, crew.asked = crew.asked, ()
        if isinstance(answer.message, Failure):
            self._undo(asked, answer.message.error, change)
            return
        reply: Reply = answer.message  # type: ignore[assignment]
        now = self._clock()
        cost_s = 0.0
        for done in reply:
            if isinstance(done, ReadDone | RunDone):
                crew.writers.update(_writers(done.written.values()))
            if isinstance(done, ReadDone):
                stream = self.streams.get(done.stream)
                cost_s += done.cpu_s
                if stream is not None and stream.reading_us is not None:
                    stream.done(done, now, change)
                    spent(done.seconds)
                    if done.handed:
                        handed.append(stream)
            elif isinstance(done, RunDone):
                cost_s += done.cpu_s
                spent(done.seconds)
                self._ran(done, now, change, finished)
            elif isinstance(done, CheckpointDone):
                unit = self._unit(done.unit)
                if unit is not None:
                    unit.checkpointed(done, change)
            elif isinstance(done, ItemFailed):
                self._item_failed(done, change, now)
        self._round_cost_s += 0.2 * (cost_s - self._round_cost_s)

    def _ran(
        self, done: RunDone, now: int, change: Change, finished: list[tuple[RunningUnit, list[RunDone]]]
    ) -> None:
        unit = self._unit(done.unit)
        if unit is None or unit.run is None or unit.run.number != done.run:
            return
        unit.run.done.append(done)
        if unit.run.complete:
            finished.append((unit, unit.finish(now, change)))
        elif unit.run.failed is not None and unit.run.answered == unit.cells:
            self._give_up(unit, unit.run.failed, change)

    def _item_failed(self, failed: ItemFailed, change: Change, now: int) -> None:
        if failed.item == "read":
            stream = self.streams.get(failed.name)
            if stream is not None:
                stream.failed(failed.error, now)
            return
        unit = self._unit(failed.name)
        if unit is None:
            return
        self._unload(unit.id)
        if failed.item == "run" and unit.run is not None:
            self._cell_failed(unit, failed.error, change)

    def _cell_failed(self, unit: RunningUnit, why: str, change: Change) -> None:
        run = unit.run
        assert run is not None
        run.failed, run.lost = why, run.lost + 1
        if run.answered == unit.cells:
            self._give_up(unit, why, change)

    def _give_up(self, unit: RunningUnit, why: str, change: Change) -> None:
        self._unload(unit.id)
        unit.abandon(why, change)
        self._given_up.append(unit)

    def _left(self, left: Left, change: Change) -> None:
        crew = self._crews.get(left.worker)
        if crew is None or crew.incarnation != left.incarnation:
            return
        del self._crews[left.worker]
        self._placed = {place: worker for place, worker in self._placed.items() if worker != left.worker}
        self._loaded = {place: at for place, at in self._loaded.items() if at[0] != left.worker}
        for stream in self.streams.values():
            if stream.loaded is not None and stream.loaded[0] == left.worker:
                stream.loaded = None
                stream.next_read_us = 0
        self._undo(crew.asked, left.reason, change)

    def _undo(self, asked: Iterable[Item], why: str, change: Change) -> None:
        """What a worker was asked and will not answer is done again, from what is committed."""
        now = self._clock()
        for item in asked:
            name = getattr(item, "unit", None) or getattr(item, "stream", "")
            kind = "read" if hasattr(item, "stream") else "run" if hasattr(item, "inputs") else "checkpoint"
            if name:
                self._item_failed(ItemFailed(kind, name, why), change, now)

    # -- work ------------------------------------------------------------------------------------------

    def _ranked(self) -> list[RunningUnit]:
        """The units that could run now, by the policy."""
        began, now = time.perf_counter(), self._clock()
        self.board.refresh(now)
        positions, batches = self.board.ready(self._watermark, now)
        if not len(positions):
            return []
        ranked = [self.board.units[positions[i]] for i in self.chooser.choose(batches, _UNITS_PER_ROUND)]
        self.decisions.add(time.perf_counter() - began)
        return ranked

    def _give_reads(self, *, every: bool = False, handed_only: bool = False) -> bool:
        now = self._clock()
        queues: dict[int, list[Item]] = {}
        for stream in self.streams.values():
            if handed_only and not stream.handed:
                continue
            if stream.wants_read(now) or (every and stream.behind and stream.reading_us is None):
                worker = self._reader_of(stream)
                if self._crews[worker].idle:
                    queues.setdefault(worker, []).append(self._read_item(stream, worker))
        self._ask(queues)
        return bool(queues)

    def _read_item(self, stream: RunningStream, worker: int, *, flush: bool = False) -> Item:
        at = (worker, self._crews[worker].incarnation)
        first, stream.loaded = stream.loaded != at or not self._pool.resident, at
        return stream.item(self._clock(), first=first, flush=flush)

    def _reader_of(self, stream: RunningStream) -> int:
        """The worker that reads a stream: always the same while it lives."""
        crews = self._joined()
        if stream.loaded is not None and stream.loaded[0] in crews:
            return stream.loaded[0]
        busy = [other.loaded[0] for other in self.streams.values() if other.loaded is not None]
        return min(crews, key=lambda worker: (busy.count(worker), -worker))

    def _give_runs(self, units: Iterable[RunningUnit], quantum_s: float, *, checkpoint: bool = False) -> bool:
        """Ask idle workers to run these units, in this order, until each has its quantum."""
        queues: dict[int, list[Item]] = {w: [] for w, crew in self._joined().items() if crew.idle}
        load_s = dict.fromkeys(queues, 0.0)
        now, backlog = self._clock(), None
        for unit in units:
            if not any(spent_s < quantum_s for spent_s in load_s.values()):
                break
            workers = [self._place(unit, cell) for cell in range(unit.cells)]
            if unit.run is not None or any(load_s.get(worker, math.inf) >= quantum_s for worker in workers):
                continue
            if unit.strikes and any(queues[worker] for worker in workers):
                continue  # one that may have ended a worker goes alone
            backlog = backlog or self.board.backlog(len(self._crews))
            cost = unit.statistics.cost
            unit.begin({log: self._watermark(log) for log in unit.plan.unit.inputs}, now, backlog)
            assert unit.run is not None
            for cell, worker in enumerate(workers):
                place, at = (unit.id, cell), (worker, self._crews[worker].incarnation)
                known, self._loaded[place] = self._loaded.get(place) == at, at
                queues[worker].append(
                    unit.item(
                        cell,
                        restore=not known or not self._pool.resident,
                        # What was shed is not in the log: a replay would not shed it again.
                        checkpoint=checkpoint or not self._pool.resident or unit.run.shares < 1,
                    )
                )
                load_s[worker] += (cost.overhead + cost.per_row * unit.run.rows) / unit.cells
                if unit.strikes:
                    load_s[worker] = math.inf
        self._ask({worker: queue for worker, queue in queues.items() if queue})
        return any(queues.values())

    def _place(self, unit: RunningUnit, cell: int) -> int:
        """The worker that a cell is pinned to: the one with the fewest cells, when it has none yet."""
        place = (unit.id, cell)
        worker = self._placed.get(place)
        crews = self._joined()
        if worker is None or worker not in crews:
            counts = dict.fromkeys(crews, 0)
            for other in self._placed.values():
                if other in counts:
                    counts[other] += 1
            worker = min(counts, key=lambda candidate: (counts[candidate], candidate))
            self._placed[place] = worker
        return worker

    def _give_due_checkpoints(self) -> None:
        """State is written when workers have nothing else to do."""
        now_s = time.monotonic()
        for unit in self.board.units:
            if unit.checkpoint_due(now_s) and unit.run is None and not _stopped(unit):
                places = [self._loaded.get((unit.id, cell)) for cell in range(unit.cells)]
                if all(at is not None and self._is_idle(at) for at in places):
                    self._give_checkpoint(unit)
                    return

    def _is_idle(self, at: tuple[int, int]) -> bool:
        crew = self._crews.get(at[0])
        return crew is not None and crew.incarnation == at[1] and crew.idle

    def _give_checkpoint(self, unit: RunningUnit) -> None:
        queues: dict[int, list[Item]] = {}
        for cell in range(unit.cells):
            at = self._loaded.get((unit.id, cell))
            if at is None:
                return  # what is committed will be replayed by whoever gets the cell
            queues.setdefault(at[0], []).append(unit.checkpoint_item(cell))
        for worker in queues:
            if not self._crews[worker].idle:
                self._finish_asked()
        self._ask(queues)

    def forget(self, units: Iterable[str], streams: Iterable[str]) -> None:
        """Let workers drop what they keep for units and streams that are gone; while paused."""
        item = Forget(self._mill, tuple(units), tuple(streams))
        self._ask({worker: [item] for worker in self._crews})
        self._finish_asked()

    def _joined(self) -> dict[int, Crew]:
        """The workers that are there; waits for the first one."""
        while not self._crews:
            self._take(self._pool.wait(_POLL_S))
        return self._crews

    def _ask(self, queues: Mapping[int, list[Item]]) -> None:
        for worker, items in queues.items():
            crew = self._crews[worker]
            digests = {item.plan: item for item in items if hasattr(item, "plan")}
            missing = [digest for digest in digests if digest not in crew.plans]
            plans = {digest: self._pickled(digests[digest]) for digest in missing}
            if self._pool.resident:
                crew.plans.update(plans)
            crew.asked = tuple(items)
            self._pool.send(worker, Message(crew.asked, plans, self._home.durable))

    def _pickled(self, item: Item) -> bytes:
        stream = getattr(item, "stream", None)
        if stream is not None:
            return self.streams[stream].pickled
        unit = self._unit(getattr(item, "unit", ""))
        assert unit is not None
        return unit.pickled

    def _unit(self, unit_id: str) -> RunningUnit | None:
        visitor = self._visitor
        return visitor if visitor is not None and visitor.id == unit_id else self.board.unit(unit_id)


def _writers(written: Iterable[Appended]) -> Iterator[str]:
    for appended in written:
        for extent in appended.extents:
            parsed = parse_segment(extent.segment)
            if parsed is not None:
                yield parsed[0]


def _stopped(unit: RunningUnit) -> bool:
    return all(log in unit.failed for _, log in unit.plan.unit.outputs)
