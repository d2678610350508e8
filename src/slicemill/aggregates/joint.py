"""Joint evaluation of calls over one window, which share state.

A provider of aggregates (`slicemill.extension`) may evaluate calls jointly: models keep equal sums once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from slicemill.aggregates.calls import Uda
from slicemill.aggregates.frames import WindowFrame
from slicemill.catalog.catalog import Catalog
from slicemill.catalog.expressions import Expr
from slicemill.catalog.queries import AggregateCall, WindowCall
from slicemill.extension import load


class JointCall(Protocol):
    """Call that can share state with others: a frozen dataclass, registered for states."""

    @property
    def arguments(self) -> tuple[Expr, ...]: ...

    def shares_with(self, others: Sequence[Any]) -> bool:
        """Return True if the call can be evaluated with the others, which share state already."""
        ...

    def together(
        self,
        calls: Sequence[Any],
        frame: WindowFrame | None,
        arguments: tuple[Expr, ...] | None = None,
        costs: Any = None,
    ) -> JointCalls:
        """Return the joint evaluation of calls, of which this is one; raise NoCompiledForm if impossible.

        The layout of a state depends on `arguments`, which default to those of the calls, and on `costs`.
        """
        ...


class JointCalls(Protocol):
    """Compiled calls with one state; the result has a column for each."""

    @property
    def asked(self) -> tuple[Any, ...]: ...

    @property
    def arguments(self) -> tuple[Expr, ...]: ...

    @property
    def uda(self) -> Uda: ...

    def only(self, wanted: Collection[Any], state: Any) -> JointCalls:
        """Return the evaluation of the wanted calls, and drop the state of others."""
        ...


def joint_call(call: WindowCall | AggregateCall, catalog: Catalog) -> JointCall | None:
    """Return a call in the form that shares state; None for other aggregates."""
    base, _ = catalog.aggregates(call.name)
    provider = None if base is None else base.provider
    if call.distinct or provider is None or provider.joint is None:
        return None
    found: JointCall | None = load(provider.joint)(base, call.arguments)
    return found
