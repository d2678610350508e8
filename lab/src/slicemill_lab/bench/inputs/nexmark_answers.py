"""Expected answers of the queries in examples/nexmark, as DuckDB SQL over tables of all events.

`arrived` is the arrival time of a bid, by the clock of the receiving system.
"""

from __future__ import annotations

OFFER = """CREATE VIEW offer AS
SELECT A.id, A.item, A.seller, A.category, A.expires, B.bidder, B.price, B.ts AS bid_ts
FROM auction AS A, bid AS B WHERE A.id = B.auction AND B.ts >= A.ts AND B.ts <= A.expires"""

_LEVELS = ", ".join(
    f"{counted}, {counted} FILTER (price < 10000), {counted} FILTER (price BETWEEN 10000 AND 999999), "
    f"{counted} FILTER (price >= 1000000)"
    for counted in ("count(*)", "count(DISTINCT bidder)", "count(DISTINCT auction)")
)
_DAY = "strftime(ts, '%Y-%m-%d')"
_TEN = "time_bucket(INTERVAL 10 SECONDS, ts)"

ANSWERS = {
    "q00": "SELECT auction, bidder, price, ts FROM bid",
    "q01": "SELECT auction, bidder, price * 0.908::double, ts FROM bid",
    "q02": "SELECT auction, price FROM bid WHERE mod(auction, 123) = 0",
    "q03": "SELECT name, city, state, auction.id FROM auction, person "
    "WHERE seller = person.id AND category = 10 AND state IN ('OR', 'ID', 'CA')",
    "q04": "SELECT category, avg(price) FROM "
    "(SELECT category, id, max(price) AS price FROM offer GROUP BY ALL) GROUP BY category",
    "q05": "WITH counted AS (SELECT auction, count(*) AS bids, later + INTERVAL 2 SECONDS + "
    "time_bucket(INTERVAL 2 SECONDS, ts) AS until "
    "FROM bid, (SELECT to_seconds(2 * unnest(range(5))) AS later) GROUP BY ALL) SELECT * FROM counted AS c "
    "WHERE bids = (SELECT max(bids) FROM counted AS other WHERE other.until = c.until)",
    "q06": "WITH sale AS (SELECT seller, expires, min(bid_ts) AS since, max(price) AS price FROM offer "
    "GROUP BY id, seller, expires) SELECT seller, avg(price) OVER (PARTITION BY seller "
    "ORDER BY expires, since ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) FROM sale",
    "q07": f"SELECT arg_max(auction, (price, -epoch_us(ts))), arg_max(bidder, (price, -epoch_us(ts))), "
    f"max(price), {_TEN} + INTERVAL 10 SECONDS AS until FROM bid GROUP BY until",
    "q08": f"SELECT id, name, {_TEN} AS since FROM person WHERE EXISTS (SELECT 1 FROM auction "
    f"WHERE seller = person.id AND {_TEN.replace('ts', 'auction.ts')} = {_TEN.replace('ts', 'person.ts')})",
    "q09": "SELECT DISTINCT ON (id) * FROM offer ORDER BY id, price DESC, bid_ts",
    "q10": f"SELECT auction, bidder, price, ts, {_DAY}, strftime(ts, '%H:%M') FROM bid",
    "q11": "WITH told AS (SELECT *, ts > lag(ts) OVER own + INTERVAL 10 SECONDS AS begins FROM bid "
    "WINDOW own AS (PARTITION BY bidder ORDER BY ts)), "
    "numbered AS (SELECT *, count(*) FILTER (begins) OVER (PARTITION BY bidder ORDER BY ts) AS n FROM told) "
    "SELECT bidder, count(*), min(ts), max(ts) + INTERVAL 10 SECONDS FROM numbered GROUP BY bidder, n",
    "q12": "SELECT bidder, count(*), time_bucket(INTERVAL 10 SECONDS, arrived) AS since, "
    "since + INTERVAL 10 SECONDS FROM bid GROUP BY bidder, since",
    "q13": "SELECT auction, bidder, price, ts, value FROM bid, side WHERE mod(auction, 20) = side.key",
    "q14": "SELECT auction, bidder, price * 0.908::double AS euro, "
    "CASE WHEN hour(ts) IN (7, 19) THEN 'other' WHEN hour(ts) > 6 AND hour(ts) < 20 THEN 'day' "
    "ELSE 'night' END, ts, len(list_filter(string_split(url, ''), lambda letter: letter = 'c')) "
    "FROM bid WHERE euro > 1000000 AND euro < 50000000",
    "q15": f"SELECT {_DAY} AS day, {_LEVELS} FROM bid GROUP BY day",
    "q16": f"SELECT channel, {_DAY} AS day, max(strftime(ts, '%H:%M')), {_LEVELS} "
    "FROM bid GROUP BY channel, day",
    "q17": f"SELECT auction, {_DAY} AS day, {_LEVELS.split(', count(DISTINCT')[0]}, min(price), max(price), "
    "avg(price), sum(price)::bigint FROM bid GROUP BY auction, day",
    "q18": "SELECT DISTINCT ON (bidder, auction) auction, bidder, price, channel, url, ts FROM bid "
    "ORDER BY bidder, auction, ts DESC",
    "q19": "SELECT * FROM (SELECT auction, bidder, price, channel, ts, "
    "row_number() OVER (PARTITION BY auction ORDER BY price DESC, ts) AS place FROM bid) WHERE place <= 10",
    "q20": "SELECT auction, bidder, price, channel, url, bid.ts, item, initial_bid, reserve, expires, seller "
    "FROM bid JOIN auction ON auction = id WHERE category = 10",
    "q21": "SELECT auction, bidder, price, channel, CASE channel WHEN 'app' THEN '0' WHEN 'web' THEN '1' "
    "WHEN 'phone' THEN '2' ELSE string_split(url, '&channel_id=')[2] END AS found FROM bid "
    "WHERE found IS NOT NULL",
    "q22": "SELECT auction, bidder, price, channel, parts[4], parts[5], parts[6] "
    "FROM (SELECT *, string_split(url, '/') AS parts FROM bid)",
    "q23": "SELECT auction, bidder, price, channel, name, email, city, state, A.id, item, category, expires "
    "FROM bid, person AS P, auction AS A WHERE P.id = bidder AND seller = bidder",
}
