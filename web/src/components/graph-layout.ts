// Where nodes and arcs of a graph are drawn, by dagre: from left to right.
import dagre from "@dagrejs/dagre";
import type { GraphArc, GraphBody, GraphNode } from "../api/client";

export const NODE_WIDTH = 178;
export const NODE_HEIGHT = 44;
const ROOT = "\u0000root"; // before all streams, so that they stand in one column

export interface PlacedNode {
  node: GraphNode;
  x: number;
  y: number;
}

export interface PlacedArc {
  arc: GraphArc;
  path: string;
  label: { x: number; y: number };
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

export function place(graph: GraphBody): Placed {
  const drawn = new dagre.graphlib.Graph();
  drawn.setGraph({ rankdir: "LR", nodesep: 12, ranksep: 104, edgesep: 8, marginx: 16, marginy: 16 });
  drawn.setDefaultEdgeLabel(() => ({}));
  const targets = new Set(graph.arcs.map((arc) => arc.target));
  drawn.setNode(ROOT, { width: 0, height: 0 });
  for (const node of graph.nodes) {
    drawn.setNode(node.id, { width: NODE_WIDTH, height: NODE_HEIGHT });
    if (!targets.has(node.id)) drawn.setEdge(ROOT, node.id, { weight: 50, minlen: 1 });
  }
  for (const arc of graph.arcs) drawn.setEdge(arc.source, arc.target);
  dagre.layout(drawn);
  const left = Math.min(...graph.nodes.map((node) => (drawn.node(node.id) as { x: number }).x)) - NODE_WIDTH / 2 - 16;
  const nodes = graph.nodes.map((node) => {
    const { x, y } = drawn.node(node.id) as { x: number; y: number };
    return { node, x: x - NODE_WIDTH / 2 - left, y: y - NODE_HEIGHT / 2 };
  });
  const ports = portsOf(graph.arcs, new Map(nodes.map((one) => [one.node.id, one.y])));
  const corner = new Map(nodes.map((one) => [one.node.id, one]));
  const arcs = graph.arcs.map((arc) => {
    const edge = drawn.edge(arc.source, arc.target) as { points: { x: number; y: number }[] };
    const { x: fromX, y: fromY } = corner.get(arc.source)!;
    const { x: toX, y: toY } = corner.get(arc.target)!;
    const from = { x: fromX + NODE_WIDTH, y: fromY + NODE_HEIGHT / 2 };
    const to = { x: toX, y: toY + NODE_HEIGHT / 2 + ports.get(arc)! };
    // Between neighbours an arc needs no help; on a longer way it passes between nodes where dagre says.
    const between = edge.points.slice(1, -1).map(({ x, y }) => ({ x: x - left, y }));
    const way = between.filter(({ x }) => x > from.x + NODE_WIDTH / 2 && x < to.x - NODE_WIDTH / 2);
    return { arc, path: smooth([from, ...way, to]), label: { x: to.x - 7, y: to.y - 4 } };
  });
  const { width = 0, height = 0 } = drawn.graph() as { width?: number; height?: number };
  return { nodes, arcs, width: Math.max(width - left, 1), height: Math.max(height, 1) };
}

/** How far from the middle of its target each arc ends: those from above come in above. */
export function portsOf(arcs: GraphArc[], y: ReadonlyMap<string, number>): Map<GraphArc, number> {
  const ends = new Map<string, GraphArc[]>();
  for (const arc of arcs) ends.set(arc.target, [...(ends.get(arc.target) ?? []), arc]);
  const found = new Map<GraphArc, number>();
  for (const own of ends.values()) {
    own.sort((a, b) => (y.get(a.source) ?? 0) - (y.get(b.source) ?? 0));
    const apart = Math.min(15, (NODE_HEIGHT - 10) / own.length);
    own.forEach((arc, place) => found.set(arc, (place - (own.length - 1) / 2) * apart));
  }
  return found;
}

/** A path through points, level at each of them. */
export function smooth(points: { x: number; y: number }[]): string {
  const [first, ...rest] = points;
  if (!first) return "";
  let before = first;
  let path = `M${at(first)}`;
  for (const point of rest) {
    const middle = (before.x + point.x) / 2;
    path += `C${at({ x: middle, y: before.y })} ${at({ x: middle, y: point.y })} ${at(point)}`;
    before = point;
  }
  return path;
}

const at = ({ x, y }: { x: number; y: number }): string => `${x.toFixed(1)},${y.toFixed(1)}`;

/** How thick an arc is: by the logarithm of its rate. */
export function thickness(rate: number): number {
  return rate > 0 ? Math.min(9, 1.2 + 1.5 * Math.log10(1 + rate)) : 1;
}

/** How much a node does, from 0 to 1: a whole core is much. */
export function load(cpu: number): number {
  return cpu > 0 ? Math.min(1, Math.sqrt(cpu)) : 0;
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
