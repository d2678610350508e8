"""Queries of the latency benchmark, in ESL for slicemill and in SQL for Spark.

The thirteen queries are those of `examples/auction.esl`, over streams from sockets with timestamps set on
arrival. Result rows have `sent`, the stamp of their latest tuple, or `due`, the time when a row that time
releases was due. `steady_bidders` has neither, and is not measured.

Spark has no OVER, no user-defined aggregates in SQL and no coalescing on streams. Instead it runs the closest
queries that it supports, which do less work: running aggregates per key, and session windows. Its windows and
joins are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from slicemill_lab.bench.inputs.query_sets import mixed_queries
from slicemill_lab.bench.live.stamped import TYPES

CONDITION = "price > 10000"  # two thirds of the bids
_LEAST_PRICE = 10_000
CATEGORIES = "id,name\n10,lamps\n11,clocks\n12,chairs\n13,cameras\n14,guitars\n"

ONE = {"q": f"SELECT sent, auction, price FROM bid WHERE {CONDITION}"}

_LATER = "CASE WHEN A.sent > {other}.sent THEN A.sent ELSE {other}.sent END AS sent"

_BIG_BID = "CREATE STREAM big_bid AS SELECT sent, auction, bidder, price FROM bid WHERE price > 500000;"
_AGGREGATES = """
CREATE AGGREGATE decayed(next double) : double {
  TABLE state(total double, weight double);
  INITIALIZE: { INSERT INTO state VALUES (next, 1.0); INSERT INTO RETURN VALUES (next); }
  ITERATE: {
    UPDATE state SET total = 0.9 * total + next, weight = 0.9 * weight + 1.0;
    INSERT INTO RETURN SELECT total / weight FROM state;
  }
};
CREATE AGGREGATE newest(next bigint) : bigint {
  TABLE state(value bigint);
  INITIALIZE: { INSERT INTO state VALUES (next); INSERT INTO RETURN VALUES (next); }
  ITERATE: { UPDATE state SET value = next; INSERT INTO RETURN SELECT value FROM state; }
};
"""

THIRTEEN: Mapping[str, str] = {
    "bids_in_euro": "SELECT sent, auction, bidder, price * 0.91 AS euro FROM bid",
    "bids_on_few_items": "SELECT sent, auction, price FROM bid WHERE auction % 123 = 0",
    "highest_bid_so_far": "SELECT sent, auction, price, "
    "max(price) OVER (PARTITION BY auction RANGE UNBOUNDED PRECEDING) AS highest FROM bid",
    "recent_average": "SELECT sent, bidder, price, "
    "avg(price) OVER (PARTITION BY bidder ROWS 9 PRECEDING) AS average FROM bid",
    "hot_items": "SELECT auction, count(*) AS bids, window_end() AS due "
    "FROM bid [RANGE 10 SECONDS SLIDE 2 SECONDS] GROUP BY auction HAVING count(*) >= 5",
    "turnover_by_channel": "SELECT channel, sum(price) AS turnover, max(price) AS highest, "
    "window_end() AS due FROM bid [RANGE 60 SECONDS SLIDE 10 SECONDS] GROUP BY channel",
    "local_offers": f"SELECT {_LATER.format(other='P')}, P.name, P.city, P.state, A.id AS auction "
    "FROM auction [RANGE 20 SECONDS] AS A, person [RANGE 60 SECONDS] AS P "
    "WHERE A.seller = P.id AND P.state IN ('OR', 'ID', 'CA') AND A.category = 10",
    "first_minute_bids": f"SELECT {_LATER.format(other='B')}, A.id, A.item, B.price "
    "FROM auction AS A, bid AS B WHERE A.id = B.auction AND B.sent < A.expires WINDOW 60 SECONDS",
    "early_big_bids": f"SELECT {_LATER.format(other='B')}, A.id, A.item, B.price "
    "FROM auction AS A, big_bid AS B WHERE A.id = B.auction WINDOW 10 SECONDS",
    "offers_by_category": "SELECT A.sent, A.id, C.name AS category, A.initial_bid "
    "FROM auction AS A LEFT JOIN category AS C ON C.id = A.category",
    "activity": "SELECT sent, 'person' AS what, id FROM person "
    "UNION ALL SELECT sent, 'auction', id FROM auction "
    "UNION ALL SELECT sent, 'big bid', auction FROM big_bid",
    "price_level": "SELECT channel, decayed(price) AS level, newest(sent) AS sent FROM bid GROUP BY channel",
    "steady_bidders": "SELECT S.bidder, S.channel, VALID(S) "
    "FROM bid (channel) AS S RANGE 60 SECONDS SLIDES 10 SECONDS PARTITION BY bidder "
    "WHERE CAST(VALID(S) AS INTERVAL SECOND) >= 5",
}

# Spark's queries with their output modes.
THIRTEEN_IN_SPARK: Mapping[str, tuple[str, str]] = {
    "bids_in_euro": ("append", "SELECT sent, auction, bidder, price * 0.91 AS euro FROM bid"),
    "bids_on_few_items": ("append", "SELECT sent, auction, price FROM bid WHERE auction % 123 = 0"),
    "highest_bid_so_far": (
        "update",
        "SELECT max(sent) AS sent, auction, max(price) AS highest FROM bid GROUP BY auction",
    ),
    "recent_average": (
        "update",
        "SELECT max(sent) AS sent, bidder, avg(price) AS average FROM bid GROUP BY bidder",
    ),
    "hot_items": (
        "append",
        "SELECT unix_micros(window.end) AS sent, auction, count(*) AS bids FROM bid "
        "GROUP BY auction, window(ts, '10 seconds', '2 seconds') HAVING count(*) >= 5",
    ),
    "turnover_by_channel": (
        "append",
        "SELECT unix_micros(window.end) AS sent, channel, sum(price) AS turnover, max(price) AS highest "
        "FROM bid GROUP BY channel, window(ts, '60 seconds', '10 seconds')",
    ),
    "local_offers": (
        "append",
        "SELECT greatest(A.sent, P.sent) AS sent, P.name, P.city, P.state, A.id FROM auction A "
        "JOIN person P ON A.seller = P.id AND P.state IN ('OR', 'ID', 'CA') AND A.category = 10 "
        "AND P.ts > A.ts - INTERVAL 60 SECONDS AND A.ts > P.ts - INTERVAL 20 SECONDS",
    ),
    "first_minute_bids": (
        "append",
        "SELECT greatest(A.sent, B.sent) AS sent, A.id, A.item, B.price FROM auction A "
        "JOIN bid B ON A.id = B.auction AND B.sent < A.expires "
        "AND A.ts > B.ts - INTERVAL 60 SECONDS AND B.ts > A.ts - INTERVAL 60 SECONDS",
    ),
    "early_big_bids": (
        "append",
        "SELECT greatest(A.sent, B.sent) AS sent, A.id, A.item, B.price FROM auction A "
        "JOIN bid B ON A.id = B.auction AND B.price > 500000 "
        "AND A.ts > B.ts - INTERVAL 10 SECONDS AND B.ts > A.ts - INTERVAL 10 SECONDS",
    ),
    "offers_by_category": (
        "append",
        "SELECT A.sent, A.id, C.name AS category, A.initial_bid FROM auction A "
        "LEFT JOIN category C ON C.id = A.category",
    ),
    "activity": (
        "append",
        "SELECT sent, 'person' AS what, id FROM person UNION ALL SELECT sent, 'auction', id FROM auction "
        "UNION ALL SELECT sent, 'big bid', auction FROM bid WHERE price > 500000",
    ),
    "price_level": (
        "update",
        "SELECT max(sent) AS sent, channel, avg(price) AS level FROM bid GROUP BY channel",
    ),
    "steady_bidders": (
        "append",
        "SELECT bidder, channel, session_window FROM bid "
        "GROUP BY bidder, channel, session_window(ts, '60 seconds')",
    ),
}

ONE_IN_SPARK: Mapping[str, tuple[str, str]] = {"q": ("append", ONE["q"])}


def fifty() -> dict[str, str]:
    """Return filters, windows and OVER over bids, whose rows have stamps."""
    return mixed_queries(50, ("filter", "over", "window"), stamp="sent")


def script(queries: Mapping[str, str], ports: Mapping[str, int], categories: Path) -> str:
    """Return the script for slicemill. All streams are declared, even without queries."""
    statements = [
        f"CREATE STREAM {stream} ({TYPES[stream]}) ORDER BY current_time "
        f"SOURCE 'tcp://127.0.0.1:{ports[stream]}?lines=csv';"
        for stream in TYPES
    ]
    statements.append(
        f"CREATE TABLE category (id int, name varchar) USING csv OPTIONS (path '{categories}', header true);"
    )
    statements += [_BIG_BID, _AGGREGATES]
    statements += [f"CREATE QUERY {name} AS {text};" for name, text in queries.items()]
    return "\n".join(statements) + "\n"


def expected_filtered(prices: NDArray[np.int64]) -> int:
    """Return how many bids with these prices pass the one filter."""
    return int((prices > _LEAST_PRICE).sum())
