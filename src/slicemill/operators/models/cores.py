"""Which cores are kept for the models of a shared node, and for whom."""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.aggregate.model_calls import Asked, go_together, jointly
from slicemill.esl.types.query import Window, WindowCall
from slicemill.operators.specs import SharedModels


@dataclass(frozen=True, slots=True)
class SharedCore:
    """`users` are the calls that need the core, each with its query."""

    window: Window
    core: str
    users: tuple[tuple[str, WindowCall], ...]


@dataclass(slots=True)
class _Bundle:
    """Calls of models that are run together."""

    window: Window
    asked: list[Asked]
    calls: list[tuple[str, WindowCall]]


def cores_of(shared: SharedModels) -> list[SharedCore]:
    """All that is kept, as long as all that models are given are numbers."""
    found = []
    for bundle in _bundles(shared):
        joint = jointly(bundle.asked)
        for place, kept in enumerate(joint.kept):
            users = tuple(bundle.calls[number] for number in joint.users(place))
            found.append(SharedCore(bundle.window, str(kept.core), users))
    return found


def _bundles(shared: SharedModels) -> list[_Bundle]:
    bundles: list[_Bundle] = []
    for member in shared.members:
        for call, asked in zip(member.operator.calls, member.asked, strict=True):
            for bundle in bundles:
                if bundle.window == call.window and go_together(bundle.asked, asked):
                    break
            else:
                bundle = _Bundle(call.window, [], [])
                bundles.append(bundle)
            bundle.asked.append(asked)
            bundle.calls.append((member.query, call))
    return bundles
