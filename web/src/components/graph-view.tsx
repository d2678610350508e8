// A graph as plain SVG. Panning and zooming move one layer, so they cost the same for any graph.
import { memo } from "preact/compat";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { GraphBody } from "../api/client";
import { moment, percent, rate } from "../format";
import {
  litWith,
  load,
  NODE_HEIGHT,
  NODE_WIDTH,
  place,
  shapeOf,
  standsBetter,
  thickness,
  type Placed,
  type PlacedArc,
  type PlacedNode,
} from "./graph-layout";

const WAITING_S = 1;
const LETTERS = 20;
const STEP = 60;
const EDGE = 14;
const A_CLICK = 4; // pixels that a hand may tremble
const NOTHING: Placed = { nodes: [], arcs: [], width: 1, height: 1 };

interface GraphViewProps {
  graph: GraphBody;
  /** By node that is collapsed, how many are hidden behind it. */
  hidden: ReadonlyMap<string, number>;
  chosen: string | null;
  onChoose: (id: string | null) => void;
}

export function GraphView({ graph: newest, hidden, chosen, onChoose }: GraphViewProps) {
  const from = useRef<{ x: number; y: number } | null>(null);
  // While it is moved by hand, figures wait: drawing them anew takes longer than a frame.
  const kept = useRef(newest);
  if (!from.current || shapeOf(kept.current) !== shapeOf(newest)) kept.current = newest;
  const graph = kept.current;
  const shape = shapeOf(graph);
  // How it lies depends on its place on the screen, which is known when that is there.
  const [stands, setStands] = useState<boolean | null>(null);
  const placed = useMemo(() => (stands === null ? NOTHING : place(graph, stands)), [shape, stands]);
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
    const scale = Math.min(1.15, Math.max(0.42, Math.min(clientWidth / placed.width, clientHeight / placed.height)));
    view.current = {
      scale,
      x: Math.max(0, (clientWidth - placed.width * scale) / 2),
      y: Math.max(0, (clientHeight - placed.height * scale) / 2),
    };
    move();
  };
  useLayoutEffect(() => {
    const { clientWidth, clientHeight } = canvas.current!;
    setStands(standsBetter(graph, clientWidth, clientHeight));
  }, [shape]);
  useLayoutEffect(fit, [placed]);
  // The panel that opens beside it must not hide what was chosen.
  useLayoutEffect(() => {
    const one = placed.nodes.find(({ node }) => node.id === chosen);
    if (!one) return;
    const { clientWidth, clientHeight } = canvas.current!;
    const { x, y, scale } = view.current;
    const by = (start: number, size: number, room: number): number =>
      Math.max(EDGE - start, 0) || Math.min(room - EDGE - start - size, 0);
    view.current = {
      scale,
      x: x + by(x + one.x * scale, NODE_WIDTH * scale, clientWidth),
      y: y + by(y + one.y * scale, NODE_HEIGHT * scale, clientHeight),
    };
    move();
  }, [chosen]);

  useEffect(() => {
    const host = canvas.current!;
    const turned = (event: WheelEvent): void => {
      event.preventDefault();
      const { left, top } = host.getBoundingClientRect();
      zoom(Math.exp(-event.deltaY / 500), event.clientX - left, event.clientY - top);
    };
    let began = { x: 0, y: 0 };
    let dragged = false;
    const pressed = (event: PointerEvent): void => {
      from.current = { x: event.clientX - view.current.x, y: event.clientY - view.current.y };
      began = { x: event.clientX, y: event.clientY };
      dragged = false;
    };
    const moved = (event: PointerEvent): void => {
      if (!from.current || !event.buttons) return;
      dragged ||= Math.hypot(event.clientX - began.x, event.clientY - began.y) > A_CLICK;
      if (!dragged) return;
      host.classList.add("dragged");
      view.current = { ...view.current, x: event.clientX - from.current.x, y: event.clientY - from.current.y };
      move();
    };
    const released = (): void => {
      from.current = null;
      host.classList.remove("dragged");
    };
    const clicked = (event: MouseEvent): void => {
      if (dragged) event.stopPropagation(); // the end of a drag, and no choice
      dragged = false;
    };
    const typed = (event: KeyboardEvent): void => {
      const by = ARROWS[event.key];
      if (by) view.current = { ...view.current, x: view.current.x + by[0] * STEP, y: view.current.y + by[1] * STEP };
      else if (event.key === "+" || event.key === "-") zoom(event.key === "+" ? 1.3 : 1 / 1.3);
      else return;
      event.preventDefault();
      move();
    };
    host.addEventListener("click", clicked, { capture: true });
    host.addEventListener("keydown", typed);
    host.addEventListener("wheel", turned, { passive: false });
    host.addEventListener("pointerdown", pressed);
    addEventListener("pointermove", moved);
    addEventListener("pointerup", released);
    addEventListener("pointercancel", released);
    return () => {
      host.removeEventListener("click", clicked, { capture: true });
      host.removeEventListener("keydown", typed);
      host.removeEventListener("wheel", turned);
      host.removeEventListener("pointerdown", pressed);
      removeEventListener("pointermove", moved);
      removeEventListener("pointerup", released);
      removeEventListener("pointercancel", released);
    };
  }, []);

  const arcs = placed.arcs.map((one) => {
    const key = `${one.arc.source}>${one.arc.target}`;
    const now = rates.get(key) ?? one.arc;
    const isLit = lit !== null && lit.has(now.source) && lit.has(now.target);
    const look = lit === null ? "" : isLit ? "lit" : "dim";
    return { key, placed: one, rate: Math.round(now.rate), watermark: moment(now.watermark_us), look };
  });
  return (
    <div class="canvas" ref={canvas}>
      <svg ref={layer} width={placed.width} height={placed.height} role="group" aria-label="Query graph">
        {arcs.map((one) => (
          <Arc key={one.key} placed={one.placed} rate={one.rate} look={one.look} />
        ))}
        {arcs.map((one) => (
          <ArcLabel {...one} />
        ))}
        {placed.nodes.map((one) => {
          const now = figures.get(one.node.id) ?? one.node;
          const waits = now.longest_wait_s > WAITING_S && now.rows_waiting > 0;
          return (
            <Node
              key={now.id}
              placed={one}
              load={Math.round(20 * load(now.cpu)) / 20}
              uses={now.cpu >= 0.005 ? percent(Math.round(100 * now.cpu) / 100) : ""}
              waits={waits}
              rate={rate(Math.round(now.rate))}
              hidden={hidden.get(now.id) ?? 0}
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
  look: string;
}

const Arc = memo(function Arc({ placed: { arc, path }, rate: rows, look }: ArcProps) {
  return (
    <g class={`arc ${arc.kind} ${look}`}>
      <path d={path} style={{ strokeWidth: `${thickness(rows)}px` }} />
    </g>
  );
});

interface ArcLabelProps extends ArcProps {
  watermark: string;
}

/** Labels lie above all arcs: another arc that crosses one would make it hard to read. */
const ArcLabel = memo(function ArcLabel({ placed: { arc, label }, rate: rows, watermark, look }: ArcLabelProps) {
  if (arc.kind !== "tuples" || look === "dim") return null;
  return (
    <g class="arc">
      <text x={label.x} y={label.y} text-anchor={label.anchor}>
        {[rows ? rate(rows) : "", watermark === "–" ? "" : watermark].filter(Boolean).join(" · ")}
        <title>{`${rate(rows)}, watermark ${watermark}`}</title>
      </text>
    </g>
  );
});

interface NodeProps {
  placed: PlacedNode;
  load: number;
  /** The part of a core that its unit uses, in words. */
  uses: string;
  waits: boolean;
  rate: string;
  hidden: number;
  look: string;
  onChoose: (id: string | null) => void;
}

const Node = memo(function Node({ placed, load: busy, uses, waits, rate: rows, hidden, look, onChoose }: NodeProps) {
  const { node, x, y } = placed;
  const choose = (): void => onChoose(node.id);
  const ends = node.role === "source" || node.role === "sink";
  const shared = node.queries > 1 ? `${node.queries}×` : "";
  return (
    <g
      class={`node ${node.role} ${waits ? "waiting" : ""} ${look}`}
      transform={`translate(${x.toFixed(1)},${y.toFixed(1)})`}
      tabIndex={0}
      role="button"
      onClick={choose}
      onKeyDown={(event) => event.key === "Enter" && choose()}
    >
      <rect class="box" width={NODE_WIDTH} height={NODE_HEIGHT} rx={ends ? 14 : 5} />
      <rect class="load" width={NODE_WIDTH} height={NODE_HEIGHT} rx={ends ? 14 : 5} style={{ opacity: busy * 0.85 }} />
      <text x={11} y={18}>
        {cut(ends ? node.label : node.title, shared ? LETTERS - shared.length - 1 : LETTERS)}
      </text>
      <text class="what" x={11} y={35}>
        {cut(ends ? rows : (node.facts[0] ?? ""), hidden ? LETTERS - 4 : LETTERS + 4 - (uses ? uses.length + 2 : 0))}
      </text>
      {shared && (
        <text class="shared" x={NODE_WIDTH - 9} y={18} text-anchor="end">
          {shared}
        </text>
      )}
      {uses && !hidden && (
        <text class="what" x={NODE_WIDTH - 9} y={35} text-anchor="end">
          {uses}
        </text>
      )}
      {hidden > 0 && (
        <text class="shared" x={NODE_WIDTH - 9} y={35} text-anchor="end">
          +{hidden} hidden
        </text>
      )}
      <title>{`${node.title}\n${node.label}\n${node.facts.join("\n")}`}</title>
    </g>
  );
});

const ARROWS: Record<string, [number, number]> = {
  ArrowLeft: [1, 0],
  ArrowRight: [-1, 0],
  ArrowUp: [0, 1],
  ArrowDown: [0, -1],
};

export function cut(text: string, letters: number): string {
  return text.length <= letters ? text : `${text.slice(0, letters - 1)}…`;
}
