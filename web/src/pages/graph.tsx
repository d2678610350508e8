// Graph: the shared plan as it runs, all of it or what one query needs.
import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { api, type GraphBody, type GraphNode } from "../api/client";
import { busiest, collapse } from "../components/graph-layout";
import { GraphView } from "../components/graph-view";
import { Empty, Name, Problem, StartHere } from "../components/small";
import { bytes, count, percent, plural, rate, span } from "../format";
import { token } from "../state/connection";
import { usePolling } from "../state/polling";
import { go, hashOf, route } from "../state/router";

export function Graph() {
  const { name: focus, options } = route.value;
  const component = options.get("component") ?? "";
  const chosen = useSignal<string | null>(null);
  const collapsed = useSignal<ReadonlySet<string>>(new Set());
  const fold = useSignal("auto");
  const components = usePolling((stop) => api.components(stop), 10_000, token.value);
  const first = components.data.value?.[0];
  const shownComponent = component || (first ? String(first.index) : "");
  const wish: Record<string, string> = focus ? { query: focus } : shownComponent ? { component: shownComponent } : {};
  if (fold.value !== "auto") wish.fold = fold.value;
  const ready = focus !== "" || components.data.value !== null;
  const key = ready ? JSON.stringify([wish, token.value]) : "";
  const graph = usePolling<GraphBody | null>((stop) => (ready ? api.graph(wish, stop) : Promise.resolve(null)), 1000, key);
  const found = graph.data.value;
  const shown = useMemo(() => (found ? collapse(found, collapsed.value) : null), [found, collapsed.value]);
  const picked = shown?.graph.nodes.find((node) => node.id === chosen.value) ?? null;
  const toggle = (id: string): void => {
    const next = new Set(collapsed.value);
    if (!next.delete(id)) next.add(id);
    collapsed.value = next;
  };
  return (
    <>
      <div class="head">
        <h1>{focus ? `Graph of ${focus}` : "Graph"}</h1>
        {focus && <a href={hashOf("graph")}>show all</a>}
        <span class="space" />
        <FindQuery />
        {!focus && (components.data.value?.length ?? 0) > 1 && (
          <select
            aria-label="Part of the graph"
            value={shownComponent}
            onChange={(event) => go("graph", "", { component: event.currentTarget.value })}
          >
            {components.data.value?.map((one) => (
              <option value={one.index}>
                {one.streams.join(", ")} · {count(one.queries)} queries
              </option>
            ))}
          </select>
        )}
        <select aria-label="Folding" value={fold.value} onChange={(event) => (fold.value = event.currentTarget.value)}>
          <option value="auto">Fold large graphs</option>
          <option value="nothing">All operators</option>
          <option value="tails">One node for each query</option>
          <option value="groups">One node for queries with the same inputs</option>
        </select>
      </div>
      <Problem text={graph.error.value ?? components.error.value} />
      <div class={`card flush with-panel ${picked || focus ? "open" : ""}`}>
        {shown && shown.graph.nodes.length > 0 ? (
          <GraphView
            graph={shown.graph}
            hidden={shown.hidden}
            chosen={chosen.value}
            onChoose={(id) => (chosen.value = id === chosen.value ? null : id)}
          />
        ) : (
          <Empty>{components.data.value?.length === 0 ? <StartHere /> : "…"}</Empty>
        )}
        {found && (picked || focus) && (
          <aside aria-live="polite">
            {picked && (
              <Details
                node={picked}
                collapsed={collapsed.value.has(picked.id)}
                leads={found.arcs.some((arc) => arc.source === picked.id)}
                onCollapse={() => toggle(picked.id)}
                onClose={() => (chosen.value = null)}
              />
            )}
            {focus && (!picked || picked.role === "sink") ? <Costs found={found} /> : null}
            {!focus && picked?.role === "sink" && picked.queries === 1 && <CostsOf query={picked.folded?.[0] ?? picked.id} />}
          </aside>
        )}
        <Legend leftOut={found?.left_out ?? 0} most={shown ? busiest(shown.graph) : 1} />
      </div>
    </>
  );
}

function Legend({ leftOut, most }: { leftOut: number; most: number }) {
  return (
    <div class="legend">
      <span>
        <i style={{ borderColor: "var(--accent)" }} />
        stream
      </span>
      <span>
        <i style={{ borderColor: "var(--violet)" }} />
        stateful operator
      </span>
      <span>
        0 <i class="ramp" />
        <b>{percent(Math.round(100 * most) / 100)}</b> of a core: load of its task
      </span>
      <span>
        <i style={{ borderColor: "var(--bad)", background: "var(--bad-soft)" }} />
        rows pending for over 1 s
      </span>
      <span>
        <b class="accent">3×</b> number of queries that share it
      </span>
      <span>arcs: rows per second · watermark</span>
      {leftOut > 0 && <span class="warn">{count(leftOut)} nodes are not shown; search for a query</span>}
    </div>
  );
}

