"""A worker in this process whose runs take the time that a test says: the mill's clock moves on by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from slicemill.runtime.messages import Message, RunDone, RunTask
from slicemill.runtime.workers.events import WorkerAnswer
from slicemill.runtime.workers.inline import InlinePool
from slicemill.runtime.workers.sharing import HANDLER
from slicemill.scheduling.statistics import BatchCost
from slicemill.testing import Clock


class VirtualPool(InlinePool):
    """`costs` has what runs take, by task; a message takes `round_s` in any case, and so does a read."""

    def __init__(self, clock: Clock, round_s: float) -> None:
        super().__init__(1, HANDLER)
        self.costs: Mapping[str, BatchCost] = {}
        self._clock = clock
        self._round_s = round_s

    def answered(self, answer: WorkerAnswer, message: object) -> WorkerAnswer | None:
        assert isinstance(message, Message) and isinstance(answer.message, tuple)
        took_s, reply = self._round_s, []
        runs = {item.task: item for item in message.items if isinstance(item, RunTask)}
        for done in answer.message:
            if isinstance(done, RunDone):
                spans = runs[done.task].inputs.values()
                run_s = self.costs[done.task].of(sum(epoch.rows for span in spans for epoch in span.epochs))
                reply.append(replace(done, cpu_s=run_s, seconds={"run: kernels": run_s}))
                took_s += run_s
            else:
                reply.append(done)
                took_s += self._round_s
        self._clock.now += round(1_000_000 * took_s)
        return replace(answer, message=tuple(reply))
