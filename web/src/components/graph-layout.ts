// Where nodes and arcs of a graph are drawn, by dagre: from left to right.
import dagre from "@dagrejs/dagre";
import type { GraphArc, GraphBody, GraphNode } from "../api/client";

export const NODE_WIDTH = 190;
export const NODE_HEIGHT = 58;

export interface PlacedNode {
  node: GraphNode;
  x: number;
  y: number;
}

export interface PlacedArc {
  arc: GraphArc;
  path: string;
  middle: { x: number; y: number };
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
  drawn.setGraph({ rankdir: "LR", nodesep: 18, ranksep: 74, marginx: 20, marginy: 20 });
  drawn.setDefaultEdgeLabel(() => ({}));
  for (const node of graph.nodes) drawn.setNode(node.id, { width: NODE_WIDTH, height: NODE_HEIGHT });
  for (const arc of graph.arcs) drawn.setEdge(arc.source, arc.target);
  dagre.layout(drawn);
  const nodes = graph.nodes.map((node) => {
    const { x, y } = drawn.node(node.id) as { x: number; y: number };
    return { node, x: x - NODE_WIDTH / 2, y: y - NODE_HEIGHT / 2 };
  });
  const arcs = graph.arcs.map((arc) => {
    const { points } = drawn.edge(arc.source, arc.target) as { points: { x: number; y: number }[] };
    return { arc, path: smooth(points), middle: points[Math.floor(points.length / 2)]! };
  });
  const { width = 0, height = 0 } = drawn.graph() as { width?: number; height?: number };
  return { nodes, arcs, width: Math.max(width, 1), height: Math.max(height, 1) };
}

/** A path through points, with bends made round. */
export function smooth(points: { x: number; y: number }[]): string {
  const [first, ...rest] = points;
  if (!first) return "";
  let path = `M${at(first)}`;
  rest.forEach((point, index) => {
    const next = rest[index + 1];
    if (!next) path += `L${at(point)}`;
    else path += `Q${at(point)} ${at({ x: (point.x + next.x) / 2, y: (point.y + next.y) / 2 })}`;
  });
  return path;
}

const at = ({ x, y }: { x: number; y: number }): string => `${x.toFixed(1)},${y.toFixed(1)}`;

/** How thick an arc is: by the logarithm of its rate. */
export function thickness(rate: number): number {
  return rate > 0 ? Math.min(9, 1.2 + 1.5 * Math.log10(1 + rate)) : 1;
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
