"""Driver: schedules the tasks of all queries on workers and commits their results.

    wait for answers ──► ONE journal record ──► deliver ──► policy ──► a message to each idle worker
          ▲                                                                     │
          └─────────────────────────────────────────────────────────────────────┘

There is no barrier: when a worker answers, it gets its next message while other workers are busy. A message
contains reads of sources first, then runs of tasks in the order of the scheduling policy, up to a quantum of
estimated cost. While several tasks have input, one run reads at most the rows that fit into a quantum, so
that the policy can choose again soon. The input rows of a task that is not chosen stay in the logs.

Rows that arrive during a round are processed in the next round, so batches grow under load. While few rows
arrive, `PollTimer` decides when sources are polled.

A checkpoint blocks a worker only while the worker takes a snapshot. When all subtasks have sent the notice
that their files are complete, one journal record names the files. A pause of the scheduling loop waits for
all notices.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from slicemill.errors import EngineStopped, SlicemillError
from slicemill.metrics.profiling import add_stage_times, stage
from slicemill.metrics.quality_of_service import Summary
from slicemill.metrics.run_record import RunRecord
from slicemill.runtime.assignments import Assignments, CurrentStep
from slicemill.runtime.backpressure import POLL_S, PollTimer
from slicemill.runtime.balance import Rebalancer
from slicemill.runtime.messages import (
    CheckpointDone,
    CheckpointTask,
    Forget,
    Item,
    ItemFailed,
    ReadDone,
    ReadStream,
    Reply,
    RunDone,
    RunTask,
    item_failure,
)
from slicemill.runtime.spark_session import cause
from slicemill.runtime.step_limit import StepPosition, make_folder
from slicemill.runtime.streams import ReplayedRows, RunningStream, stream_of
from slicemill.runtime.task_queue import Goal, RunningTasks
from slicemill.runtime.tasks import RunningTask
from slicemill.runtime.workers.events import Failure, Notice, WorkerAnswer, WorkerJoined, WorkerLeft
from slicemill.runtime.workers.sharing import Pool
from slicemill.scheduling.batches import QUANTUM_S
from slicemill.scheduling.chooser import Chooser
from slicemill.storage.changes import Change
from slicemill.storage.filesystem import StorageFull
from slicemill.storage.home import Home
from slicemill.storage.home_state import STEPS
from slicemill.time import BEGINNING

# Maximum number of tasks in a message to a worker.
# One decision of the scheduling policy ranks all ready tasks.
_TASKS_PER_ROUND = 256
_DISK_FULL_PAUSE_S = 0.5
# A worker is reported as stalled if it takes longer than this to answer a message.
STALLED_S = 5.0
# A step is cancelled after CANCEL_S seconds if all queries that need it are being dropped.
# After END_S more seconds, the worker process of the step is killed.
CANCEL_S, END_S = 1.0, 1.0
# Maximum time in seconds that a shutdown waits for a stalled worker.
_STALLED_ENDS_S = 2.0
_NAMED = 5
# A problem is reported after this many seconds in which no worker was connected.
_ALONE_S, _NO_SLOT = 30.0, "has Spark a free slot for them, and can executors start?"
_SPARK_STOPPED = (
    "Spark has stopped: its Java process (JVM) has ended, or the session was closed; start slicemill again "
    "with the same home, and it goes on from what is committed"
)
# Maximum number of attempts of a read that must succeed.
# A single failure of a read may be the crash of a worker.
_TRIES = 3


class _Round(NamedTuple):
    """Results of a scheduling round before their commit: journal record, finished runs, fed streams."""

    change: Change
    finished: list[tuple[RunningTask, RunRecord]]
    handed: list[RunningStream]


class Dispatcher:
    """Scheduling loop of a running engine, and owner of its workers.

    `after_run` is called with the record of every committed run.
    """

    def __init__(
        self,
        pool: Pool,
        home: Home,
        mill: str,
        clock: Callable[[], int],
        chooser: Chooser,
        after_run: Callable[[RunRecord], None],
        *,
        quantum_s: float = QUANTUM_S,
    ) -> None:
        self.chooser = chooser
        self.changed = threading.Condition()
        self.failure: BaseException | None = None
        self.decisions = Summary()
        self.rounds = 0
        self.problem: str | None = None  # reason why the scheduling loop cannot continue
        self.streams: dict[str, RunningStream] = {}
        self.running = RunningTasks([], home.logs, {}, clock())
        self.quantum_s = quantum_s
        # Function that advances backfills (reads of old rows for new queries). True: one has advanced.
        self.advance: Callable[[], bool] = lambda: False
        self.between_rounds: list[Callable[[], None]] = []  # callbacks of the scheduling loop
        self._pool = pool
        self._home = home
        self._mill = mill
        self._clock = clock
        self._after_run = after_run
        records = home.folder / STEPS
        make_folder(records)
        self._assignments = Assignments(pool, mill, records, sync=home.durable)
        self.balancing = Rebalancer(self._assignments, clock())
        self._visitor: RunningTask | None = None
        self._given_up: list[RunningTask] = []  # tasks whose run failed in the current scheduling round
        self._reads_sources = False
        # A thread that changes the plan or runs tasks first waits until the scheduling loop is parked.
        self._control = threading.Condition()
        self._pausing = threading.RLock()
        self._pauses = 0
        self._begins_checkpoints = True  # False while another thread waits for the end of all checkpoints
        self._parked = True
        self._stop = False
        self._thread: threading.Thread | None = None
        self._pace = PollTimer()
        self._alone_s: float | None = None  # time since which no worker has been connected
        self._resume_s = 0.0  # time before which no message is sent to workers, because the disk is full
        self.full: str | None = None  # reason why no journal record can be written now
        self._refused: str | None = None  # reason why a worker could not write files in this round
        # Finished work that could not be committed because the disk was full.
        # The next round commits this work.
        self._left: _Round | None = None
        self._ends_s: float | None = None  # deadline for the answers of all workers, at shutdown
        self._stalled_ends_s = math.inf  # earlier deadline for the answers of stalled workers
        self._dropping: frozenset[str] = frozenset()  # queries that the current DROP statement removes
        self._dropping_s = 0.0
        self._frozen: dict[str, int] | None = None  # log -> watermark that all its readers use

    # -- state of the engine ---------------------------------------------------------------------------

    @property
    def tasks(self) -> dict[str, RunningTask]:
        return {task.id: task for task in self.running.tasks}

    @property
    def writers(self) -> set[str]:
        """Return the names of the writers that may still append rows to segments (files of a log)."""
        return self._assignments.writers

    @property
    def keeps_connections(self) -> bool:
        """Return True if the connection of a stream stays open between reads."""
        return self._assignments.resident

    def worker_of(self, task: RunningTask, subtask: int) -> int | None:
        """Return the worker that holds the state of a subtask, or None."""
        return self._assignments.holder_of(task, subtask)

    def describe_stalls(self) -> list[str]:
        """Describe each stalled worker, with the queries or streams that it processes."""
        now_s, found = time.monotonic(), []
        for worker, (since_s, items) in self._assignments.busy_since().items():
            took_s = now_s - since_s
            if took_s > STALLED_S:
                logs = sorted(self._outputs_of_step(worker, items))
                streams = sorted({item.stream for item in items if isinstance(item, ReadStream)})
                what = (
                    f"computing {_abbreviate_names(logs)}"
                    if logs
                    else f"reading {_abbreviate_names(streams)}"
                )
                found.append(f"worker {worker} has been {what} for {took_s:.0f} s; what needs it waits")
        for worker, since_s in self._assignments.writing_since().items():
            if (took_s := now_s - since_s) > STALLED_S:
                found.append(f"worker {worker} has been writing a checkpoint for {took_s:.0f} s")
        return found

    def _outputs_of_step(self, worker: int, items: Iterable[Item]) -> set[str]:
        """Return the logs of all queries that need a worker's current step."""
        at = self._assignments.current_step(worker)
        if at is not None and (task := self._task(at.item.task)) is not None:
            return set(task.logs_behind(at.step))
        tasks = [self._task(item.task) for item in items if isinstance(item, RunTask)]
        return {log for task in tasks if task is not None for _, log in task.plan.task.outputs}

    # -- watermarks ------------------------------------------------------------------------------------

    def watermark(self, log: str) -> int:
        """Announce and return the watermark of a log of a stream or task.

        For a paused query or stream, return the watermark at the pause.
        """
        if self._frozen is None:
            return self._watermark(log)
        if log not in self._frozen:
            self._frozen[log] = self._watermark(log)
        return self._frozen[log]

    def _watermark(self, log: str) -> int:
        if "paused" in (life := self._home.lives.get(log, {})):
            return int(life["paused"]["watermark"])
        if log in self.streams:
            return self.streams[log].watermark(self._clock())
        writer = self.running.writers.get(log)
        if writer is not None:
            inputs = [self._watermark(read) for read in writer.inputs_of_idle(log)]
            return writer.watermark_now(log, inputs)
        # After a restart, a task is stored in the home directory before it resumes.
        for fields in self._home.tasks.values():
            if log in fields["outputs"]:
                return int(fields["output_watermarks"].get(log, BEGINNING))
        return stream_of(log, self.streams).side_watermark(log, self._clock())

    @contextmanager
    def frozen_watermarks(self) -> Iterator[None]:
        """Keep the watermark of each log constant for all tasks while the context is open."""
        self._frozen = {}
        try:
            yield
        finally:
            self._frozen = None

    # -- control ---------------------------------------------------------------------------------------

    def resize(self, count: int) -> None:
        """Add workers, or remove the last workers. The scheduling loop must be paused."""
        self._pool.resize(count)
        self._take(self._pool.wait(0))

    def replace(self, tasks: Iterable[RunningTask], goals: Mapping[str, Goal] | None = None) -> None:
        """Replace the running tasks. The scheduling loop must be paused.

        `goals` maps each query to its goal. The value None keeps the current goals.
        """
        fresh = list(tasks)
        kept = {(task.id, task.digest) for task in fresh}
        subtasks = {task.id: task.subtasks for task in fresh}
        gone = [task for task in self.running.tasks if (task.id, task.digest) not in kept]
        for task in gone:
            same = subtasks.get(task.id) == task.subtasks
            (self._assignments.unload if same else self._assignments.release)(task.id)
        self.balancing.forget({task.id for task in gone})
        goals = self.running.goals if goals is None else goals
        self.running = RunningTasks(fresh, self._home.logs, goals, self._clock(), self.running)

    def close(self) -> None:
        """Remove the files in which workers record their current steps."""
        self._assignments.close()

    def notify(self) -> None:
        """Wake the scheduling loop and all threads that wait for new results."""
        self._pool.wake()
        with self.changed:
            self.changed.notify_all()

    def start(self) -> None:
        self._stop, self._reads_sources, self._parked = False, True, False
        self._thread = threading.Thread(target=self._loop, name="slicemill-dispatcher", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the scheduling loop after the current round."""
        self._stop, self._reads_sources = True, False
        self._pool.wake()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def check(self) -> None:
        """Raise EngineStopped if the scheduling loop has failed."""
        if isinstance(self.failure, EngineStopped):
            raise EngineStopped(str(self.failure)) from self.failure
        if self.failure is not None:
            raise EngineStopped(f"the dispatcher stopped: {cause(self.failure)}") from self.failure

    def end_within(self, seconds: float) -> None:
        """Set the deadline for the answers of workers at shutdown.

        After the deadline, unfinished work is abandoned. The deadline for stalled workers is earlier.
        """
        now_s = time.monotonic()
        self._ends_s, self._stalled_ends_s = now_s + seconds, now_s + _STALLED_ENDS_S
        self._pool.wake()

    def _check_waiting(self) -> None:
        """Raise EngineStopped if the scheduling loop failed or workers missed their deadline."""
        self.check()
        if self._ends_s is None:
            return
        now_s = time.monotonic()
        stalled = any(now_s - since_s > STALLED_S for since_s, _ in self._assignments.busy_since().values())
        if now_s >= (min(self._ends_s, self._stalled_ends_s) if stalled else self._ends_s):
            raise EngineStopped("workers did not finish their work before the engine had to end")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hold the scheduling loop between two rounds while the context is open.

        No message to a worker and no checkpoint is in progress, so the plan may change inside the context.
        Until the current checkpoints are written, the scheduling loop continues to run tasks. Raise
        StorageFull if the scheduling loop waits for disk space.
        """
        with self._pausing:
            self._await_checkpoints()
            with self._control:
                self._pauses += 1
                self._pool.wake()
                if threading.current_thread() is not self._thread:
                    self._control.wait_for(lambda: self._parked or self.full is not None)
                    if not self._parked:
                        self._pauses -= 1
                        raise StorageFull(self.full)
            try:
                self._wait_for_answers()
                yield
            finally:
                with self._control:
                    self._pauses -= 1
                    self._control.notify_all()

    def _await_checkpoints(self) -> None:
        """Wait until the current checkpoints are written.

        Meanwhile the scheduling loop begins no new checkpoints.
        """
        self._begins_checkpoints = False
        try:
            with self._control:
                while self._assignments.writing_since() and not self._parked and self.full is None:
                    if threading.current_thread() is self._thread or time.monotonic() >= (
                        math.inf if self._ends_s is None else self._ends_s
                    ):
                        return
                    self._control.wait(POLL_S)
        finally:
            self._begins_checkpoints = True

    @contextmanager
    def dropping(self, names: Iterable[str]) -> Iterator[None]:
        """Cancel slow steps that only the dropped queries need, while the context is open."""
        self._dropping, self._dropping_s = frozenset(names), time.monotonic()
        try:
            yield
        finally:
            self._dropping = frozenset()

    def _cancel_dropped(self) -> None:
        """Cancel slow steps that only dropped queries need, or kill their processes."""
        now_s = time.monotonic()
        for worker, (since_s, items) in self._assignments.busy_since().items() if self._dropping else ():
            waited_s = now_s - max(since_s, self._dropping_s)
            if waited_s > CANCEL_S:
                indices = [
                    index for at, item in enumerate(items) for index in self._steps_to_cancel(at, item)
                ]
                self._assignments.cancel(worker, indices)
                if waited_s > CANCEL_S + END_S and self._assignments.current_position(worker) in indices:
                    self._assignments.end(worker)

    def _steps_to_cancel(self, at: int, item: Item) -> Iterator[StepPosition]:
        task = self._task(item.task) if isinstance(item, RunTask) else None
        for step in range(len(task.plan.task.nodes)) if task is not None else ():
            assert task is not None
            logs = task.logs_behind(step)
            if logs and self._dropping.issuperset(logs):
                yield StepPosition(at, step)

    def finish(self, task: RunningTask) -> None:
        """Run a task over all its pending rows, and checkpoint it.

        The scheduling loop must be paused. A backfilling task is only checkpointed. The task need not be in
        `self.running`, because its plan may be about to change.
        """
        if not task.catching_up:
            self.catch_up(task)
        self.run_while(task, lambda: task.is_checkpoint_outdated, checkpoint=True)
        self._assignments.unload(task.id)

    def catch_up(self, task: RunningTask) -> None:
        """Run a task over all its pending rows.

        The scheduling loop must be paused.
        """
        self.run_while(task, lambda: task.has_pending)

    def catch_up_upstream(self, tasks: Sequence[RunningTask], logs: Collection[str]) -> None:
        """Run all tasks from which the given logs are derived over their pending rows.

        The scheduling loop must be paused. `logs` are the given logs, `tasks` the candidates in plan order.
        """
        wanted, upstream = set(logs), []
        for task in reversed(tasks):
            if any(log in wanted for _, log in task.plan.task.outputs):
                wanted.update(task.plan.task.inputs)
                upstream.append(task)
        for task in reversed(upstream):
            self.catch_up(task)

    def run_while(self, task: RunningTask, wanted: Callable[[], bool], *, checkpoint: bool = False) -> None:
        self._visitor = task
        try:
            while wanted() and not task.has_failed:
                self._refused = None
                self._send_runs({task: 1.0}, math.inf, checkpoint=checkpoint)
                self._wait_for_answers()
                if self._refused is not None:
                    raise StorageFull(self._refused)
        finally:
            self._visitor = None

    def checkpoint(self, tasks: Iterable[RunningTask]) -> None:
        """Checkpoint tasks, so that a restart does not replay their earlier input.

        The scheduling loop must be paused.
        """
        for task in tasks:
            if task.dirty and not task.has_failed:
                self._send_checkpoint(task)
                self._wait_for_answers()

    def checkpoint_all(self) -> None:
        """Checkpoint all tasks, so that a restart replays nothing."""
        with self.paused():
            self.checkpoint(self.tasks.values())

    def admit_handed(self) -> None:
        """Write the rows fed by the program into the logs of their streams. No query runs."""
        with self.paused():
            self._read_while_wanted(handed_only=True)

    def read_all(self) -> None:
        """Read all available rows of all sources. No query runs."""
        with self.paused():
            for stream in self.streams.values():
                if not stream.handed and not stream.ended:
                    stream.next_read_us = 0
            self._read_while_wanted(every=True)

    def read_now(self, streams: Iterable[RunningStream]) -> None:
        """Read all available rows of the given streams. The scheduling loop must be paused."""
        chosen = [stream for stream in streams if not stream.handed and not stream.ended]
        for stream in chosen:
            stream.next_read_us = 0
        while self._send_reads(every=True, only=chosen):
            self._wait_for_answers()

    def _read_while_wanted(self, *, every: bool = False, handed_only: bool = False) -> None:
        """Read all streams whose next read is due. Retry failed reads at once."""
        while self._send_reads(every=every, handed_only=handed_only):
            self._wait_for_answers()
            for stream in self.streams.values():
                if 0 < stream.failures < _TRIES and (stream.handed or not handed_only):
                    stream.retry_now()

    def end_streams(self) -> None:
        """End all streams and flush the rows that they hold back.

        A stream whose source fails is not ended.
        """
        with self.paused():
            for stream in self.streams.values():
                if stream.error is None:
                    self.admit_rows(stream)
                    stream.ended = True
            # Paused tasks are woken too, so that their outputs end.
            self.running.wake()

    def admit_rows(self, stream: RunningStream, replay: ReplayedRows | None = None) -> None:
        """Write replayed rows of a stream to its log, or flush its held-back rows.

        The scheduling loop must be paused. If no replay is given, flush the rows that the stream holds back.
        """
        for _ in range(_TRIES):
            self._wait_for_workers()
            worker = self._assignments.reader_of(stream, self.streams.values())
            first = self._assignments.begin_reading(stream, worker)
            self._send_items(
                {worker: [stream.item(self._clock(), first=first, flush=not replay, replay=replay)]}
            )
            self._wait_for_answers()
            if stream.error is None:
                return
        raise SlicemillError(f"{stream.name} could not be {'read' if replay else 'ended'}: {stream.error}")

    def run_all(self) -> None:
        """Run tasks until no task can run."""
        while self.run_some():
            pass

    def run_some(self) -> bool:
        """Run the tasks that the scheduling policy chooses, once.

        Return False if no task can run.
        """
        with self.paused():
            self._read_while_wanted(handed_only=True)
            asked = self._send_runs(self._ranked(), self.quantum_s)
            self._wait_for_answers()
            return self.advance() or asked

    # -- the loop --------------------------------------------------------------------------------------

    def _loop(self) -> None:
        try:
            while not self._stop:
                self._park()
                readable = self._assignments.readable(self.streams.values())
                self._take(self._pool.wait(self._pace.patience_s(readable, self._clock())))
                if not self._assignments:
                    self._report_missing_workers()
                elif not self._pauses and not self._stop and time.monotonic() >= self._resume_s:
                    self._give()
        except BaseException as problem:  # The failure is recorded, and the waiting threads are woken.
            self.failure = problem
            with self.changed:
                self.changed.notify_all()
        finally:
            with self._control:
                self._parked = True
                self._control.notify_all()

    def _park(self) -> None:
        """Park the scheduling loop while another thread requires a pause."""
        with self._control:
            while self._pauses and not self._stop:
                self._parked = True
                self._control.notify_all()
                self._control.wait()
            self._parked = False

    def _wait_for_answers(self) -> None:
        """Wait for all messages and checkpoints in progress, and commit their results."""
        while self._assignments.busy or self._left is not None:
            self._check_waiting()
            self._cancel_dropped()
            self._take(self._pool.wait(0 if self._left is not None else POLL_S))

    def turn(self) -> None:
        """Run one iteration of the scheduling loop. Tests and simulations with their own clock call this."""
        self._take(self._pool.wait(0))
        self._send_reads(handed_only=True)
        self._give()

    def look(self) -> None:
        """Call the callbacks that run between two scheduling rounds, unless the plan is changing.

        A callback that fails because the disk is full is called again in the next round.
        """
        if self._pausing.acquire(blocking=False):
            try:
                for look in self.between_rounds:
                    try:
                        look()
                    except StorageFull as problem:
                        self.problem = str(problem)
            finally:
                self._pausing.release()

    def _give(self) -> None:
        self.look()
        asked = False
        if self._reads_sources and self._pace.is_due:
            asked = self._send_reads()
            if asked:
                self._pace.record_poll(self.streams.values(), self.running.strictest_s)
        asked |= self._send_runs(self._ranked(), self.quantum_s)
        if not asked:
            self._send_due_checkpoint()

    # -- answers ---------------------------------------------------------------------------------------

    def _take(self, events: Iterable[object]) -> None:
        """Process the events of workers: commit their results, then deliver the committed results."""
        change, finished, handed = self._left or _Round(Change(), [], [])
        self._left = None
        stopped = False
        for event in events:
            if isinstance(event, WorkerJoined):
                self._assignments.join(event)
                self._alone_s = None
            elif isinstance(event, WorkerLeft):
                step = self._assignments.current_step(event.worker, event.incarnation)
                asked = self._assignments.leave(event, self.streams.values())
                self._undo(asked, event.reason, change, step)
                stopped |= event.spark_stopped
            elif isinstance(event, Notice) and isinstance(event.payload, CheckpointDone):
                self._end_checkpoint(event, event.payload, change)
            elif isinstance(event, Notice):
                if (stream := self.streams.get(str(event.payload))) is not None:
                    stream.handle_notice()
            elif isinstance(event, WorkerAnswer):
                self._answered(event, change, finished, handed)
        if change:
            try:
                self._commit(change)
            except StorageFull:
                self._left = _Round(change, finished, handed)
                raise
        given_up, self._given_up = self._given_up, []
        finished += [(task, task.record_of_failure()) for task in given_up]
        for stream in handed:
            stream.drop_committed_rows()
        if finished or handed:
            self._deliver(finished)
        if stopped:
            self.failure = EngineStopped(_SPARK_STOPPED)
            raise self.failure

    def _commit(self, change: Change) -> None:
        """Commit the results of a scheduling round by one journal record.

        While the disk is full, the scheduling loop retries and reports the problem. Other threads raise
        StorageFull.
        """
        while True:
            try:
                with stage("commit"):
                    self._home.commit(change)
            except StorageFull as problem:
                with self._control:
                    self.problem = self.full = str(problem)
                    self._control.notify_all()
                if self._stop or threading.current_thread() is not self._thread:
                    raise
                time.sleep(_DISK_FULL_PAUSE_S)
            else:
                self.problem = self.full = None
                self.rounds += 1
                return

    def _deliver(self, finished: list[tuple[RunningTask, RunRecord]]) -> None:
        now = self._clock()  # Results are readable since their commit.
        with stage("deliver"):
            for task, record in finished:
                self.running.ran(task, now)
                warm_us = self.running.warm_us(task, now)
                ideal = {log: self.running.ideal_time(log) for log, rows in record.written.items() if rows}
                self._after_run(replace(record, committed_us=now, warm_us=warm_us, ideal=ideal))
        with self.changed:
            self.changed.notify_all()

    def _answered(
        self,
        answer: WorkerAnswer,
        change: Change,
        finished: list[tuple[RunningTask, RunRecord]],
        handed: list[RunningStream],
    ) -> None:
        step = None
        if isinstance(answer.message, Failure):
            step = self._assignments.current_step(answer.worker, answer.incarnation)
        asked = self._assignments.answered(answer)
        if asked is None:
            return
        if isinstance(answer.message, Failure):
            for item in asked:
                if isinstance(item, CheckpointTask):
                    self._assignments.discard_checkpoint(answer.worker, item.task)
            self._undo(asked, answer.message.error, change, step)
            return
        reply: Reply = answer.message  # type: ignore[assignment]
        now = self._clock()
        cost_s = 0.0
        for done in reply:
            if isinstance(done, ReadDone | RunDone):
                self._assignments.note_writers(answer.worker, done)
            if isinstance(done, ReadDone):
                stream = self.streams.get(done.stream)
                cost_s += done.cpu_s
                if stream is not None and stream.reading_us is not None:
                    stream.done(done, now, change)
                    if not self._assignments.resident:
                        stream.poll_soon(now)
                    self.running.arrived(stream.name, done.key_samples)
                    add_stage_times(done.seconds)
                    if done.handed:
                        handed.append(stream)
            elif isinstance(done, RunDone):
                cost_s += 0.0 if self.running.is_catching_up(done.task) else done.cpu_s
                add_stage_times(done.seconds)
                self._ran(done, now, change, finished)
            elif isinstance(done, CheckpointDone):
                self._end_checkpoint(answer, done, change)
            elif isinstance(done, ItemFailed):
                if done.item == "checkpoint":
                    self._assignments.discard_checkpoint(answer.worker, done.name)
                self._handle_item_failure(done, change, now)
        self._pace.spend(cost_s)

    def _end_checkpoint(self, by: WorkerAnswer | Notice, done: CheckpointDone, change: Change) -> None:
        """Record that a worker has written, or failed to write, the checkpoint of a subtask.

        If the write has failed, the task's checkpoint is discarded. The state in memory is intact.
        """
        task = self._task(done.task) if self._assignments.written(by, done) else None
        if task is None:
            return
        if done.failed is None:
            task.finish_subtask_checkpoint(done, change)
        else:
            task.drop_checkpoint()
            self.balancing.forget({task.id})  # The moves of the task's subtasks are cancelled.
            self._report_failed_write(done.failed)

    def _ran(
        self, done: RunDone, now: int, change: Change, finished: list[tuple[RunningTask, RunRecord]]
    ) -> None:
        task = self._task(done.task)
        if task is None or task.run is None or task.run.number != done.run:
            return
        task.run.done.append(done)
        if task.run.all_done and task.is_repeated():
            self._give_up(task, task.run.errors, change)
        elif task.run.all_done:
            if task.run.errors:  # The next run omits the failed queries.
                self._assignments.unload(task.id)
            answers = task.run.done
            finished.append((task, task.finish(now, change)))
            for log, samples in (pair for answer in answers for pair in answer.key_samples.items()):
                self.running.arrived(log, samples)
        elif task.run.failed is not None and task.run.answered == task.subtasks:
            self._give_up(task, task.run.failed, change)

    def _handle_item_failure(self, failed: ItemFailed, change: Change, now: int) -> None:
        if failed.item == "read":
            if (stream := self.streams.get(failed.name)) is not None:
                stream.failed(failed.error, now)
            return
        task = self._task(failed.name)
        if task is None:
            return
        self._assignments.unload(task.id)
        if failed.item == "checkpoint":
            task.drop_checkpoint()
        if failed.disk_full or failed.item == "checkpoint":
            self._report_failed_write(failed)
        if failed.item == "run" and task.run is not None:
            task.run.disk_full |= failed.disk_full
            task.run.checkpoint_damaged |= failed.checkpoint_damaged
            self._handle_subtask_failure(task, failed.error, change)

    def _report_failed_write(self, failed: ItemFailed) -> None:
        """Report a worker's failed write, and pause scheduling for a moment."""
        if failed.disk_full:
            self._refused = failed.error
        self.problem = failed.error
        self._resume_s = time.monotonic() + _DISK_FULL_PAUSE_S

    def _handle_subtask_failure(self, task: RunningTask, why: str, change: Change) -> None:
        run = task.run
        assert run is not None
        run.failed, run.lost = why, run.lost + 1
        if run.answered == task.subtasks:
            self._give_up(task, why, change)

    def _give_up(self, task: RunningTask, why: str | Mapping[str, str], change: Change) -> None:
        self._assignments.unload(task.id)
        task.abandon(why, change)
        self._given_up.append(task)

    def _undo(self, asked: Iterable[Item], why: str, change: Change, step: CurrentStep | None = None) -> None:
        """Handle the runs, reads and checkpoints that a lost worker did not finish.

        This work is retried from the committed state. If the worker ended in a `step`, the queries of that
        step are suspects. If the worker was killed because the step was stuck, these queries fail at once,
        and the failure does not count for other tasks.
        """
        now = self._clock()
        for item in asked:
            if step is not None and isinstance(item, RunTask) and (task := self._task(item.task)):
                task.note_end(item.run, step.step if item is step.item else None, stuck=step.stuck)
            failed = item_failure(item, why)
            if failed is not None:
                self._handle_item_failure(failed, change, now)

    # -- work ------------------------------------------------------------------------------------------

    def _ranked(self) -> dict[RunningTask, float]:
        """Rank the tasks that can run, in the order of the scheduling policy.

        The result maps each task to the share of its pending rows that its next run reads.
        """
        began, now = time.perf_counter(), self._clock()
        self.running.refresh(now)
        quantum_s = self.quantum_s if self._assignments.resident else math.inf
        watermarks = {log: self.watermark(log) for log in self.running.logs_to_check()}
        positions, batches = self.running.ready(watermarks, now, quantum_s)
        if not len(positions):
            return {}
        within = self.running.within_components(self.chooser.components, positions)
        chosen = self.chooser.choose(batches, _TASKS_PER_ROUND, within)
        shares = batches.rows / batches.pending
        ranked = {self.running.tasks[positions[i]]: float(shares[i]) for i in chosen}
        self.decisions.add(time.perf_counter() - began)
        return self.running.order_backfills_last(ranked, now)

    def _send_reads(
        self,
        *,
        every: bool = False,
        handed_only: bool = False,
        only: Collection[RunningStream] | None = None,
    ) -> bool:
        now = self._clock()
        queues: dict[int, list[Item]] = {}
        for stream in self.streams.values() if only is None else only:
            wanted = stream.wants_read(now) or (every and stream.behind and stream.reading_us is None)
            if wanted and not every and not self._assignments.resident and stream.is_idle(now):
                continue
            if wanted and (stream.handed or not handed_only):
                self._wait_for_workers()
                worker = self._assignments.reader_of(stream, self.streams.values())
                if self._assignments.is_idle(worker):
                    first = self._assignments.begin_reading(stream, worker)
                    queues.setdefault(worker, []).append(stream.item(now, first=first))
        self._send_items(queues)
        return bool(queues)

    def _send_runs(
        self, tasks: Mapping[RunningTask, float], quantum_s: float, *, checkpoint: bool = False
    ) -> bool:
        """Send runs of the given tasks, in the given order, to idle workers.

        `tasks` maps each task to the share of its pending rows that the run reads. Each worker gets at most a
        quantum of estimated cost.
        """
        self._wait_for_workers()
        queues: dict[int, list[Item]] = {worker: [] for worker in self._assignments.idle}
        load_s = dict.fromkeys(queues, 0.0)
        now, backlog = self._clock(), None
        self.balancing.look(self.running.tasks, self.streams.values(), now)
        for task, share in tasks.items():
            if not any(spent_s < quantum_s for spent_s in load_s.values()):
                break
            if task.run is None:
                self.balancing.settle(task)
            workers = [self._assignments.worker_of(task, subtask) for subtask in range(task.subtasks)]
            if task.run is not None or any(load_s.get(worker, math.inf) >= quantum_s for worker in workers):
                continue
            moves = task.dirty and self.balancing.is_urgent(task)
            if moves and (
                task.writing or (self._begins_checkpoints and self._snapshots(task, workers, queues))
            ):
                # The subtasks move before the next run, so that no rows are replayed.
                continue
            alone = bool(task.strikes) or task.searching or task.catching_up
            if alone and any(queues[worker] for worker in workers):
                # A task with a failed run uses its workers alone, because the run may crash them.

                # A backfill (read of old rows) uses its workers alone, because it would delay live tasks.
                continue
            backlog = backlog or self.running.backlog(len(self._assignments))
            cost = task.statistics.cost
            watermarks = {log: self.watermark(log) for log in task.plan.task.inputs}
            task.begin(watermarks, self.running.moments(task, self.streams), now, backlog, share)
            assert task.run is not None
            self.running.began(task)
            # After load shedding a checkpoint is written, because a replay would process shed rows.
            written = checkpoint or not self._assignments.resident or task.run.shares < 1
            if not written and self._begins_checkpoints and task.checkpoint_overdue(time.monotonic()):
                self._snapshots(task, workers, queues)
            for subtask, worker in enumerate(workers):
                known = self._assignments.take_up(task, subtask, worker)
                queues[worker].append(task.item(subtask, restore=not known, checkpoint=written))
                # Estimated cost of the slowest subtask.
                load_s[worker] += cost.overhead + cost.per_row * task.run.rows
                if alone:
                    load_s[worker] = math.inf
        self._send_items({worker: queue for worker, queue in queues.items() if queue})
        return any(queues.values())

    def _send_due_checkpoint(self) -> None:
        """Start at most one due checkpoint of a task whose workers are idle."""
        now_s, assignments = time.monotonic(), self._assignments
        for task in self.running.tasks if self._begins_checkpoints else ():
            if task.checkpoint_due(now_s) and task.run is None and not task.has_failed:
                holders = [assignments.holder_of(task, subtask) for subtask in range(task.subtasks)]
                known = [worker for worker in holders if worker is not None]
                if all(assignments.is_idle(one) and not assignments.is_writing(one) for one in known):
                    self._send_checkpoint(task)
                    return

    def _send_checkpoint(self, task: RunningTask) -> None:
        holders = [self._assignments.holder_of(task, subtask) for subtask in range(task.subtasks)]
        queues: dict[int, list[Item]] = {worker: [] for worker in holders if worker is not None}
        if self._snapshots(task, holders, queues):
            self._send_items(queues)
        else:
            # A worker has died since the last run of the task.
            # The workers that take over its subtasks replay rows, then write a checkpoint.
            self._send_runs({task: 1.0}, math.inf, checkpoint=True)

    def _snapshots(
        self, task: RunningTask, workers: Sequence[int | None], queues: Mapping[int, list[Item]]
    ) -> bool:
        """Queue a checkpoint of the state of a task after its last run.

        Return False, and queue nothing, if a worker does not hold its subtask in memory or is already
        writing a checkpoint. A worker holds at most one snapshot in memory.
        """
        for subtask, worker in enumerate(workers):
            if worker is None or self._assignments.holder_of(task, subtask) != worker:
                return False
            if self._assignments.is_writing(worker):
                return False
            if any(isinstance(item, CheckpointTask) for item in queues[worker]):
                return False
        task.begin_checkpoint()
        for subtask, worker in enumerate(workers):
            assert worker is not None
            queues[worker].append(task.checkpoint_item(subtask))
        return True

    def forget(self, tasks: Iterable[str], streams: Iterable[str]) -> None:
        """Release the state of removed tasks and streams from the memory of workers.

        The scheduling loop must be paused.
        """
        item = Forget(self._mill, tuple(tasks), tuple(streams))
        self._send_items({worker: [item] for worker in self._assignments})
        self._wait_for_answers()

    def _wait_for_workers(self) -> None:
        """Wait until at least one worker is connected."""
        while not self._assignments:
            self._check_waiting()
            self._take(self._pool.wait(POLL_S))
            self._report_missing_workers()

    def _report_missing_workers(self) -> None:
        """Report a problem if no worker has been connected for _ALONE_S seconds."""
        now_s = time.monotonic()
        if self._alone_s is None:
            self._alone_s = now_s
        elif now_s - self._alone_s > _ALONE_S:
            self.problem = f"no worker has been there for {now_s - self._alone_s:.0f} s; {_NO_SLOT}"

    def _send_items(self, queues: Mapping[int, list[Item]]) -> None:
        plans: dict[str, bytes] = {}
        for item in (item for queue in queues.values() for item in queue):
            if isinstance(item, ReadStream):
                plans[item.plan] = self.streams[item.stream].pickled
            elif isinstance(item, RunTask) and (task := self._task(item.task)) is not None:
                plans[item.plan] = task.packed
        self._assignments.send(queues, plans)

    def _task(self, task_id: str) -> RunningTask | None:
        visitor = self._visitor
        return visitor if visitor is not None and visitor.id == task_id else self.running.task(task_id)


def _abbreviate_names(names: Sequence[str]) -> str:
    """Return the first _NAMED names of a list, and the number of the other names."""
    shown, more = names[:_NAMED], len(names) - _NAMED
    return f"{', '.join(shown)}{f' and {more} others' if more > 0 else ''}" or "state"
