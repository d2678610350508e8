// What the editor knows of ESL: the words that the server has told, and what may stand at a place.
import type { EditorWords } from "../api/client";

export const NO_WORDS: EditorWords = { keywords: [], types: [], functions: [], relations: [] };

export interface Offer {
  label: string;
  kind: "keyword" | "type" | "function" | "relation" | "column";
  detail: string;
  boost: number;
}

/** What can be written next, behind `before`; `text` is all that is written, and says what is read. */
export function offersAt(before: string, text: string, words: EditorWords): Offer[] {
  const dotted = /(?:"([^"]+)"|(\w+))\.\w*$/.exec(before);
  const read = relationsRead(text, words);
  if (dotted) {
    const name = (dotted[1] ?? dotted[2] ?? "").toLowerCase();
    const known = read.get(name) ?? words.relations.find((one) => one.name.toLowerCase() === name);
    return columnsOf(known ? [known] : [], 3);
  }
  const relations = words.relations.map(({ name, kind }): Offer => ({ label: name, kind: "relation", detail: kind, boost: 2 }));
  if (/\b(?:from|join|stream|query|table|view|describe|explain)\s+\w*$/i.test(before)) return relations;
  const ours = [...new Set(read.values())];
  return [
    ...columnsOf(ours.length ? ours : words.relations, 3),
    ...relations,
    ...words.functions.map(({ name, call }): Offer => ({ label: name, kind: "function", detail: call.slice(name.length), boost: 1 })),
    ...words.keywords.map((label): Offer => ({ label, kind: "keyword", detail: "", boost: 0 })),
    ...words.types.map((label): Offer => ({ label: label.toLowerCase(), kind: "type", detail: "", boost: -1 })),
  ];
}

type Relation = EditorWords["relations"][number];

function columnsOf(relations: Relation[], boost: number): Offer[] {
  const found = new Map<string, Offer>();
  for (const relation of relations)
    for (const { name, type } of relation.columns)
      if (!found.has(name)) found.set(name, { label: name, kind: "column", detail: `${relation.name} ${type.toLowerCase()}`, boost });
  return [...found.values()];
}

/** The relations that a text names, by name and by alias, in lower case. */
export function relationsRead(text: string, words: EditorWords): Map<string, Relation> {
  const found = new Map<string, Relation>();
  for (const relation of words.relations) {
    const name = relation.name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
    const used = new RegExp(`\\b(?:from|join)\\b[^;]*?\\b${name}\\b(?:\\s*\\[[^\\]]*\\])?(?:\\s+as\\s+(\\w+))?`, "i").exec(text);
    if (!used) continue;
    found.set(relation.name.toLowerCase(), relation);
    if (used[1]) found.set(used[1].toLowerCase(), relation);
  }
  return found;
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
    title: "Patterns of change: EMIT CHANGES",
    text: `CREATE QUERY dearest AS
  SELECT channel, max(price) AS highest, count(*) AS bids
  FROM bid
  GROUP BY channel
  EMIT CHANGES;`,
  },
  {
    title: "A budget: keep up by dropping whole windows",
    text: `CREATE QUERY per_channel WITH (lag = '2 s', shedding = 'windows', keep = 0.2) AS
  SELECT channel, count(*) AS bids, avg(price) AS mean
  FROM bid [RANGE 2 SECONDS SLIDE 2 SECONDS]
  GROUP BY channel;`,
  },
  {
    title: "Ask once: the dearest bids so far",
    text: `SELECT channel, count(*) AS bids, max(price) AS highest
FROM bid
GROUP BY channel
ORDER BY highest DESC;`,
  },
];
