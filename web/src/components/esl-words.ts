// What the editor knows of ESL: its words, and what a catalog lets one write.
import type { CatalogEntry } from "../api/client";

export const KEYWORDS = (
  "SELECT FROM WHERE GROUP BY HAVING CREATE DROP STREAM QUERY TABLE VIEW AGGREGATE MODEL FUNCTION CLASSIFIER AS WITH " +
  "ORDER SKEW SOURCE USING OPTIONS UNION JOIN LEFT ON WINDOW RANGE SLIDE SLIDES ROWS PRECEDING UNBOUNDED OVER PARTITION " +
  "AND OR NOT IN IS NULL LIKE BETWEEN CASE WHEN THEN ELSE END CAST INTERVAL SECOND SECONDS MINUTE MINUTES HOUR HOURS DAY " +
  "DAYS MILLISECONDS SET FOR SHOW DESCRIBE EXPLAIN QUERIES STREAMS TABLES STATEMENTS SETTINGS INSERT INTO VALUES UPDATE " +
  "INITIALIZE ITERATE TERMINATE RETURN RETURNS LANGUAGE WHILE VALID LIMIT DISTINCT TRUE FALSE LATE"
).split(" ");
export const TYPES = "int bigint smallint double real float varchar char boolean timestamp date decimal".split(" ");
export const FUNCTIONS = "count sum avg min max abs round floor ceil upper lower length substring coalesce window_start window_end".split(" ");

export interface CatalogWords {
  relations: { name: string; kind: string }[];
  columns: { name: string; of: string }[];
}

/** The names that are declared, and the columns that declarations list. */
export function wordsOf(catalog: CatalogEntry[]): CatalogWords {
  const relations = catalog.filter((entry) => entry.kind !== "setting").map(({ name, kind }) => ({ name, kind }));
  const columns = catalog.flatMap((entry) => columnsOf(entry.text).map((name) => ({ name, of: entry.name })));
  return { relations, columns };
}

/** The columns that a CREATE STREAM or CREATE TABLE lists. */
export function columnsOf(text: string): string[] {
  const found = /^\s*CREATE\s+(?:STREAM|TABLE)\s+(?:"[^"]*"|\w+)\s*\(/i.exec(text);
  if (!found) return [];
  const parts: string[] = [];
  let depth = 0;
  let start = found[0].length;
  for (let at = start; at < text.length; at++) {
    const letter = text[at];
    if (letter === "(") depth++;
    else if (letter === ")" && depth > 0) depth--;
    else if ((letter === "," || letter === ")") && depth === 0) {
      parts.push(text.slice(start, at));
      start = at + 1;
      if (letter === ")") break;
    }
  }
  return parts.map((part) => /^\s*(?:"([^"]*)"|(\w+))/.exec(part)).flatMap((name) => name?.[1] ?? name?.[2] ?? []);
}

export interface Example {
  title: string;
  text: string;
}

export const EXAMPLES: Example[] = [
  {
    title: "A stream of bids, and the dear ones",
    text: `CREATE STREAM bid (auction bigint, bidder bigint, price bigint, channel varchar, ts timestamp)
  ORDER BY ts SKEW 1 SECOND
  SOURCE 'nexmark://bid?rate=250';

CREATE QUERY dear_bids AS
  SELECT auction, bidder, price FROM bid WHERE price > 900000;`,
  },
  {
    title: "Windows: what is hot now",
    text: `CREATE QUERY hot_items WITH (slo = 'p99 < 2 s') AS
  SELECT auction, count(*) AS bids, max(price) AS highest
  FROM bid [RANGE 10 SECONDS SLIDE 2 SECONDS]
  GROUP BY auction
  HAVING count(*) >= 5;`,
  },
  {
    title: "A join of two streams",
    text: `CREATE STREAM auction (id bigint, item varchar, initial_bid bigint, reserve bigint, expires timestamp,
                       seller bigint, category int, ts timestamp)
  ORDER BY ts SKEW 1 SECOND
  SOURCE 'nexmark://auction?rate=250';

CREATE QUERY first_minute_bids AS
  SELECT A.id, A.item, B.price
  FROM auction AS A, bid AS B
  WHERE A.id = B.auction
  WINDOW 60 SECONDS;`,
  },
  {
    title: "Ask once: the dearest bids so far",
    text: `SELECT channel, count(*) AS bids, max(price) AS highest
FROM bid
GROUP BY channel
ORDER BY highest DESC;`,
  },
];
