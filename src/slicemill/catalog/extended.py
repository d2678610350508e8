"""Base classes of objects that are declared by extensions' statements.

An example is CREATE MODEL.
"""

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
        """Return the user's Python function that computes the rows as `module:name`, or None."""
        return None

    @property
    def summary(self) -> str:
        """Return a description of the declared object in one line."""
        raise NotImplementedError


class CalledDefinition:
    """Object of an extension that queries call like an aggregate, such as a model.

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
        """Return the called aggregate's definition over all tuples, and over windows.

        Both definitions are None if only instances of the object can be called.
        """
        return None, None

    def instance(self, name: str) -> CalledDefinition | None:
        """Return the definition for a name with parameters, such as `name[…]`, or None.

        The name of an instance begins with `name[` or `name.`.
        """
        del name
        return None

    @property
    def summary(self) -> str:
        """Return a description of the declared object in one line."""
        raise NotImplementedError


def predefined(name: str) -> CalledDefinition | None:
    """Return the definition of a name that needs no declaration, or None."""
    provider = predefined_names().get(name.lower())
    if provider is None or provider.predefined is None:
        return None
    found: CalledDefinition | None = load(provider.predefined)(name.lower())
    return found
