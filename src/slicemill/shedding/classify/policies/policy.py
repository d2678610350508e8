"""What a policy is."""

from __future__ import annotations

from typing import Protocol

from slicemill.shedding.classify.unit import TimeUnit


class ObservationPolicy(Protocol):
    """Looks at streams of a time unit until its capacity is used up, or no stream is left."""

    def choose(self, unit: TimeUnit) -> None: ...
