"""Joint evaluation of calls over one window, which share state.

An extension (`slicemill.extension`) may evaluate several calls together. For example, models store equal sums
only once.
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
    """Call that can share state with other calls.

    Implementations are frozen dataclasses that are registered in `codec`.
    """

    @property
    def arguments(self) -> tuple[Expr, ...]: ...

    def shares_with(self, others: Sequence[Any]) -> bool:
        """Return True if this call can share the state of `others`."""
        ...

    def together(
        self,
        calls: Sequence[Any],
        frame: WindowFrame | None,
        arguments: tuple[Expr, ...] | None = None,
        costs: Any = None,
    ) -> JointCalls:
        """Return the joint evaluation of `calls`, which include this call.

        Raises NoCompiledForm if it is impossible. The layout of the state depends on `arguments`, by default
        those of the calls, and on `costs`.
        """
        ...


class JointCalls(Protocol):
    """Compiled calls with shared state; the result has a column per call."""

    @property
    def asked(self) -> tuple[Any, ...]: ...

    @property
    def arguments(self) -> tuple[Expr, ...]: ...

    @property
    def uda(self) -> Uda: ...

    def only(self, wanted: Collection[Any], state: Any) -> JointCalls:
        """Return the evaluation of the wanted calls, and drop all other state."""
        ...


def joint_call(call: WindowCall | AggregateCall, catalog: Catalog) -> JointCall | None:
    """Return a call as a JointCall, or None without a joint form."""
    base, _ = catalog.aggregates(call.name)
    provider = None if base is None else base.provider
    if call.distinct or provider is None or provider.joint is None:
        return None
    found: JointCall | None = load(provider.joint)(base, call.arguments)
    return found
