"""Step of models with OVER that share cores."""

from __future__ import annotations

from slicemill.extensions.models.spec import SharedModels
from slicemill.operators.step import StepContext
from slicemill.operators.window.compiled import RoutineMember, SharedCallsStep


def shared_models(operator: SharedModels, context: StepContext) -> SharedCallsStep:
    members = {
        member.name: RoutineMember(member.operator.calls, member.columns) for member in operator.members
    }
    return SharedCallsStep(members, context, operator.costs)
