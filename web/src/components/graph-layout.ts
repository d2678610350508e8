// Where nodes and arcs of a graph are drawn, by dagre: from left to right, or from top to bottom.
import dagre from "@dagrejs/dagre";
import type { GraphArc, GraphBody, GraphNode } from "../api/client";

export const NODE_WIDTH = 178;
export const NODE_HEIGHT = 44;
const ROOT = "\u0000root"; // before all streams, so that they stand in one column

const MARGIN = 16;
const MOST_STANDING = 30;

interface Point {
  x: number;
  y: number;
}

export interface PlacedNode {
  node: GraphNode;
  x: number;
  y: number;
}

export interface PlacedArc {
  arc: GraphArc;
  path: string;
  label: Point & { anchor: "start" | "end" };
}

export interface Placed {
  nodes: PlacedNode[];
  arcs: PlacedArc[];
  width: number;
  height: number;
}

/** Graphs of the same nodes and arcs have the same shape: figures change, places stay. */
export function shapeOf(graph: GraphBody): string {
  return `${graph.nodes.map((node) => node.id).join("|")}#${graph.arcs.map((arc) => `${arc.source}>${arc.target}`).join("|")}`;
}

/** Whether a graph is larger to see from top to bottom: chains of a query are, in most windows. */
export function standsBetter(graph: GraphBody, width: number, height: number): boolean {
  const arriving = new Map<string, number>();
  for (const { target } of graph.arcs) arriving.set(target, (arriving.get(target) ?? 0) + 1);
  // Labels of more than two arcs find no place side by side above a node.
  if (graph.nodes.length > MOST_STANDING || Math.max(0, ...arriving.values()) > 2) return false;
  const scale = (placed: Placed): number => Math.min(width / placed.width, height / placed.height, 1);
  return scale(place(graph, true)) > 1.1 * scale(place(graph));
}

/** Where everything is drawn: streams at the left, or at the top where it stands. */
export function place(graph: GraphBody, stands = false): Placed {
  const drawn = new dagre.graphlib.Graph();
  const apart = stands ? { nodesep: 30, ranksep: 52 } : { nodesep: 8, ranksep: 104 };
  drawn.setGraph({ rankdir: stands ? "TB" : "LR", ...apart, edgesep: 8, marginx: MARGIN, marginy: MARGIN });
  drawn.setDefaultEdgeLabel(() => ({}));
  const targets = new Set(graph.arcs.map((arc) => arc.target));
  drawn.setNode(ROOT, { width: 0, height: 0 });
  for (const node of graph.nodes) {
    drawn.setNode(node.id, { width: NODE_WIDTH, height: NODE_HEIGHT });
    if (!targets.has(node.id)) drawn.setEdge(ROOT, node.id, { weight: 50, minlen: 1 });
  }
  for (const arc of graph.arcs) drawn.setEdge(arc.source, arc.target);
  dagre.layout(drawn);
  const centres = graph.nodes.map((node) => drawn.node(node.id) as Point);
  // The root takes a rank that nobody sees.
  const left = stands ? 0 : Math.min(...centres.map(({ x }) => x)) - NODE_WIDTH / 2 - MARGIN;
  const top = stands ? Math.min(...centres.map(({ y }) => y)) - NODE_HEIGHT / 2 - MARGIN : 0;
  const nodes = graph.nodes.map((node, index) => {
    const { x, y } = centres[index]!;
    return { node, x: x - NODE_WIDTH / 2 - left, y: y - NODE_HEIGHT / 2 - top };
  });
  const ports = portsOf(graph.arcs, new Map(nodes.map((one) => [one.node.id, stands ? one.x : one.y])), stands);
  const corner = new Map(nodes.map((one) => [one.node.id, one]));
  const leaving = new Map<string, number>();
  for (const { source } of graph.arcs) leaving.set(source, (leaving.get(source) ?? 0) + 1);
  const arcs = graph.arcs.map((arc) => {
    const edge = drawn.edge(arc.source, arc.target) as { points: Point[] };
    const [source, target, port] = [corner.get(arc.source)!, corner.get(arc.target)!, ports.get(arc)!];
    const [halfWidth, halfHeight] = [NODE_WIDTH / 2, NODE_HEIGHT / 2];
    const from = stands ? { x: source.x + halfWidth, y: source.y + NODE_HEIGHT } : { x: source.x + NODE_WIDTH, y: source.y + halfHeight };
    const to = stands ? { x: target.x + halfWidth + port, y: target.y } : { x: target.x, y: target.y + halfHeight + port };
    // Between neighbours an arc needs no help; on a longer way it passes between nodes where dagre says.
    const way = edge.points
      .slice(1, -1)
      .map(({ x, y }) => ({ x: x - left, y: y - top }))
      .filter(({ x, y }) => (stands ? y > from.y + halfHeight && y < to.y - halfHeight : x > from.x + halfWidth && x < to.x - halfWidth));
    const label = !stands ? labelOf(to) : leaving.get(arc.source) === 1 ? labelBelow(from) : labelBeside(to, port);
    return { arc, path: smooth([from, ...way, to], stands), label };
  });
  const { width = 0, height = 0 } = drawn.graph() as { width?: number; height?: number };
  return { nodes, arcs, width: Math.max(width - left, 1), height: Math.max(height - top, 1) };
}

