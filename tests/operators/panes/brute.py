"""Aggregates and windows by their definitions: all tuples of each window, one by one, in plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from slicemill.functions.values import EXACT

BIAS = {"variance": 1, "var_samp": 1, "var_pop": 0, "stddev": 1, "stddev_samp": 1, "stddev_pop": 0}


def aggregate(name: str, values: Sequence[Any]) -> Any:
    """What a built-in gives for the values of its argument, in the order of the tuples."""
    if name in ("first", "last"):
        return (values[0] if name == "first" else values[-1]) if values else None
    known = [value for value in values if value is not None]
    if name == "count":
        return len(known)
    if len(known) <= BIAS.get(name, 0):
        return None
    if name in ("min", "max"):
        return _extreme(known, name == "max")
    if name == "sum" and not isinstance(known[0], float):
        return sum(known[1:], known[0]) if isinstance(known[0], int) else _decimal_sum(known)
    broken = [value for value in known if not math.isfinite(value)]
    if broken:
        return math.nan if name in BIAS else sum(map(float, broken))
    total = sum(map(Fraction, known), Fraction(0))
    if name in ("avg", "mean") and isinstance(known[0], Decimal):
        mean = total / len(known)
        return EXACT.divide(Decimal(mean.numerator), Decimal(mean.denominator))
    if name in ("sum", "avg", "mean"):
        return nearest(total if name == "sum" else total / len(known))
    squares = sum((Fraction(value) ** 2 for value in known), Fraction(0))
    n = len(known)
    variance = nearest((n * squares - total**2) / (n * (n - BIAS[name])))
    return math.sqrt(variance) if name.startswith("stddev") else variance


def _extreme(known: list[Any], greatest: bool) -> Any:
    """Of equal values the first; NaN is the greatest."""
    best = known[0]
    for value in known[1:]:
        low, high = (best, value) if greatest else (value, best)
        if low == low and (high != high or low < high):
            best = value
    return best


def _decimal_sum(known: list[Decimal]) -> Decimal:
    scale = -min(int(value.as_tuple().exponent) for value in known)
    digits = sum(int(Fraction(value) * 10**scale) for value in known)
    sign, magnitude = int(digits < 0), tuple(map(int, str(abs(digits))))
    return Decimal((sign, magnitude, -scale))


def nearest(exact: Fraction) -> float:
    """Rounded once."""
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def shown(value: Any) -> str:
    """A value as text, the same for equal ones only: NaN is NaN, 0.0 is not -0.0, 1.50 is 1.5."""
    if isinstance(value, Decimal):
        return f"decimal {Fraction(value)}"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(shown, value))})"
    return repr(value)


def same_key(key: tuple[Any, ...]) -> str:
    """Keys as GROUP BY compares them: NULL is NULL, NaN is NaN, and there is one zero."""
    return shown(shown_key(key))


def shown_key(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value + 0.0 if isinstance(value, float) else value for value in key)


@dataclass(frozen=True)
class Event:
    """A tuple of the stream; `seq` is its number."""

    ts: int
    seq: int
    row: tuple[Any, ...]


Figures = Sequence[tuple[str, int | None]]  # the name of an aggregate, and the place of its argument


def figures_of(figures: Figures, events: Sequence[Event]) -> list[Any]:
    return [
        len(events) if index is None else aggregate(name, [event.row[index] for event in events])
        for name, index in figures
    ]


def by_key(events: Sequence[Event], key: Callable[[Event], tuple[Any, ...]]) -> list[list[Event]]:
    """The events of each key, keys by their first events."""
    found: dict[str, list[Event]] = {}
    for event in events:
        found.setdefault(same_key(key(event)), []).append(event)
    return list(found.values())


def _ends(ts: int, length: int, slide: int) -> range:
    """Where the windows end that hold a time: at the multiples of the slide in (ts, ts + length]."""
    return range((ts // slide + 1) * slide, ts + length + 1, slide)


def grouped_windows(
    events: Sequence[Event],
    key: Callable[[Event], tuple[Any, ...]],
    window: tuple[int, int],
    figures: Figures,
    until: int,
) -> list[tuple[int, int, tuple[Any, ...], list[Any]]]:
    """GROUP BY over [RANGE length SLIDE slide]: end, number of the first tuple, key and figures."""
    length, slide = window
    ends = {end for event in events for end in _ends(event.ts, length, slide)}
    made = []
    for end in sorted(end for end in ends if end <= until):
        inside = [event for event in events if end - length <= event.ts < end]
        for own in by_key(inside, key):
            made.append((end, own[0].seq, shown_key(key(own[0])), figures_of(figures, own)))
    return made


def yielding_tuples(
    events: Sequence[Event],
    key: Callable[[Event], tuple[Any, ...]],
    slide: int,
    figures: Sequence[tuple[str, int | None, int]],
    until: int,
) -> list[tuple[int, Event, list[Any]]]:
    """OVER (… RANGE … SLIDE slide): the last tuple of each key in a slot, with the figures of its windows.

    Each figure has a length of its own; all windows end where the slot does.
    """
    made = []
    for own in by_key(events, key):
        for index, event in enumerate(own):
            end = (event.ts // slide + 1) * slide
            if end <= until and (index + 1 == len(own) or own[index + 1].ts >= end):
                values = [
                    figures_of([(name, column)], [e for e in own if end - length <= e.ts < end])[0]
                    for name, column, length in figures
                ]
                made.append((end, event, values))
    return sorted(made, key=lambda row: row[1].seq)
