import assert from "node:assert/strict";
import { test } from "node:test";
import { cutEvents } from "../src/api/live-events";
import { diffLines } from "../src/components/diff";
import { columnsOf, EXAMPLES, wordsOf } from "../src/components/esl-words";
import { litWith, smooth, thickness } from "../src/components/graph-layout";
import { fitting, layOut } from "../src/components/slice-chain";
import { bytes, count, milliseconds, moment, percent, plural, rate, span } from "../src/format";
import { byPolicy } from "../src/state/before-after";
import { keyMeaning } from "../src/state/keys";
import { hashOf, parseHash } from "../src/state/router";

test("numbers are short, and nothing is a dash", () => {
  assert.deepEqual([count(1234), count(12345), count(2.5e6), count(null), count(NaN)], ["1,234", "12.3 k", "2.5 M", "–", "–"]);
  assert.deepEqual([rate(0.5), bytes(1536), milliseconds(2500), percent(0.126)], ["0.5/s", "1.54 kB", "2.5 s", "12.6 %"]);
  assert.deepEqual([span(90), span(7200), moment(5_500_000), plural(1, "cell"), plural(2, "cell")], ["90 s", "2 h", "5.5 s", "1 cell", "2 cells"]);
  assert.equal(count(100), "100");
});

test("a hash names a page, a name and options, and back", () => {
  const hash = hashOf("query", 'a/b "c"', { tab: "plan" });
  const { page, name, options } = parseHash(hash);
  assert.deepEqual([page, name, options.get("tab")], ["query", 'a/b "c"', "plan"]);
  assert.equal(parseHash("").page, "overview");
});

test("g and a letter go to a page, a slash to the search", () => {
  assert.equal(keyMeaning("/", false), "search");
  assert.equal(keyMeaning("e", true), "editor");
  assert.equal(keyMeaning("e", false), null);
  assert.equal(keyMeaning("x", true), null);
});

test("events are cut where they end, and the rest waits", () => {
  const { events, rest } = cutEvents('id: 4\nevent: rows\ndata: {"rows": []}\n\n: nothing new\n\nid: 5\nev');
  assert.deepEqual(events, [{ event: "rows", data: '{"rows": []}', id: "4" }]);
  assert.equal(rest, "id: 5\nev");
});

test("lines that are gone and new are told apart", () => {
  const kinds = diffLines("a\nb\nc", "a\nx\nc").map((line) => `${line.kind} ${line.text}`);
  assert.deepEqual(kinds, ["same a", "removed b", "added x", "same c"]);
  assert.deepEqual(diffLines("", "a"), [{ kind: "added", text: "a" }]);
});

test("columns of declarations are known, with types that have numbers", () => {
  assert.deepEqual(columnsOf('CREATE STREAM s (id bigint, state char(2), "a b" decimal(9, 2), ts timestamp) ORDER BY ts'), [
    "id",
    "state",
    "a b",
    "ts",
  ]);
  assert.deepEqual(columnsOf("CREATE QUERY q AS SELECT 1"), []);
  const words = wordsOf([{ kind: "relation", name: "s", text: "CREATE STREAM s (x int)", by: "", at: "" }]);
  assert.deepEqual([words.relations[0]?.name, words.columns], ["s", [{ name: "x", of: "s" }]]);
  assert.ok(EXAMPLES.every((example) => example.text.trim().endsWith(";")));
});

test("a node lights what it is made of and what is made of it", () => {
  const arcs = [["a", "b"], ["b", "c"], ["a", "d"], ["e", "c"]].map(([source, target]) => ({
    source: source!,
    target: target!,
    kind: "tuples",
    rate: 1,
    watermark_us: null,
  }));
  assert.deepEqual([...litWith("b", arcs)].sort(), ["a", "b", "c"]);
  assert.ok(thickness(1000) > thickness(10) && thickness(1e12) <= 9);
  assert.equal(smooth([{ x: 0, y: 0 }, { x: 1, y: 1 }]), "M0.0,0.0L1.0,1.0");
});

test("slices lie by age, and queries reach as far back as their rows", () => {
  const slice = (earliest: number, latest: number, wanted: Record<string, number>) => ({
    cell: 0,
    worker: 1,
    part: "input 0",
    rows: 5,
    bytes: 10,
    earliest_us: earliest * 1e6,
    latest_us: latest * 1e6,
    wanted,
  });
  const found = layOut({ unit: "u", cells: 1, queries: [], cuts: [], slices: [slice(0, 50, { far: 5, near: 0 }), slice(50, 60, { far: 5, near: 5 })] });
  assert.deepEqual(found.reaches, [
    { query: "far", age: 60, rows: 10 },
    { query: "near", age: 10, rows: 5 },
  ]);
  assert.deepEqual([found.oldestAge, found.lanes.length], [60, 1]);
  assert.equal(fitting(30, "a long text", "short"), "");
});

test("means are taken while a policy decided", () => {
  const found = byPolicy([1, 2, 3, 4], [10, 20, null, 40], [{ at_s: 0, policy: "fcfs" }, { at_s: 2, policy: "hnr" }]);
  assert.deepEqual(found.map((one) => [one.policy, one.mean, one.samples]), [["fcfs", 15, 2], ["hnr", 40, 1]]);
});
