"""NEXMark: deterministic persons, auctions and bids, generated from a seed.

Of each fifty events one is a person, three are auctions, and the others are bids. Each value is a hash of the
seed, the number of the event, and the column. So any range of events can be generated independently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from slicemill.errors import SlicemillError
from slicemill.kernels.arrays import Int64s

Values = npt.NDArray[Any]
# Function that returns a column from distinct words and the index of each row's word, so that Arrow can use a
# dictionary.
Pick: TypeAlias = Callable[[Values, Int64s], Any]

EVENTS_PER_CYCLE = 50
AUCTIONS_PER_CYCLE = 3
FIRST_ID = 1000
# Number of the newest persons that are active, and of the newest auctions that are active.
ACTIVE_PERSONS = 1000
ACTIVE_AUCTIONS = 100

# Number of events if the stream must be finite and no number is given.
FINITE_EVENTS = 10_000

STREAMS = ("person", "auction", "bid")

_FIRST_NAMES = np.array(["Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gita", "Hugo", "Ines", "Jan"])
_LAST_NAMES = np.array(["Ash", "Birch", "Cole", "Dale", "Elm", "Frost", "Grove", "Hill", "Ives"])
_PLACES = np.array(
    [
        ("Phoenix", "AZ"),
        ("Los Angeles", "CA"),
        ("San Francisco", "CA"),
        ("Boise", "ID"),
        ("Portland", "OR"),
        ("Bend", "OR"),
        ("Seattle", "WA"),
        ("Cheyenne", "WY"),
    ]
)
_ITEMS = np.array(["lamp", "clock", "chair", "camera", "guitar", "vase", "atlas", "radio"])
_CHANNELS = np.array(["app", "web", "phone", "partner"])
# URLs of bids, of which half contain the referring channel.
_PAGES = np.array(
    [
        f"https://auction.example/{area}/{item}/{page}/bid.htm?query=1" + f"&channel_id={page}" * (page % 2)
        for area in ("home", "garden")
        for item in _ITEMS
        for page in range(6)
    ]
)


def _mix_bits(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Hash 64 bits (the finaliser of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


class _Draw:
    """Random numbers for a range of events, by column."""

    def __init__(self, events: Int64s, seed: int) -> None:
        self._events = events.astype(np.uint64)
        self._seed = np.uint64(seed & (2**64 - 1))

    def bits(self, column: int) -> npt.NDArray[np.uint64]:
        with np.errstate(over="ignore"):
            salt = _mix_bits(np.array([self._seed + np.uint64(column) * np.uint64(0x9E3779B97F4A7C15)]))
            return _mix_bits(self._events + salt)

    def below(self, column: int, bound: Int64s | int) -> Int64s:
        """Return random integers 0 <= n < bound, one for each event."""
        limit = np.asarray(bound, dtype=np.uint64)
        return (self.bits(column) % limit).astype(np.int64)

    def unit(self, column: int) -> npt.NDArray[np.float64]:
        """Return random numbers in [0, 1), one for each event."""
        return (self.bits(column) >> np.uint64(11)).astype(np.float64) / float(2**53)


def event_numbers(stream: str, first: int, last: int) -> Int64s:
    """Return the numbers of the events first <= n < last that belong to a stream."""
    if stream not in STREAMS:
        raise SlicemillError(f"NEXMark has no stream {stream}; it has {', '.join(STREAMS)}")
    numbers = np.arange(first, last, dtype=np.int64)
    offset = numbers % EVENTS_PER_CYCLE
    chosen: Int64s = numbers[offset > AUCTIONS_PER_CYCLE]
    if stream == "person":
        chosen = numbers[offset == 0]
    elif stream == "auction":
        chosen = numbers[(offset >= 1) & (offset <= AUCTIONS_PER_CYCLE)]
    return chosen


def columns(
    stream: str,
    first: int,
    last: int,
    *,
    seed: int = 1,
    rate: float = 10_000,
    start_us: int = 0,
    pick: Pick = np.take,
) -> Mapping[str, Values]:
    """Return the columns of a stream for its events among first <= n < last.

    `rate` is the number of events of all three streams per second of event time. Times are in microseconds.
    """
    events = event_numbers(stream, first, last)
    ts = start_us + (events * (1_000_000 / rate)).astype(np.int64)
    return _COLUMNS[stream](events, ts, _Draw(events, seed), pick)


def _persons(events: Int64s, ts: Int64s, draw: _Draw, pick: Pick) -> dict[str, Values]:
    first = _FIRST_NAMES[draw.below(1, len(_FIRST_NAMES))]
    last = _LAST_NAMES[draw.below(2, len(_LAST_NAMES))]
    place = draw.below(3, len(_PLACES))
    return {
        "id": FIRST_ID + events // EVENTS_PER_CYCLE,
        "name": np.char.add(np.char.add(first, " "), last),
        "email": np.char.add(
            np.char.add(np.char.lower(first), "@"), np.char.add(np.char.lower(last), ".example")
        ),
        "city": pick(_PLACES[:, 0], place),
        "state": pick(_PLACES[:, 1], place),
        "ts": ts,
    }


def _newest_person(events: Int64s) -> Int64s:
    return events // EVENTS_PER_CYCLE


def _newest_auction(events: Int64s) -> Int64s:
    """Return the index of the last auction that was opened up to each event."""
    offset = events % EVENTS_PER_CYCLE
    opened = np.clip(offset, 0, AUCTIONS_PER_CYCLE)
    newest: Int64s = np.maximum(events // EVENTS_PER_CYCLE * AUCTIONS_PER_CYCLE + opened - 1, 0)
    return newest


def _recent(newest: Int64s, active: int, draw: _Draw, column: int) -> Int64s:
    return newest - draw.below(column, np.minimum(newest + 1, active))


def _auctions(events: Int64s, ts: Int64s, draw: _Draw, pick: Pick) -> dict[str, Values]:
    initial = _price(draw, 12)
    return {
        "id": FIRST_ID + _newest_auction(events),
        "item": pick(_ITEMS, draw.below(11, len(_ITEMS))),
        "initial_bid": initial,
        "reserve": initial + _price(draw, 13),
        "expires": ts + 1_000_000 * (1 + draw.below(14, 30)),
        "seller": FIRST_ID + _recent(_newest_person(events), ACTIVE_PERSONS, draw, 15),
        "category": 10 + draw.below(16, 5),
        "ts": ts,
    }


def _bids(events: Int64s, ts: Int64s, draw: _Draw, pick: Pick) -> dict[str, Values]:
    newest = _newest_auction(events)
    # Half of all bids are for one hot auction: the newest auction whose index is a multiple of
    # ACTIVE_AUCTIONS.
    hot = newest // ACTIVE_AUCTIONS * ACTIVE_AUCTIONS
    auction = np.where(draw.below(21, 2) == 0, hot, _recent(newest, ACTIVE_AUCTIONS, draw, 22))
    return {
        "auction": FIRST_ID + auction,
        "bidder": FIRST_ID + _recent(_newest_person(events), ACTIVE_PERSONS, draw, 23),
        "price": _price(draw, 24),
        "channel": pick(_CHANNELS, draw.below(25, len(_CHANNELS))),
        "url": pick(_PAGES, draw.below(26, len(_PAGES))),
        "ts": ts,
    }


def _price(draw: _Draw, column: int) -> Int64s:
    """Return prices from 100 to 100 million cents, log-uniformly distributed."""
    return (100 * 10 ** (6 * draw.unit(column))).astype(np.int64)


_COLUMNS: dict[str, Callable[[Int64s, Int64s, _Draw, Pick], dict[str, Values]]] = {
    "person": _persons,
    "auction": _auctions,
    "bid": _bids,
}
