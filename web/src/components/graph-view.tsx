// A graph as plain SVG. Panning and zooming move one layer, so they cost the same for any graph.
import { memo } from "preact/compat";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { GraphBody } from "../api/client";
import { moment, percent, rate, wholeSeconds } from "../format";
import { followHand, zoomed, type View } from "./graph-gestures";
import {
  busiest,
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
const EDGE = 14;
const NOTHING: Placed = { nodes: [], arcs: [], width: 1, height: 1 };

interface GraphViewProps {
  graph: GraphBody;
  /** By node that is collapsed, how many are hidden behind it. */
  hidden: ReadonlyMap<string, number>;
  chosen: string | null;
  onChoose: (id: string | null) => void;
}

export function GraphView({ graph: newest, hidden, chosen, onChoose }: GraphViewProps) {
  const held = useRef(false);
  // While it is moved by hand, figures wait: drawing them anew takes longer than a frame.
  const kept = useRef(newest);
  if (!held.current || shapeOf(kept.current) !== shapeOf(newest)) kept.current = newest;
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
  const view = useRef<View>({ x: 0, y: 0, scale: 1 });

  const show = (wanted: View): void => {
    const { x, y, scale } = (view.current = wanted);
    if (layer.current) layer.current.style.transform = `translate(${x}px, ${y}px) scale(${scale})`;
  };
  const zoom = (factor: number): void => {
    const { clientWidth, clientHeight } = canvas.current!;
    show(zoomed(view.current, factor, { x: clientWidth / 2, y: clientHeight / 2 }));
  };
  const fit = (): void => {
    const { clientWidth, clientHeight } = canvas.current!;
    const scale = Math.min(1.15, Math.max(0.42, Math.min(clientWidth / placed.width, clientHeight / placed.height)));
    show({
      scale,
      x: Math.max(0, (clientWidth - placed.width * scale) / 2),
      y: Math.max(0, (clientHeight - placed.height * scale) / 2),
    });
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
    show({
      scale,
      x: x + by(x + one.x * scale, NODE_WIDTH * scale, clientWidth),
      y: y + by(y + one.y * scale, NODE_HEIGHT * scale, clientHeight),
    });
  }, [chosen]);

  useEffect(
    () =>
      followHand(canvas.current!, {
        view: () => view.current,
        show,
        held: (now) => (held.current = now),
      }),
    [],
  );

  const arcs = placed.arcs.map((one) => {
    const key = `${one.arc.source}>${one.arc.target}`;
    const now = rates.get(key) ?? one.arc;
    const isLit = lit !== null && lit.has(now.source) && lit.has(now.target);
    const look = lit === null ? "" : isLit ? "lit" : "dim";
    return { key, placed: one, rate: Math.round(now.rate), watermark: moment(now.watermark_us), look };
  });
  const most = busiest(graph);
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
              load={Math.round(20 * load(now.cpu, most)) / 20}
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
        {[rows ? rate(rows) : "", watermark === "–" ? "" : wholeSeconds(watermark)].filter(Boolean).join(" · ")}
        <title>{`${rate(rows)}, watermark ${watermark}`}</title>
      </text>
    </g>
  );
});

interface NodeProps {
  placed: PlacedNode;
  load: number;
  /** The part of a core that its task uses, in words. */
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

export function cut(text: string, letters: number): string {
  return text.length <= letters ? text : `${text.slice(0, letters - 1)}…`;
}