type Label = PlacedArc["label"];

const labelOf = (end: Point): Label => ({ x: end.x - 7, y: end.y - 4, anchor: "end" });
/** Where an arc leaves a node downwards, nothing crosses its label. */
const labelBelow = (start: Point): Label => ({ x: start.x + 8, y: start.y + 18, anchor: "start" });
const labelBeside = (end: Point, port: number): Label =>
  port < 0 ? { x: end.x - 8, y: end.y - 9, anchor: "end" } : { x: end.x + 8, y: end.y - 9, anchor: "start" };

/** How far from the middle of its target each arc ends: those from above, or from the left, come in there. */
export function portsOf(arcs: GraphArc[], across: ReadonlyMap<string, number>, stands = false): Map<GraphArc, number> {
  const ends = new Map<string, GraphArc[]>();
  for (const arc of arcs) ends.set(arc.target, [...(ends.get(arc.target) ?? []), arc]);
  const found = new Map<GraphArc, number>();
  for (const own of ends.values()) {
    own.sort((a, b) => (across.get(a.source) ?? 0) - (across.get(b.source) ?? 0));
    const apart = stands ? NODE_WIDTH / 2 / own.length : Math.min(15, (NODE_HEIGHT - 4) / own.length);
    own.forEach((arc, place) => found.set(arc, (place - (own.length - 1) / 2) * apart));
  }
  return found;
}

/** A path through points, level at each of them, or upright where the graph stands. */
export function smooth(points: Point[], stands = false): string {
  const [first, ...rest] = points;
  if (!first) return "";
  let before = first;
  let path = `M${at(first)}`;
  for (const point of rest) {
    const middle = stands ? (before.y + point.y) / 2 : (before.x + point.x) / 2;
    const bent = (end: Point): Point => (stands ? { x: end.x, y: middle } : { x: middle, y: end.y });
    path += `C${at(bent(before))} ${at(bent(point))} ${at(point)}`;
    before = point;
  }
  return path;
}

const at = ({ x, y }: Point): string => `${x.toFixed(1)},${y.toFixed(1)}`;

/** How thick an arc is: by the logarithm of its rate. */
export function thickness(rate: number): number {
  return rate > 0 ? Math.min(9, 1.2 + 1.5 * Math.log10(1 + rate)) : 1;
}

/** The cores that are drawn darkest: one, or what the busiest task uses where that is more. */
export function busiest(graph: GraphBody): number {
  return graph.nodes.reduce((most, node) => Math.max(most, node.cpu), 1);
}

/** How dark a node is, from 0 to 1, where the busiest uses so many cores. */
export function load(cpu: number, most = 1): number {
  return cpu > 0 ? Math.min(1, Math.sqrt(cpu / most)) : 0;
}

/** A graph without what only comes of nodes that are collapsed; and by such a node, how many are hidden. */
export function collapse(graph: GraphBody, collapsed: ReadonlySet<string>): { graph: GraphBody; hidden: Map<string, number> } {
  const hidden = new Map<string, number>();
  if (!collapsed.size) return { graph, hidden };
  const next = new Map<string, string[]>();
  const targets = new Set<string>();
  for (const { source, target } of graph.arcs) {
    next.set(source, [...(next.get(source) ?? []), target]);
    targets.add(target);
  }
  const reached = (starts: string[], through: (id: string) => boolean): Set<string> => {
    const found = new Set(starts);
    const waiting = [...starts];
    while (waiting.length) {
      const id = waiting.pop()!;
      if (!through(id)) continue;
      for (const other of next.get(id) ?? []) {
        if (found.has(other)) continue;
        found.add(other);
        waiting.push(other);
      }
    }
    return found;
  };
  const starts = graph.nodes.map((node) => node.id).filter((id) => !targets.has(id));
  const shown = reached(starts, (id) => !collapsed.has(id));
  for (const id of collapsed) {
    const behind = [...reached([id], () => true)].filter((other) => !shown.has(other));
    if (shown.has(id) && behind.length) hidden.set(id, behind.length);
  }
  return {
    graph: {
      ...graph,
      nodes: graph.nodes.filter((node) => shown.has(node.id)),
      arcs: graph.arcs.filter((arc) => shown.has(arc.source) && shown.has(arc.target) && !hidden.has(arc.source)),
    },
    hidden,
  };
}

/** What is lit with a node: all that it is made of, and all that is made of it. */
export function litWith(id: string, arcs: GraphArc[]): Set<string> {
  const lit = new Set([id]);
  const along = (from: "source" | "target", to: "source" | "target"): void => {
    const next = new Map<string, string[]>();
    for (const arc of arcs) next.set(arc[from], [...(next.get(arc[from]) ?? []), arc[to]]);
    const waiting = [id];
    while (waiting.length) {
      for (const other of next.get(waiting.pop()!) ?? []) {
        if (!lit.has(other)) {
          lit.add(other);
          waiting.push(other);
        }
      }
    }
  };
  along("target", "source");
  along("source", "target");
  return lit;
}
