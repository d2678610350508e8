"""Selection, projection, union and sink (M14).

Predicates and projections are functions of a row. A union of ordered inputs is a sort-merge by timestamp.
The cycle does the merging, because it passes the tuples of all inputs in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from slicemill.types import Row, Timed


class Select:
    """Keeps the tuples that satisfy a predicate."""

    __slots__ = ("_predicate",)

    inputs = 1
    waits_for_time = False

    def __init__(self, predicate: Callable[[Row], bool]) -> None:
        self._predicate = predicate

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:  # noqa: ARG002
        return (tuple_,) if self._predicate(tuple_.row) else ()

    def advance(self, ts: int) -> Sequence[Timed]:  # noqa: ARG002
        return ()

    def finish(self) -> Sequence[Timed]:
        return ()


class ProjectOperator:
    """Replaces each tuple's row, keeping the timestamp."""

    __slots__ = ("_projection",)

    inputs = 1
    waits_for_time = False

    def __init__(self, projection: Callable[[Row], Row]) -> None:
        self._projection = projection

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:  # noqa: ARG002
        return (Timed(tuple_.ts, self._projection(tuple_.row)),)

    def advance(self, ts: int) -> Sequence[Timed]:  # noqa: ARG002
        return ()

    def finish(self) -> Sequence[Timed]:
        return ()


class Union:
    """Merges its inputs by timestamp."""

    __slots__ = ("inputs",)

    waits_for_time = True

    def __init__(self, inputs: int = 2) -> None:
        self.inputs = inputs

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:  # noqa: ARG002
        return (tuple_,)

    def advance(self, ts: int) -> Sequence[Timed]:  # noqa: ARG002
        return ()

    def finish(self) -> Sequence[Timed]:
        return ()


class SinkOperator:
    """Collects its input in order."""

    __slots__ = ("rows",)

    inputs = 1
    waits_for_time = False

    def __init__(self) -> None:
        self.rows: list[Timed] = []

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:  # noqa: ARG002
        self.rows.append(tuple_)
        return ()

    def advance(self, ts: int) -> Sequence[Timed]:  # noqa: ARG002
        return ()

    def finish(self) -> Sequence[Timed]:
        return ()
