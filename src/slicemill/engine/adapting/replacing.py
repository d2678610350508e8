"""Rescale of a running unit, by a checkpoint of its whole state.

All cells are checkpointed as of one run; then the new placement is committed. One journal record contains the
new placement, without heavy keys, and the checkpoint with the placement under which it was written.
Afterwards a new running unit takes over. Each of its cells restores its own rows from all files of the
checkpoint (`redistribution`). A crash before the record has no effect; a crash after it is recovered like any
other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from slicemill.engine.adapting.redistribution import can_change
from slicemill.engine.dispatcher import Dispatcher
from slicemill.engine.unit import RunningUnit
from slicemill.errors import SlicemillError
from slicemill.plan.partitions import needed_by_log
from slicemill.plan.placement import Placement
from slicemill.storage.changes import Change
from slicemill.storage.home import Home


@dataclass(slots=True)
class Replacing:
    """Changes the placements of units of a mill."""

    home: Home
    dispatcher: Dispatcher
    mill: str

    def replace_placement(self, unit: RunningUnit, placement: Placement) -> bool:
        """Rescale a unit.

        Return False, without any change, if its state could not be checkpointed.
        """
        before = Placement.of(unit.plan.exchanges)
        if placement == before:
            return True
        if not can_change(unit.plan.unit, unit.plan.graph, placement):
            raise SlicemillError(f"{unit.id} cannot change from {before} to {placement} while it runs")
        dispatcher = self.dispatcher
        with dispatcher.paused():
            dispatcher.checkpoint([unit])
            if unit.dirty:
                return False
            # If no checkpoint was written since the last rescale, the checkpoint already has an older
            # placement.
            was = {"placement": before.plain(), "heavy": unit.fields.get("heavy") or []}
            checkpoint = {**was, **unit.fields["checkpoint"]}
            fields = {"placement": placement.plain(), "heavy": None, "checkpoint": checkpoint}
            fields["checkpoint_before"] = None  # it has the old cells
            self.home.commit(Change(units={unit.id: fields}))
            plan = replace(unit.plan, exchanges=placement.exchanges)
            again = RunningUnit(plan, self.home, self.mill, by_key_alone=unit.by_key_alone)
            self._run_instead(unit, again)
        return True

    def _run_instead(self, before: RunningUnit, unit: RunningUnit) -> None:
        unit.go_on_from(before)
        units = [unit if other is before else other for other in self.dispatcher.running.units]
        read_by = needed_by_log(one.plan.exchanges for one in units)
        for one in units:
            one.read_by = read_by
        for name, stream in self.dispatcher.streams.items():
            stream.need(stream.plan.need, read_by.get(name, ()))
        self.dispatcher.replace(units)
        self.dispatcher.forget([unit.id], ())
