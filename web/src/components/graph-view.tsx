// A graph as plain SVG. Panning and zooming move one layer, so they cost the same for any graph.
import { memo } from "preact/compat";
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { GraphBody } from "../api/client";
import { moment, rate } from "../format";
import { litWith, NODE_HEIGHT, NODE_WIDTH, place, shapeOf, thickness, type Placed, type PlacedArc, type PlacedNode } from "./graph-layout";

const BUSY = 0.25;
const WAITING_S = 1;
const LETTERS = 25;

interface GraphViewProps {
  graph: GraphBody;
  chosen: string | null;
  onChoose: (id: string | null) => void;
}

export function GraphView({ graph, chosen, onChoose }: GraphViewProps) {
  const shape = shapeOf(graph);
  const placed = useMemo(() => place(graph), [shape]);
  const figures = useMemo(() => new Map(graph.nodes.map((node) => [node.id, node])), [graph]);
  const rates = useMemo(() => new Map(graph.arcs.map((arc) => [`${arc.source}>${arc.target}`, arc])), [graph]);
  const lit = useMemo(() => (chosen && figures.has(chosen) ? litWith(chosen, graph.arcs) : null), [chosen, shape]);
  const canvas = useRef<HTMLDivElement>(null);
  const layer = useRef<SVGSVGElement>(null);
  const view = useRef({ x: 0, y: 0, scale: 1 });

  const move = (): void => {
    const { x, y, scale } = view.current;
    if (layer.current) layer.current.style.transform = `translate(${x}px, ${y}px) scale(${scale})`;
  };
  const zoom = (factor: number, x = canvas.current!.clientWidth / 2, y = canvas.current!.clientHeight / 2): void => {
    const before = view.current;
    const scale = Math.min(2.5, Math.max(0.08, before.scale * factor));
    const kept = scale / before.scale;
    view.current = { scale, x: x - (x - before.x) * kept, y: y - (y - before.y) * kept };
    move();
  };
  const fit = (): void => {
    const { clientWidth, clientHeight } = canvas.current!;
    const scale = Math.min(1.15, Math.max(0.3, Math.min(clientWidth / placed.width, clientHeight / placed.height)));
    view.current = {
      scale,
      x: Math.max(0, (clientWidth - placed.width * scale) / 2),
      y: Math.max(0, (clientHeight - placed.height * scale) / 2),
    };
    move();
  };
  useEffect(fit, [shape]);

  useEffect(() => {
    const host = canvas.current!;
    const turned = (event: WheelEvent): void => {
      event.preventDefault();
      const { left, top } = host.getBoundingClientRect();
      zoom(Math.exp(-event.deltaY / 500), event.clientX - left, event.clientY - top);
    };
    let from: { x: number; y: number } | null = null;
    const pressed = (event: PointerEvent): void => {
      from = { x: event.clientX - view.current.x, y: event.clientY - view.current.y };
    };
    const moved = (event: PointerEvent): void => {
      if (!from || !event.buttons) return;
      host.classList.add("dragged");
      view.current = { ...view.current, x: event.clientX - from.x, y: event.clientY - from.y };
      move();
    };
    const released = (): void => {
      from = null;
      host.classList.remove("dragged");
    };
    host.addEventListener("wheel", turned, { passive: false });
    host.addEventListener("pointerdown", pressed);
    addEventListener("pointermove", moved);
    addEventListener("pointerup", released);
    return () => {
      host.removeEventListener("wheel", turned);
      host.removeEventListener("pointerdown", pressed);
      removeEventListener("pointermove", moved);
      removeEventListener("pointerup", released);
    };
  }, []);

  return (
    <div class="canvas" ref={canvas}>
      <svg ref={layer} width={placed.width} height={placed.height} role="group" aria-label="Query graph">
        {placed.arcs.map((one) => {
          const now = rates.get(`${one.arc.source}>${one.arc.target}`) ?? one.arc;
          const isLit = lit !== null && lit.has(now.source) && lit.has(now.target);
          return (
            <Arc
              key={`${now.source}>${now.target}`}
              placed={one}
              rate={Math.round(now.rate)}
              watermark={moment(now.watermark_us)}
              look={lit === null ? "" : isLit ? "lit" : "dim"}
            />
          );
        })}
        {placed.nodes.map((one) => {
          const now = figures.get(one.node.id) ?? one.node;
          const load = now.longest_wait_s > WAITING_S && now.rows_waiting ? "waiting" : now.cpu > BUSY ? "busy" : "";
          return (
            <Node
              key={now.id}
              placed={one}
              load={load}
              rate={rate(Math.round(now.rate))}
              look={`${chosen === now.id ? "chosen" : ""} ${lit !== null && !lit.has(now.id) ? "dim" : ""}`}
              onChoose={onChoose}
            />
          );
        })}
      </svg>
      <div class="tools">
        <button type="button" aria-label="Zoom in" onClick={() => zoom(1.3)}>
          +
        </button>
        <button type="button" aria-label="Zoom out" onClick={() => zoom(1 / 1.3)}>
          −
        </button>
        <button type="button" onClick={fit}>
          Fit
        </button>
      </div>
    </div>
  );
}

interface ArcProps {
  placed: PlacedArc;
  rate: number;
  watermark: string;
  look: string;
}

const Arc = memo(function Arc({ placed, rate: rows, watermark, look }: ArcProps) {
  const { arc, path, middle } = placed;
  return (
    <g class={`arc ${arc.kind} ${look}`}>
      <path d={path} style={{ strokeWidth: `${thickness(rows)}px` }} />
      {arc.kind === "tuples" && look !== "dim" && (
        <text x={middle.x} y={middle.y - 5} text-anchor="middle">
          {rows ? rate(rows) : ""}
          <title>watermark {watermark}</title>
          {watermark !== "–" && (
            <tspan x={middle.x} dy="14">
              ≥ {watermark}
            </tspan>
          )}
        </text>
      )}
    </g>
  );
});

interface NodeProps {
  placed: PlacedNode;
  load: string;
  rate: string;
  look: string;
  onChoose: (id: string | null) => void;
}

const Node = memo(function Node({ placed, load, rate: rows, look, onChoose }: NodeProps) {
  const { node, x, y } = placed;
  const choose = (): void => onChoose(node.id);
  return (
    <g
      class={`node ${node.role} ${load} ${look}`}
      transform={`translate(${x.toFixed(1)},${y.toFixed(1)})`}
      tabIndex={0}
      role="button"
      onClick={choose}
      onKeyDown={(event) => event.key === "Enter" && choose()}
    >
      <rect class="box" width={NODE_WIDTH} height={NODE_HEIGHT} rx={node.role === "source" || node.role === "sink" ? 16 : 6} />
      <text x={12} y={22}>
        {cut(node.role === "sink" || node.role === "source" ? node.label : node.title, LETTERS)}
      </text>
      <text class="what" x={12} y={39}>
        {cut(node.facts[0] ?? "", LETTERS + 3)}
      </text>
      <text class="what" x={12} y={52}>
        {node.role === "source" || node.role === "sink" ? rows : ""}
      </text>
      {node.queries > 1 && (
        <text class="shared" x={NODE_WIDTH - 10} y={52} text-anchor="end">
          {node.queries} queries
        </text>
      )}
      <title>{`${node.title}\n${node.label}\n${node.facts.join("\n")}`}</title>
    </g>
  );
});

export function cut(text: string, letters: number): string {
  return text.length <= letters ? text : `${text.slice(0, letters - 1)}…`;
}

export type { Placed };
