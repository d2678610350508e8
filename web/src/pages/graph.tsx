// Graph: the shared plan as it runs, all of it or what one query needs.
import { useSignal } from "@preact/signals";
import { api, type GraphBody, type GraphNode } from "../api/client";
import { GraphView } from "../components/graph-view";
import { Empty, Problem } from "../components/small";
import { bytes, count, percent, rate, span } from "../format";
import { token } from "../state/connection";
import { usePolling } from "../state/polling";
import { go, hashOf, route } from "../state/router";

export function Graph() {
  const { name: focus, options } = route.value;
  const component = options.get("component") ?? "";
  const chosen = useSignal<string | null>(null);
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
  const picked = found?.nodes.find((node) => node.id === chosen.value) ?? null;
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
          <option value="auto">Fold what is large</option>
          <option value="nothing">All operators</option>
          <option value="tails">One node for each query</option>
          <option value="groups">Queries that share, together</option>
        </select>
      </div>
      <Problem text={graph.error.value ?? components.error.value} />
      <div class="card flush">
        {found && found.nodes.length > 0 ? (
          <GraphView graph={found} chosen={chosen.value} onChoose={(id) => (chosen.value = id === chosen.value ? null : id)} />
        ) : (
          <Empty>{components.data.value?.length === 0 ? "No query runs yet." : "…"}</Empty>
        )}
        <div class="legend">
          <span>
            <i style={{ borderColor: "var(--accent)" }} />
            stream
          </span>
          <span>
            <i style={{ borderColor: "var(--violet)" }} />
            keeps state
          </span>
          <span>
            <i style={{ borderColor: "var(--warn)", background: "var(--warn-soft)" }} />
            uses over 25 % of a core
          </span>
          <span>
            <i style={{ borderColor: "var(--bad)", background: "var(--bad-soft)" }} />
            rows wait over 1 s
          </span>
          <span>arcs: rows a second, ≥ watermark; click a node to light its way</span>
          {found && found.left_out > 0 && <span class="warn">{count(found.left_out)} nodes are left out; search a query</span>}
        </div>
      </div>
      {found && focus && <Costs found={found} />}
      {picked && <Details node={picked} />}
    </>
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
          const [first] = (await api.overview({ search: text.value, limit: 1, sort: "name" })).queries;
          if (first) go("graph", first.name);
        }}
      />
      <datalist id="graph-queries">
        {found.data.value?.queries.map((line) => <option value={line.name} />)}
      </datalist>
    </>
  );
}

function Costs({ found }: { found: GraphBody }) {
  const saved = found.alone_cpu > 0 ? 1 - found.shared_cpu / found.alone_cpu : 0;
  return (
    <div class="card">
      <h2>What it costs</h2>
      The units on its way use <b>{percent(found.alone_cpu)}</b> of a core, which it would pay alone. Shared out among the
      queries that use them, its part is <b>{percent(found.shared_cpu)}</b>
      {saved > 0.005 && <span class="good"> ({percent(saved)} less)</span>}.
    </div>
  );
}

function Details({ node }: { node: GraphNode }) {
  const names = node.role === "sink" ? (node.folded?.length ? node.folded : [node.id]) : [];
  return (
    <div class="card" aria-live="polite">
      <h2>
        {node.title} <span class="soft">{node.title === node.label ? "" : node.label}</span>
      </h2>
      <div class="row small" style={{ gap: "18px" }}>
        <span>{rate(node.rate)}</span>
        <span>{percent(node.cpu)} of a core</span>
        <span>
          {count(node.rows_waiting)} rows wait{node.rows_waiting ? `, the oldest for ${span(node.longest_wait_s)}` : ""}
        </span>
        <span>{bytes(node.state_bytes)} of state</span>
        <span>{count(node.queries)} queries need it</span>
        {node.unit && <span class="soft">unit: {node.unit}</span>}
      </div>
      <ul class="mono">
        {node.facts.map((fact) => (
          <li>{fact}</li>
        ))}
      </ul>
      <div class="row">
        {names.slice(0, 40).map((name) => (
          <>
            <a href={hashOf("query", name)}>{name}</a>
            <a class="small soft" href={hashOf("graph", name)}>
              its graph
            </a>
          </>
        ))}
        {names.length > 40 && <span class="soft">and {count(names.length - 40)} more: search them above</span>}
      </div>
    </div>
  );
}
