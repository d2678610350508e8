"""Parser of the option --rate: `bid=5000/s`, `bid=200/min:bursty`, `bid=arrivals.csv`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from slicemill.errors import SlicemillError, did_you_mean
from slicemill.scheduling.rehearsal import SHAPES, Traffic, read_recorded

_PER = {"s": 1, "sec": 1, "second": 1, "min": 60, "minute": 60, "h": 3600, "hour": 3600}
_THOUSANDS = {"": 1.0, "k": 1e3, "m": 1e6}
_RATE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([km]?)\s*(?:/\s*([a-z]+))?\s*(?::\s*([a-z]+))?", re.IGNORECASE)


def parse_rates(texts: Iterable[str], streams: Sequence[str]) -> dict[str, Traffic]:
    """Return the traffic of each stream.

    A rate without a name applies to all streams that have no rate of their own.
    """
    named: dict[str, Traffic] = {}
    others: Traffic | None = None
    by_name = {stream.lower(): stream for stream in streams}
    for text in texts:
        name, equals, rate = text.partition("=")
        if not equals:
            others = _traffic(text)
            continue
        stream = by_name.get(name.strip().lower())
        if stream is None:
            hint = did_you_mean(name.strip(), streams) or f"queries read {', '.join(streams)}"
            raise SlicemillError(f"no query reads a stream {name.strip()}; {hint}")
        named[stream] = _traffic(rate.strip())
    missing = [stream for stream in streams if stream not in named]
    if missing and others is None:
        raise SlicemillError(
            f"stream {missing[0]} has no rate; add --rate {missing[0]}=1000/s, or --rate 1000/s for "
            "all streams that have no rate of their own"
        )
    return {stream: named.get(stream) or others or Traffic(0.0) for stream in streams}


def _traffic(text: str) -> Traffic:
    match = _RATE.fullmatch(text.strip())
    if match is None:
        if Path(text).suffix == ".csv":
            return read_recorded(Path(text))
        raise SlicemillError(
            f"{text!r} is not a rate; use 5000/s, 200/min, 5000/s:bursty, or the name of a .csv file"
        )
    number, thousands, per, shape = match.groups()
    period = (per or "s").lower()
    if period not in _PER:
        raise SlicemillError(f"{text!r} is not a rate; use rows per {', '.join(_PER)}")
    shape = (shape or "steady").lower()
    if shape not in SHAPES:
        raise SlicemillError(f"there is no shape of traffic {shape!r}; use one of {', '.join(SHAPES)}")
    rate = float(number) * _THOUSANDS[thousands.lower()] / _PER[period]
    if rate <= 0:
        raise SlicemillError(
            f"the rate {text!r} is 0; use a rate above 0, or remove the stream from the script"
        )
    return Traffic(rate, shape)
