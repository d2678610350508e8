"""Plan node for window calls of models (OVER) whose queries share core statistics.

A model is a formula over a window. A core statistic is a sum, count or extreme over the window from which the
model's result is computed. Equal core statistics of several queries are stored once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slicemill.catalog.catalog import Catalog, TimestampKind
from slicemill.catalog.expressions import Expr
from slicemill.catalog.queries import Window, WindowCall
from slicemill.extensions.models.calls import ModelCall, can_share_window, joint_state
from slicemill.extensions.models.cost import CoreCosts
from slicemill.operators.protocol import (
    ColumnsRead,
    Description,
    Keys,
    MemberKind,
    OperatorKind,
    Role,
    SharedOperator,
    TaskOf,
    call_text,
    longest_us,
    partition,
    pluralize,
    preceding,
    window_calls,
)
from slicemill.operators.window.spec import WindowAggregate, bits_of_calls, calls_wait
from slicemill.types import Column

if TYPE_CHECKING:
    from slicemill.operators.graph import Node, QueryGraph


@dataclass(frozen=True, slots=True)
class ModelMember:
    """Window calls of one query in the operator that several queries share.

    `models` are the models of the calls. `name` is stable for the lifetime of the query. `query` is the name
    that users see.
    """

    name: str
    query: str
    operator: WindowAggregate
    models: tuple[ModelCall, ...]
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class SharedModels(SharedOperator):
    """Operator that computes window calls of models (OVER) for several queries (C14).

    All queries have the same input and partition keys. Equal core statistics are stored once. `costs`
    determine how the core statistics of new queries are computed (C18).
    """

    keys: tuple[Expr, ...]
    members: tuple[ModelMember, ...]
    costs: CoreCosts | None = None

    @property
    def calls(self) -> tuple[WindowCall, ...]:
        return tuple(call for member in self.members for call in member.operator.calls)


@dataclass(frozen=True, slots=True)
class SharedCore:
    """Core statistic of one window, as text, and the calls that use it, each with its query."""

    window: Window
    core: str
    users: tuple[tuple[str, WindowCall], ...]


@dataclass(slots=True)
class _Bundle:
    """Calls of models over one window that are evaluated together."""

    window: Window
    models: list[ModelCall]
    calls: list[tuple[str, WindowCall]]


def cores_of(shared: SharedModels) -> list[SharedCore]:
    """Return the core statistics that the queries share, assuming that all arguments are finite numbers."""
    cores = []
    for bundle in _bundles(shared):
        joint = joint_state(bundle.models)
        for index, core in enumerate(joint.cores):
            users = tuple(bundle.calls[number] for number in joint.models_using(index))
            cores.append(SharedCore(bundle.window, str(core), users))
    return cores


def _bundles(shared: SharedModels) -> list[_Bundle]:
    bundles: list[_Bundle] = []
    for member in shared.members:
        for call, model in zip(member.operator.calls, member.models, strict=True):
            for bundle in bundles:
                if bundle.window == call.window and can_share_window(bundle.models, model):
                    break
            else:
                bundle = _Bundle(call.window, [], [])
                bundles.append(bundle)
            bundle.models.append(model)
            bundle.calls.append((member.query, call))
    return bundles


def _core_records(shared: SharedModels) -> list[dict[str, Any]]:
    return [
        {
            "core": found.core,
            "window": str(found.window),
            "users": [{"query": query, "call": call_text(call)} for query, call in found.users],
        }
        for found in cores_of(shared)
    ]


class ModelMemberKind(MemberKind[ModelMember]):
    def words(self, member: ModelMember) -> Description:
        return Description("γ", "From core statistics", window_calls(member.operator.calls))

    def history_us(self, member: ModelMember) -> int | None:
        return longest_us(call.window for call in member.operator.calls)

    def seq_bits(self, member: ModelMember, bits: int, catalog: Catalog) -> int:
        return bits_of_calls(member.operator, bits, catalog)

    def columns_stored(self, member: ModelMember) -> Iterable[object] | None:
        return member.columns


class SharedModelsKind(OperatorKind[SharedModels]):
    spec = SharedModels
    role = Role.STATEFUL
    task = TaskOf.KEYS
    member = ModelMemberKind()
    over_windows = True
    step = "slicemill.extensions.models.step:shared_models"

    def words(self, shared: SharedModels, node: Node, graph: QueryGraph) -> Description:
        """Return the EXPLAIN text: the stored core statistics and the queries that use them."""
        cores = cores_of(shared)
        uses = sum(len(core.users) for core in cores)
        facts = [("stored", f"{pluralize(len(cores), 'core statistic')}, used {pluralize(uses, 'time')}")]
        for window in dict.fromkeys(core.window for core in cores):
            facts.append(("over", preceding(window)))
            for core in cores:
                if core.window == window:
                    users = ", ".join(
                        f"{call_text(call)} of {query}" for query, call in dict.fromkeys(core.users)
                    )
                    facts.append(("core", f"{core.core} for {users}" if len(shared.calls) > 1 else core.core))
        facts += partition(shared.keys)
        return Description("γ", f"Core statistics of {pluralize(len(shared.calls), 'model')}", tuple(facts))

    def waits_for_time(self, shared: SharedModels, kind: TimestampKind) -> bool:
        return calls_wait(shared.calls)

    def columns_read(self, shared: SharedModels, port: int, wanted: Collection[str]) -> ColumnsRead:
        arguments = (argument for call in shared.calls for argument in call.arguments)
        names = {column.name for member in shared.members for column in member.columns}
        return ColumnsRead([*shared.keys, *arguments], names)

    def keys(self, shared: SharedModels) -> tuple[Keys, ...] | None:
        return (shared.keys,)

    def details(self, shared: SharedModels) -> Mapping[str, Any]:
        return {"cores": _core_records(shared)}


KINDS = (SharedModelsKind(),)
