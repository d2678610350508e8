"""Timestamp kinds, and where enabling timestamps come from (M24-M26)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["external", "internal", "latent"]
"""Who stamps a stream's tuples: its producer, the engine's clock on entry, or nobody."""

Propagation = Literal["punctuation", "arcs"]
"""How an ETS travels: as a punctuation tuple (M22), or over the ETS arcs of the enhanced graph (M23)."""


@dataclass(frozen=True, slots=True)
class NoEts:
    """Only data moves time (and the end of the input)."""


@dataclass(frozen=True, slots=True)
class OnDemand:
    """A source is asked when an operator waits for it (M25)."""


@dataclass(frozen=True, slots=True)
class Periodic:
    """A heartbeat every `period_us` on the named sources, whether or not anybody waits (M26)."""

    period_us: int
    sources: tuple[str, ...]


EtsMode = NoEts | OnDemand | Periodic


def ets_now(kind: Kind, now: int, last_ts: int | None, last_arrival: int, skew_us: int | None) -> int | None:
    """The ETS a source with an empty buffer can offer at `now`; None when it knows nothing (M25)."""
    if kind != "external":
        return now
    if last_ts is None or skew_us is None:
        return None
    return last_ts + (now - last_arrival) - skew_us


def moment_of_ets(
    ts: int, kind: Kind, last_ts: int | None, last_arrival: int, skew_us: int | None
) -> int | None:
    """When `ets_now` will have reached `ts` if nothing arrives; None for never."""
    if kind != "external":
        return ts
    if last_ts is None or skew_us is None:
        return None
    return ts - last_ts + skew_us + last_arrival
