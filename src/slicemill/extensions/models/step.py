"""Execution of window calls of models whose queries share core statistics.

A core statistic is a sum, count or extreme over the window from which a model's result is computed.
"""

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
