"""NEXMark queries in Flink SQL, as far as Flink supports them.

Window functions and event time need timestamps in milliseconds, but events have microseconds. So conditions
compare `ts`, and windows use `row_ts`, the same time truncated to milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OnFlink:
    """Query for Flink. `note` describes differences from ESL."""

    text: str
    note: str = ""


# Queries that Flink does not support, with the reason.
REFUSED: Mapping[str, str] = {"q06": "windows of rows over results that change are refused"}

_ROW_TS = "row_ts AS CAST(ts AS TIMESTAMP(3)), WATERMARK FOR row_ts AS row_ts - INTERVAL '0.001' SECOND"
FLINK_STREAMS: Mapping[str, str] = {
    "person": "id BIGINT, name STRING, email STRING, city STRING, state STRING, ts TIMESTAMP(6), " + _ROW_TS,
    "auction": "id BIGINT, item STRING, initial_bid BIGINT, reserve BIGINT, expires TIMESTAMP(6), "
    "seller BIGINT, category INT, ts TIMESTAMP(6), " + _ROW_TS,
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, ts TIMESTAMP(6), "
    + _ROW_TS,
    "side": "`key` BIGINT, `value` STRING",
}
FLINK_VIEWS: Mapping[str, str] = {
    "offer": "SELECT A.id, A.item, A.seller, A.category, A.expires, B.bidder, B.price, B.ts AS bid_ts "
    "FROM auction A JOIN bid B ON A.id = B.auction AND B.ts BETWEEN A.ts AND A.expires "
    "AND B.ts <= A.ts + INTERVAL '1' MINUTE",
    "arriving": "SELECT bidder, PROCTIME() AS arrived FROM bid",
}

_BID = "SELECT auction, bidder, price"
_LEVELS = (
    "",
    " FILTER (WHERE price < 10000)",
    " FILTER (WHERE price >= 10000 AND price < 1000000)",
    " FILTER (WHERE price >= 1000000)",
)
_BIDS = ", ".join(f"count(*){level}" for level in _LEVELS)
_DISTINCT = ", ".join(
    f"count(DISTINCT {column}){level}" for column in ("bidder", "auction") for level in _LEVELS
)
_DAY, _MINUTE = "DATE_FORMAT(ts, 'yyyy-MM-dd')", "DATE_FORMAT(ts, 'HH:mm')"
_TUMBLE = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(row_ts), INTERVAL '10' SECONDS))"
_COUNTS = (
    "SELECT auction, count(*) AS bids, window_start, window_end FROM "
    "TABLE(HOP(TABLE bid, DESCRIPTOR(row_ts), INTERVAL '2' SECONDS, INTERVAL '10' SECONDS)) "
    "GROUP BY auction, window_start, window_end"
)
_FIRST = "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY {} ORDER BY {}) AS place FROM {})"

ON_FLINK: Mapping[str, OnFlink] = {
    "q00": OnFlink(f"{_BID}, ts FROM bid"),
    "q01": OnFlink("SELECT auction, bidder, 0.908E0 * price AS price, ts FROM bid"),
    "q02": OnFlink("SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0"),
    "q03": OnFlink(
        "SELECT P.name, P.city, P.state, A.id FROM auction A JOIN person P ON A.seller = P.id "
        "WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')"
    ),
    "q04": OnFlink(
        "SELECT category, avg(final) AS average FROM (SELECT id, category, max(price) AS final FROM offer "
        "GROUP BY id, category) GROUP BY category"
    ),
    "q05": OnFlink(
        f"SELECT C.auction, C.bids, C.window_end FROM ({_COUNTS}) C JOIN (SELECT max(bids) AS most, "
        f"window_start, window_end FROM ({_COUNTS}) GROUP BY window_start, window_end) M "
        "ON C.window_start = M.window_start AND C.window_end = M.window_end AND C.bids = M.most",
        "rank() over a window is refused; counts are joined with the greatest",
    ),
    "q07": OnFlink(
        "SELECT auction, bidder, price, window_end FROM (SELECT *, row_number() OVER (PARTITION BY "
        "window_start, window_end ORDER BY price DESC, ts) AS place FROM "
        f"{_TUMBLE.format('bid')}) WHERE place = 1"
    ),
    "q08": OnFlink(
        "SELECT P.id, P.name, P.window_start FROM (SELECT id, name, window_start, window_end FROM "
        f"{_TUMBLE.format('person')} GROUP BY id, name, window_start, window_end) P JOIN "
        f"(SELECT seller, window_start, window_end FROM {_TUMBLE.format('auction')} "
        "GROUP BY seller, window_start, window_end) A "
        "ON P.id = A.seller AND P.window_start = A.window_start AND P.window_end = A.window_end"
    ),
    "q09": OnFlink(f"{_FIRST.format('id', 'price DESC, bid_ts', 'offer')} WHERE place = 1"),
    "q10": OnFlink(f"{_BID}, ts, {_DAY} AS `day`, {_MINUTE} AS `minute` FROM bid"),
    "q11": OnFlink(
        "SELECT bidder, count(*) AS bids, window_start, window_end FROM TABLE(SESSION(TABLE bid "
        "PARTITION BY bidder, DESCRIPTOR(row_ts), INTERVAL '10' SECONDS)) "
        "GROUP BY bidder, window_start, window_end"
    ),
    "q12": OnFlink(
        "SELECT bidder, count(*) AS bids, window_start, window_end FROM TABLE(TUMBLE(TABLE arriving, "
        "DESCRIPTOR(arrived), INTERVAL '10' SECONDS)) GROUP BY bidder, window_start, window_end",
        "windows of the clock that are open when files end give nothing, so rows cannot be compared",
    ),
    "q13": OnFlink(
        "SELECT B.auction, B.bidder, B.price, B.ts, S.`value` FROM bid B JOIN side S "
        "ON MOD(B.auction, 20) = S.`key`",
        "a table of a file is joined as a stream: bids are kept",
    ),
    "q14": OnFlink(
        "SELECT auction, bidder, 0.908E0 * price AS price, CASE WHEN HOUR(ts) BETWEEN 8 AND 18 THEN 'day' "
        "WHEN HOUR(ts) <= 6 OR HOUR(ts) >= 20 THEN 'night' ELSE 'other' END AS bid_time, ts, "
        "CHAR_LENGTH(url) - CHAR_LENGTH(REPLACE(url, 'c', '')) AS c_count FROM bid "
        "WHERE 0.908E0 * price > 1000000 AND 0.908E0 * price < 50000000"
    ),
    "q15": OnFlink(f"SELECT {_DAY} AS `day`, {_BIDS}, {_DISTINCT} FROM bid GROUP BY {_DAY}"),
    "q16": OnFlink(
        f"SELECT channel, {_DAY} AS `day`, max({_MINUTE}), {_BIDS}, {_DISTINCT} FROM bid "
        f"GROUP BY channel, {_DAY}"
    ),
    "q17": OnFlink(
        f"SELECT auction, {_DAY} AS `day`, {_BIDS}, min(price), max(price), avg(price), sum(price) FROM bid "
        f"GROUP BY auction, {_DAY}"
    ),
    "q18": OnFlink(f"{_FIRST.format('bidder, auction', 'row_ts DESC', 'bid')} WHERE place = 1"),
    "q19": OnFlink(f"{_FIRST.format('auction', 'price DESC', 'bid')} WHERE place <= 10"),
    "q20": OnFlink(
        "SELECT B.auction, B.bidder, B.price, B.channel, B.url, B.ts, A.item, A.initial_bid, A.reserve, "
        "A.expires, A.seller FROM bid B JOIN auction A ON B.auction = A.id WHERE A.category = 10"
    ),
    "q21": OnFlink(
        f"{_BID}, channel, CASE LOWER(channel) WHEN 'app' THEN '0' WHEN 'web' THEN '1' WHEN 'phone' THEN '2' "
        "ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id FROM bid "
        "WHERE LOWER(channel) IN ('app', 'web', 'phone') OR url LIKE '%&channel_id=%'"
    ),
    "q22": OnFlink(
        f"{_BID}, channel, SPLIT_INDEX(url, '/', 3) AS dir1, SPLIT_INDEX(url, '/', 4) AS dir2, "
        "SPLIT_INDEX(url, '/', 5) AS dir3 FROM bid"
    ),
    "q23": OnFlink(
        "SELECT B.auction, B.bidder, B.price, B.channel, P.name, P.email, P.city, P.state, A.id, A.item, "
        "A.category, A.expires FROM bid B JOIN person P ON P.id = B.bidder "
        "JOIN auction A ON A.seller = B.bidder"
    ),
}