function FindQuery() {
  const text = useSignal("");
  const found = usePolling(
    (stop) => (text.value ? api.overview({ search: text.value, limit: 8, sort: "name" }, stop) : Promise.resolve(null)),
    0,
    text.value,
  );
  return (
    <>
      <input
        type="search"
        list="graph-queries"
        placeholder="Find a query  ( / )"
        aria-label="Find a query"
        value={text.value}
        onInput={(event) => {
          text.value = event.currentTarget.value;
          if (found.data.value?.queries.some((line) => line.name === text.value)) go("graph", text.value);
        }}
        onKeyDown={async (event) => {
          if (event.key !== "Enter" || !text.value) return;
          const found = await api.overview({ search: text.value, limit: 1, sort: "name" }).catch(() => null);
          const first = found?.queries[0];
          if (first) go("graph", first.name);
        }}
      />
      <datalist id="graph-queries">
        {found.data.value?.queries.map((line) => <option value={line.name} />)}
      </datalist>
    </>
  );
}

function CostsOf({ query }: { query: string }) {
  const { data } = usePolling((stop) => api.graph({ query }, stop), 5000, query + token.value);
  return data.value && <Costs found={data.value} />;
}

/** The cores of a query alone against its part of what is shared. */
function Costs({ found }: { found: GraphBody }) {
  const { alone_cpu: alone, shared_cpu: shared } = found;
  const saved = alone > 0 ? 1 - shared / alone : 0;
  return (
    <div class="costs">
      <h2>CPU cost</h2>
      <CostBar what="alone" share={1} text={`${percent(alone)} of a core`} />
      <CostBar what="shared" share={alone > 0 ? shared / alone : 0} text={`${percent(shared)} of a core`} />
      <p class="small soft">
        Alone, the query would need all CPU time of its tasks. This time is divided among the queries that share the tasks
        {saved > 0.005 ? `, which saves ${percent(saved)}` : "; no other query shares them"}.
      </p>
    </div>
  );
}

function CostBar({ what, share, text }: { what: string; share: number; text: string }) {
  return (
    <div class="cost small">
      <span>{what}</span>
      <span class="bar" aria-hidden="true">
        <i style={{ width: `${100 * share}%` }} />
      </span>
      <b>{text}</b>
    </div>
  );
}

interface DetailsProps {
  node: GraphNode;
  collapsed: boolean;
  leads: boolean;
  onCollapse: () => void;
  onClose: () => void;
}

function Details({ node, collapsed, leads, onCollapse, onClose }: DetailsProps) {
  const names = node.role === "sink" ? (node.folded?.length ? node.folded : [node.id]) : [];
  return (
    <div>
      <div class="row">
        <h2>{node.title}</h2>
        <span class="space" />
        <button type="button" class="quiet" aria-label="Close" onClick={onClose}>
          ✕
        </button>
      </div>
      {node.title !== node.label && <div class="soft small wrap">{node.label}</div>}
      <dl class="facts small">
        <dt>Rows</dt>
        <dd>{rate(node.rate)}</dd>
        <dt>Its task uses</dt>
        <dd>{percent(node.cpu)} of a core</dd>
        <dt>Pending</dt>
        <dd>
          {count(node.rows_waiting)} rows{node.rows_waiting ? `, the oldest ${span(node.longest_wait_s)}` : ""}
        </dd>
        <dt>State</dt>
        <dd>{bytes(node.state_bytes)}</dd>
        <dt>Used by</dt>
        <dd>{plural(node.queries, "query", "queries")}</dd>
        {node.task && (
          <>
            <dt>Task</dt>
            <dd class="wrap">{node.task}</dd>
          </>
        )}
      </dl>
      <ul class="mono plain">
        {node.facts.map((fact) => (
          <li>{fact}</li>
        ))}
      </ul>
      {leads && (
        <button type="button" onClick={onCollapse}>
          {collapsed ? "Expand" : "Collapse downstream nodes"}
        </button>
      )}
      <div class="stack" style={{ gap: "2px" }}>
        {names.slice(0, 30).map((name) => (
          <div>
            <a href={hashOf("query", name)}>
              <Name of={name} />
            </a>{" "}
            <a class="small soft" href={hashOf("graph", name)}>
              its graph
            </a>
          </div>
        ))}
        {names.length > 30 && <span class="soft">and {count(names.length - 30)} more; use the search above</span>}
      </div>
    </div>
  );
}
