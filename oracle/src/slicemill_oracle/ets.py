"""Timestamp kinds, and policies for enabling timestamps (M24-M26)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["external", "internal", "latent"]
"""Source of timestamps: the producer, the engine's clock on entry, or none."""

Propagation = Literal["punctuation", "arcs"]
"""Transport of an ETS: punctuation tuples (M22) or ETS arcs (M23)."""


@dataclass(frozen=True, slots=True)
class NoEts:
    """Only data and the end of input advance time."""


@dataclass(frozen=True, slots=True)
class OnDemand:
    """A source sends an ETS when an operator waits for it (M25)."""


@dataclass(frozen=True, slots=True)
class Periodic:
    """Heartbeat every `period_us` on the named sources (M26)."""

    period_us: int
    sources: tuple[str, ...]


EtsMode = NoEts | OnDemand | Periodic


def ets_now(kind: Kind, now: int, last_ts: int | None, last_arrival: int, skew_us: int | None) -> int | None:
    """Return the ETS of an idle source at `now`, if known (M25)."""
    if kind != "external":
        return now
    if last_ts is None or skew_us is None:
        return None
    return last_ts + (now - last_arrival) - skew_us


def moment_of_ets(
    ts: int, kind: Kind, last_ts: int | None, last_arrival: int, skew_us: int | None
) -> int | None:
    """Return the time at which `ets_now` reaches `ts`, None for never."""
    if kind != "external":
        return ts
    if last_ts is None or skew_us is None:
        return None
    return ts - last_ts + skew_us + last_arrival
