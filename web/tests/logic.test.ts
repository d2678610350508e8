import assert from "node:assert/strict";
import { test } from "node:test";
import { cutEvents } from "../src/api/live-events";
import { diffLines } from "../src/components/diff";
import type { GraphArc, GraphBody, GraphNode } from "../src/api/client";
import { EXAMPLES, offersAt, relationsRead } from "../src/components/esl-words";
import { fingered, wheelFactor, zoomed } from "../src/components/graph-gestures";
import { busiest, collapse, litWith, load, place, smooth, standsBetter, thickness } from "../src/components/graph-layout";
import { chartPlan, numbersOf } from "../src/components/chart-plan";
import { subtasksOverWorkers, cutTracks, fitting, layOut } from "../src/components/slice-chain";
import { bytes, count, milliseconds, moment, percent, plural, rate, span, wholeSeconds } from "../src/format";
import { byPolicy } from "../src/state/before-after";
import { keyMeaning } from "../src/state/keys";
import { hashOf, parseHash } from "../src/state/router";
import { explainReplacements, quoted, replacing, statementsOf } from "../src/state/statements";

test("numbers are short, and nothing is a dash", () => {
  assert.deepEqual([count(1234), count(12345), count(2.5e6), count(null), count(NaN)], ["1,234", "12.3 k", "2.5 M", "–", "–"]);
  assert.deepEqual([rate(0.5), bytes(1536), milliseconds(2500), percent(0.126)], ["0.5/s", "1.54 kB", "2.5 s", "12.6 %"]);
  assert.deepEqual([span(90), span(7200), moment(5_500_000), plural(1, "subtask"), plural(2, "subtask")], ["90 s", "2 h", "5.5 s", "1 subtask", "2 subtasks"]);
  assert.deepEqual([count(100), moment(11_107_500_000)], ["100", "3:05:07"]);
  assert.deepEqual([wholeSeconds("18:25:39.147"), wholeSeconds("38.1 s")], ["18:25:39", "38.1 s"]);
  assert.deepEqual([rate(1387.4), percent(24), count(9999.6)], ["1,387/s", "2,400 %", "10,000"]);
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

const WORDS = {
  keywords: ["SELECT", "FROM"],
  types: ["INT"],
  functions: [{ name: "count", call: "count(any)" }],
  relations: [
    { name: "bid", kind: "stream", columns: [{ name: "price", type: "BIGINT" }] },
    { name: "sale", kind: "stream", columns: [{ name: "sum", type: "INT" }] },
  ],
};

test("the editor offers columns of what is read, and of an alias behind its point", () => {
  const labels = (before: string, text = before): string[] => offersAt(before, text, WORDS).map((offer) => offer.label);
  assert.deepEqual(labels("SELECT * FROM b"), ["bid", "sale"]);
  assert.deepEqual(labels("SELECT S.", "SELECT S. FROM bid AS B, sale [RANGE 5 SECONDS] AS S"), ["sum"]);
  assert.deepEqual(labels("SELECT bid."), ["price"]);
  assert.equal(labels("SELECT p", "SELECT p FROM sale")[0], "sum");
  assert.ok(labels("SELECT p").includes("price") && labels("SELECT c").includes("count"));
  assert.deepEqual([...relationsRead("SELECT 1 FROM sale", WORDS).keys()], ["sale"]);
  assert.ok(EXAMPLES.every((example) => example.text.trim().endsWith(";")));
});

test("answers are drawn over time, as bars by name, or by row", () => {
  const column = (name: string, type: string) => ({ name, type });
  const rows = [{ t: "2026-01-01T00:00:00Z", who: "a", n: 1 }, { t: "2026-01-01T00:00:01Z", who: "b", n: "2.5" }];
  const number = column("n", "int64");
  assert.deepEqual(chartPlan([column("t", "timestamp[us, tz=UTC]"), number], rows), { kind: "time", x: "t", ys: ["n"] });
  assert.equal(chartPlan([column("who", "string"), number], rows)?.kind, "bars");
  assert.equal(chartPlan([number], rows)?.kind, "rows");
  assert.equal(chartPlan([column("who", "string")], rows), null);
  assert.deepEqual(numbersOf([...rows, { n: null }], "n"), [1, 2.5, null]);
});

test("names are quoted as ESL has them", () => {
  assert.equal(quoted('a "b"'), '"a ""b"""');
});

test("a replacement is written from the statement, and asked about before it is run", () => {
  const text = replacing("CREATE QUERY q AS SELECT ';' AS x FROM s");
  assert.equal(text, "CREATE OR REPLACE QUERY q AS SELECT ';' AS x FROM s;\n");
  assert.equal(replacing(text), text);
  assert.equal(explainReplacements(`-- another; filter\n${text}SHOW QUERIES`), "EXPLAIN REPLACE QUERY q AS SELECT ';' AS x FROM s");
  assert.equal(explainReplacements("CREATE QUERY q AS SELECT 1"), "");
  assert.deepEqual(statementsOf("a - b; -- c; d\ne;"), ["a - b", "-- c; d\ne"]);
});

test("what only comes of a collapsed node is hidden, what others lead to stays", () => {
  const node = (id: string) => ({ id }) as GraphNode;
  const arc = (source: string, target: string) => ({ source, target }) as GraphArc;
  const graph = {
    nodes: ["a", "b", "c", "d", "e"].map(node),
    arcs: [arc("a", "b"), arc("b", "c"), arc("b", "d"), arc("a", "d"), arc("d", "e")],
  } as GraphBody;
  const { graph: shown, hidden } = collapse(graph, new Set(["b"]));
  assert.deepEqual(shown.nodes.map((one) => one.id), ["a", "b", "d", "e"]);
  assert.deepEqual([...hidden], [["b", 1]]);
  assert.equal(collapse(graph, new Set()).graph, graph);
  assert.ok(load(0) === 0 && load(0.25) === 0.5 && load(4) === 1);
  const loads = (...cpu: number[]): number => busiest({ nodes: cpu.map((one) => ({ cpu: one })), arcs: [] } as unknown as GraphBody);
  assert.deepEqual([loads(), loads(0.2, 0.05), loads(4, 1)], [1, 1, 4]);
  assert.deepEqual([load(4, 4), load(1, 4)], [1, 0.5]);
});

test("streams stand in one column, and arcs end at their nodes", () => {
  const node = (id: string) => ({ id }) as GraphNode;
  const arc = (source: string, target: string) => ({ source, target }) as GraphArc;
  const placed = place({ nodes: ["s", "t", "f", "j"].map(node), arcs: [arc("s", "f"), arc("f", "j"), arc("t", "j")] } as GraphBody);
  const x = Object.fromEntries(placed.nodes.map((one) => [one.node.id, Math.round(one.x)]));
  assert.equal(x.s, x.t);
  assert.ok(x.s! < x.f! && x.f! < x.j! && x.s! >= 0);
});

test("a chain stands in a window that is too narrow for it, and a wide graph lies", () => {
  const node = (id: string) => ({ id }) as GraphNode;
  const arc = (source: string, target: string) => ({ source, target }) as GraphArc;
  const chain = { nodes: ["s", "a", "b", "c", "q"].map(node), arcs: [arc("s", "a"), arc("a", "b"), arc("b", "c"), arc("c", "q")] } as GraphBody;
  assert.ok(standsBetter(chain, 700, 600));
  assert.ok(!standsBetter(chain, 2000, 600));
  const many = [..."abcdefghij"];
  const fan = { nodes: ["s", ...many].map(node), arcs: many.map((id) => arc("s", id)) } as GraphBody;
  assert.ok(!standsBetter(fan, 700, 600));
  const placed = place(chain, true);
  const y = placed.nodes.map((one) => Math.round(one.y));
  assert.deepEqual(y, [...y].sort((a, b) => a - b));
  assert.ok(y[0]! >= 0 && placed.arcs[0]!.path.startsWith("M"));
});

test("fingers move and zoom, and what is under them stays there", () => {
  const view = { x: 10, y: 20, scale: 1 };
  assert.deepEqual(fingered(view, [{ x: 5, y: 5 }], [{ x: 8, y: 1 }]), { x: 13, y: 16, scale: 1 });
  const pinched = fingered(view, [{ x: 90, y: 50 }, { x: 110, y: 50 }], [{ x: 85, y: 60 }, { x: 125, y: 60 }]);
  assert.deepEqual(pinched, { scale: 2, x: 105 - 2 * 90, y: 60 - 2 * 30 });
  assert.deepEqual(zoomed(view, 1e6, { x: 10, y: 20 }), { x: 10, y: 20, scale: 2.5 });
  const wheel = (deltaY: number, ctrlKey = false, deltaMode = 0): number => wheelFactor({ deltaY, ctrlKey, deltaMode });
  assert.ok(wheel(-4, true) > wheel(-4) && wheel(-120, true) === wheel(-120) && wheel(3, false, 1) === wheel(48));
});

test("a name with a percent sign that stands for itself is a name", () => {
  assert.equal(parseHash("#/query/50%").name, "50%");
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
  assert.equal(smooth([{ x: 0, y: 0 }, { x: 1, y: 1 }]), "M0.0,0.0C0.5,0.0 0.5,1.0 1.0,1.0");
});

test("slices lie by age, and queries reach as far back as their rows", () => {
  const slice = (earliest: number, latest: number, wanted: Record<string, number>) => ({
    subtask: 0,
    worker: 1,
    part: "input 0",
    rows: 5,
    bytes: 10,
    earliest_us: earliest * 1e6,
    latest_us: latest * 1e6,
    wanted,
  });
  const found = layOut({ task: "u", subtasks: 1, queries: [], cuts: [], moves: [], reaches: { near: 10 }, slices: [slice(0, 50, { far: 5, near: 2 }), slice(50, 60, { far: 5, near: 5 })] });
  assert.deepEqual(found.reaches, [
    { query: "far", age: 60, rows: 10 },
    { query: "near", age: 10, rows: 7 },
  ]);
  assert.deepEqual([found.oldestAge, found.lanes.length], [60, 1]);
  const chain = { task: "u", subtasks: 2, queries: [], cuts: [], slices: [slice(0, 9, {}), { ...slice(0, 9, {}), subtask: 1, worker: 0 }], moves: [], reaches: {} };
  assert.deepEqual(subtasksOverWorkers(chain).map((one) => [one.worker, one.subtasks.map((subtask) => subtask.subtask)]), [["0", [1]], ["1", [0]]]);
  const move = (at_s: number, used: number[]) => ({ at_s, subtask: 0, part: "input 0", used });
  const [track] = cutTracks({ ...chain, moves: [move(1, [5]), move(2, [5, 9])] });
  assert.deepEqual(track?.points, [{ at: 1, ages: [5] }, { at: 2, ages: [5, 9] }]);
  assert.equal(fitting(30, "a long text", "short"), "");
});

test("means are taken while a policy decided", () => {
  const found = byPolicy([1, 2, 3, 4], [10, 20, null, 40], [{ at_s: 0, policy: "fcfs" }, { at_s: 2, policy: "hnr" }]);
  assert.deepEqual(found.map((one) => [one.policy, one.mean, one.samples]), [["fcfs", 15, 2], ["hnr", 40, 1]]);
});
