"""Base classes of the objects that statements of extensions declare."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from slicemill.catalog.aggregates import AggregateDefinition
from slicemill.extension import load, predefined_names
from slicemill.types import Schema


class ComputedStream:
    """Stream whose rows are computed by an operator of an extension.

    Subclasses are frozen dataclasses.
    """

    __slots__ = ()
    kind: ClassVar[str]
    """Keyword of its statement, as in CREATE CLASSIFIER."""
    operator: ClassVar[str]
    """`module:class` of the operator, which takes the definition. Its inputs are the relations of `reads`."""

    if TYPE_CHECKING:

        @property
        def name(self) -> str: ...

        @property
        def schema(self) -> Schema: ...

    @property
    def reads(self) -> tuple[str, ...]:
        """Return the names of the relations that the operator reads."""
        raise NotImplementedError

    @property
    def external(self) -> str | None:
        """Return the user's Python function as `module:name`, or None."""
        return None

    @property
    def summary(self) -> str:
        """Return one line about the declaration."""
        raise NotImplementedError


class CalledDefinition:
    """Object of an extension, such as a model, called like an aggregate.

    Subclasses are frozen dataclasses.
    """

    kind: ClassVar[str]
    """Keyword of its statement, as in CREATE MODEL."""
    bind_call: ClassVar[str | None] = None
    """`module:function` that binds a call, if its arguments are not those of `versions`."""

    if TYPE_CHECKING:

        @property
        def name(self) -> str: ...

    @property
    def versions(self) -> tuple[AggregateDefinition | None, AggregateDefinition | None]:
        """Return the base and window version.

        The result is None if only instances can be called.
        """
        return None, None

    def instance(self, name: str) -> CalledDefinition | None:
        """Return the definition of an instance, or None.

        The name of an instance begins with `name[` or `name.`.
        """
        del name
        return None

    @property
    def summary(self) -> str:
        """Return one line about the declaration."""
        raise NotImplementedError


def predefined(name: str) -> CalledDefinition | None:
    """Return the definition of a predefined name, or None."""
    provider = predefined_names().get(name.lower())
    if provider is None or provider.predefined is None:
        return None
    found: CalledDefinition | None = load(provider.predefined)(name.lower())
    return found
