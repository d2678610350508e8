"""NEXMark queries for Spark, with the same answers as ours.

Each is a query of Structured Streaming. Where Spark rejects a construct, an equivalent form is used if there
is one: the size of a set for `count(DISTINCT …)`, and the greatest struct of a group for the first of
`row_number()`. Two queries have no such form. They run as batch queries over all files, which is less work:
one answer at the end, and none before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from slicemill_lab.bench.inputs.nexmark_answers import ANSWERS

Mode: TypeAlias = Literal["append", "update", "batch"]


@dataclass(frozen=True, slots=True)
class OnSpark:
    """Query for Spark with its output mode. `note` has differences from ESL, or the reason for a batch query.

    In update mode the groups are counted, and compared with `groups` in DuckDB if they are not the rows of
    the answer.
    """

    mode: Mode
    text: str
    note: str = ""
    groups: str = ""


_BID = "SELECT auction, bidder, price"
_LEVELS = (
    "",
    " FILTER (WHERE price < 10000)",
    " FILTER (WHERE price >= 10000 AND price < 1000000)",
    " FILTER (WHERE price >= 1000000)",
)
_BIDS = ", ".join(f"count(*){level}" for level in _LEVELS)
_DISTINCT = ", ".join(
    f"size(collect_set({column}){level})" for column in ("bidder", "auction") for level in _LEVELS
)
_DAY, _MINUTE = "date_format(ts, 'yyyy-MM-dd')", "date_format(ts, 'HH:mm')"
_SETS = "count(DISTINCT …) is refused; the sizes of sets are counted"
_OFFER = (
    "(SELECT A.id, A.item, A.seller, A.category, A.expires, B.bidder, B.price, B.ts AS bid_ts "
    "FROM auction A JOIN bid B ON A.id = B.auction AND B.ts BETWEEN A.ts AND A.expires "
    "AND B.ts <= A.ts + INTERVAL 1 MINUTE)"
)
_HOP = "window(ts, '10 seconds', '2 seconds')"
_WITH_WINDOW = "(SELECT *, window(ts, '10 seconds') AS part FROM {})"

ON_SPARK: Mapping[str, OnSpark] = {
    "q00": OnSpark("append", f"{_BID}, ts FROM bid"),
    "q01": OnSpark("append", "SELECT auction, bidder, 0.908D * price AS price, ts FROM bid"),
    "q02": OnSpark("append", "SELECT auction, price FROM bid WHERE auction % 123 = 0"),
    "q03": OnSpark(
        "append",
        "SELECT P.name, P.city, P.state, A.id FROM auction A JOIN person P ON A.seller = P.id "
        "WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')",
    ),
    "q04": OnSpark(
        "batch",
        f"SELECT category, avg(final) FROM (SELECT id, category, max(price) AS final FROM {_OFFER} "
        "GROUP BY id, category) GROUP BY category",
        "an aggregate over an aggregate without a window is refused in update mode",
    ),
    "q05": OnSpark(
        "append",
        "SELECT inline(filter(counted, one -> one.bids = most)), until FROM (SELECT max(bids) AS most, "
        "collect_list(struct(auction, bids)) AS counted, part.end AS until FROM "
        f"(SELECT auction, count(*) AS bids, {_HOP} AS part FROM bid GROUP BY auction, {_HOP}) "
        "GROUP BY part)",
        "rank() is refused; a list of the window's counts is filtered",
    ),
    "q06": OnSpark(
        "batch",
        "SELECT seller, avg(price) OVER (PARTITION BY seller ORDER BY expires, since "
        "ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) FROM (SELECT seller, expires, min(bid_ts) AS since, "
        f"max(price) AS price FROM {_OFFER} GROUP BY id, seller, expires)",
        "windows of rows are refused",
    ),
    "q07": OnSpark(
        "append",
        "SELECT max(struct(price, -unix_micros(ts) AS first, auction, bidder)) AS best, window.end "
        "FROM bid GROUP BY window(ts, '10 seconds')",
    ),
    "q08": OnSpark(
        "append",
        f"SELECT P.id, P.name, P.part.start FROM {_WITH_WINDOW.format('person')} P LEFT SEMI JOIN "
        f"{_WITH_WINDOW.format('auction')} A ON P.id = A.seller AND P.part = A.part",
    ),
    "q09": OnSpark(
        "update",
        "SELECT id, max(struct(price, -unix_micros(bid_ts) AS first, item, seller, category, expires, "
        f"bidder)) AS best FROM {_OFFER} GROUP BY id",
        "row_number() is refused; the greatest struct of each auction is kept",
    ),
    "q10": OnSpark("append", f"{_BID}, ts, {_DAY} AS day, {_MINUTE} AS minute FROM bid"),
    "q11": OnSpark(
        "append",
        "SELECT bidder, count(*), session_window.start, session_window.end FROM bid "
        "GROUP BY bidder, session_window(ts, '10 seconds')",
    ),
    "q12": OnSpark(
        "update",
        "SELECT bidder, count(*), part.start, part.end FROM (SELECT bidder, "
        "window(current_timestamp(), '10 seconds') AS part FROM bid) GROUP BY bidder, part",
        "the clock is that of a batch, so rows cannot be compared",
    ),
    "q13": OnSpark(
        "append",
        "SELECT B.auction, B.bidder, B.price, B.ts, S.value FROM bid B JOIN side S ON B.auction % 20 = S.key",
    ),
    "q14": OnSpark(
        "append",
        "SELECT auction, bidder, 0.908D * price AS price, CASE WHEN hour(ts) BETWEEN 8 AND 18 THEN 'day' "
        "WHEN hour(ts) <= 6 OR hour(ts) >= 20 THEN 'night' ELSE 'other' END AS bid_time, ts, "
        "length(url) - length(replace(url, 'c', '')) AS c_count FROM bid "
        "WHERE 0.908D * price > 1000000 AND 0.908D * price < 50000000",
    ),
    "q15": OnSpark("update", f"SELECT {_DAY} AS day, {_BIDS}, {_DISTINCT} FROM bid GROUP BY {_DAY}", _SETS),
    "q16": OnSpark(
        "update",
        f"SELECT channel, {_DAY} AS day, max({_MINUTE}), {_BIDS}, {_DISTINCT} FROM bid "
        f"GROUP BY channel, {_DAY}",
        _SETS,
    ),
    "q17": OnSpark(
        "update",
        f"SELECT auction, {_DAY} AS day, {_BIDS}, min(price), max(price), avg(price), sum(price) FROM bid "
        f"GROUP BY auction, {_DAY}",
    ),
    "q18": OnSpark(
        "update",
        "SELECT bidder, auction, max(struct(ts, price, channel, url)) AS last FROM bid "
        "GROUP BY bidder, auction",
        "row_number() is refused; the greatest struct of each pair is kept",
    ),
    "q19": OnSpark(
        "update",
        "SELECT auction, max_by(struct(bidder, price, channel, ts), price, 10) AS first FROM bid "
        "GROUP BY auction",
        "row_number() is refused; max_by has a list of ten",
        "SELECT DISTINCT auction FROM bid",
    ),
    "q20": OnSpark(
        "append",
        "SELECT B.auction, B.bidder, B.price, B.channel, B.url, B.ts, A.item, A.initial_bid, A.reserve, "
        "A.expires, A.seller FROM bid B JOIN auction A ON B.auction = A.id WHERE A.category = 10",
    ),
    "q21": OnSpark(
        "append",
        f"{_BID}, channel, CASE lower(channel) WHEN 'app' THEN '0' WHEN 'web' THEN '1' WHEN 'phone' THEN '2' "
        "ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id FROM bid "
        "WHERE lower(channel) IN ('app', 'web', 'phone') OR url LIKE '%&channel_id=%'",
    ),
    "q22": OnSpark(
        "append",
        f"{_BID}, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, "
        "split_part(url, '/', 6) AS dir3 FROM bid",
    ),
    "q23": OnSpark(
        "append",
        "SELECT B.auction, B.bidder, B.price, B.channel, P.name, P.email, P.city, P.state, A.id, A.item, "
        "A.category, A.expires FROM bid B JOIN person P ON P.id = B.bidder "
        "JOIN auction A ON A.seller = B.bidder",
    ),
}


def answer_on_spark(name: str) -> str:
    """Return a DuckDB query with the number of rows that Spark should report."""
    return ON_SPARK[name].groups or ANSWERS[name]
