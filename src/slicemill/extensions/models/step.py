"""Step of models with OVER that share cores."""

from __future__ import annotations

from slicemill.extensions.models.spec import SharedModels
from slicemill.operators.step import StepContext
from slicemill.operators.window.routines import RoutineMember, RoutineWindows
from slicemill.operators.window.step import SharedWindowStep


def shared_models(operator: SharedModels, context: StepContext) -> SharedWindowStep:
    members = {
        member.name: RoutineMember(member.operator.calls, member.columns) for member in operator.members
    }
    return SharedWindowStep(RoutineWindows(members, context, operator.costs))
