"""Events of the latency benchmark: NEXMark events as lines that start with their send time.

person   sent,id,name,city,state
auction  sent,id,item,initial_bid,reserve,expires,seller,category       expires: microseconds, as sent
bid      sent,auction,bidder,price,channel
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from slicemill.connectors.generators import nexmark

COLUMNS = {
    "person": ("id", "name", "city", "state"),
    "auction": ("id", "item", "initial_bid", "reserve", "expires", "seller", "category"),
    "bid": ("auction", "bidder", "price", "channel"),
}
TYPES = {
    "person": "sent bigint, id bigint, name varchar, city varchar, state varchar",
    "auction": "sent bigint, id bigint, item varchar, initial_bid bigint, reserve bigint, expires bigint, "
    "seller bigint, category int",
    "bid": "sent bigint, auction bigint, bidder bigint, price bigint, channel varchar",
}
_CHUNK_CYCLES = 100


class Event(NamedTuple):
    """Tuple without its stamp. `lives_us` is the duration of an auction, `price` that of a bid."""

    stream: str
    values: tuple[str, ...]
    lives_us: int = 0
    price: int = 0

    def line(self, sent_us: int) -> bytes:
        """Return the line of the event for a send time.

        >>> Event("bid", ("7", "8", "100", "web"), price=100).line(5)
        b'5,7,8,100,web\\n'
        """
        values = self.values
        if self.stream == "auction":
            values = (*values[:4], str(sent_us + self.lives_us), *values[4:])
        return ",".join((str(sent_us), *values)).encode() + b"\n"


def events() -> Iterator[Event]:
    """Yield events without end. Of fifty events, one is a person and three are auctions."""
    first = 0
    while True:
        last = first + _CHUNK_CYCLES * nexmark.EVENTS_PER_CYCLE
        made = {stream: _made(stream, first, last) for stream in nexmark.STREAMS}
        for number in range(first, last):
            offset = number % nexmark.EVENTS_PER_CYCLE
            stream = "person" if offset == 0 else "auction" if offset <= nexmark.AUCTIONS_PER_CYCLE else "bid"
            yield next(made[stream])
        first = last


def _made(stream: str, first: int, last: int) -> Iterator[Event]:
    columns = nexmark.columns(stream, first, last)
    sent = [name for name in COLUMNS[stream] if name != "expires"]
    rows = zip(*(columns[name].tolist() for name in sent), strict=True)
    lives = (columns["expires"] - columns["ts"]).tolist() if stream == "auction" else None
    prices = columns["price"].tolist() if stream == "bid" else None
    for number, row in enumerate(rows):
        yield Event(
            stream,
            tuple(map(str, row)),
            lives_us=lives[number] if lives else 0,
            price=prices[number] if prices else 0,
        )
