// Query: how one query does and did, its results, its text and what it was before.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, type QueryLine } from "../api/client";
import { LifeButtons, LifeNotice } from "../components/life";
import { LiveResults } from "../components/live-results";
import { QueryHistory } from "../components/query-history";
import { Cause, Empty, Figure, Name, Problem, Scroll, StartHere, State } from "../components/small";
import { Versions } from "../components/versions";
import { bytes, count, level, milliseconds, percent, rate, span, times } from "../format";
import { token } from "../state/connection";
import { usePolling } from "../state/polling";
import { go, hashOf, route } from "../state/router";
import { alertTemplate, quoted } from "../state/statements";

export function Query() {
  const { name } = route.value;
  const leaving = useSignal("");
  if (!name) return <ChooseQuery />;
  // Of what is being dropped nothing is asked any more.
  if (leaving.value === name) return <Leaving name={name} onStay={() => (leaving.value = "")} />;
  return <OneQuery name={name} key={name} onDrop={() => (leaving.value = name)} />;
}

function ChooseQuery() {
  const search = useSignal("");
  const { data, error } = usePolling(
    (stop) => api.overview({ search: search.value, sort: "name", limit: 100 }, stop),
    5000,
    search.value + token.value,
  );
  return (
    <>
      <div class="head">
        <h1>Queries</h1>
        <span class="space" />
        <input
          type="search"
          aria-label="Search queries"
          placeholder="Search queries  ( / )"
          value={search.value}
          onInput={(event) => (search.value = event.currentTarget.value)}
        />
      </div>
      <Problem text={error.value} />
      <div class="card">
        {data.value?.queries.length === 0 && <Empty>{search.value ? "No query matches." : <StartHere />}</Empty>}
        <div class="row" style={{ gap: "8px 22px" }}>
          {data.value?.queries.map((line) => (
            <a href={hashOf("query", line.name)}>{line.name}</a>
          ))}
        </div>
        {data.value && data.value.matching > 100 && <p class="soft">and {count(data.value.matching - 100)} more: search</p>}
      </div>
    </>
  );
}

const TABS = { now: "Results and charts", plan: "Plan", statement: "Statement and versions" } as const;
type Tab = keyof typeof TABS;

function OneQuery({ name, onDrop }: { name: string; onDrop: () => void }) {
  const line = usePolling((stop) => api.line(name, stop), 1000, name + token.value);
  const tab = (route.value.options.get("tab") ?? "now") as Tab;
  const now = line.data.value;
  return (
    <>
      <div class="head">
        <h1>
          <Name of={name} />
        </h1>
        {now && <State of={now.state} />}
        {now?.level && <span class={`badge ${now.level_met === false ? "bad" : now.level_met ? "good" : ""}`}>{level(now.level)}</span>}
        {now?.budget && <span class="badge">budget: {now.budget}</span>}
        <span class="space" />
        {now && (
          <>
            <LifeButtons name={name} state={now.state} onDone={line.again} />
            <a class="button" href={hashOf("graph", name)}>
              Graph
            </a>
            <a class="button" href={hashOf("slices", name)}>
              Slices
            </a>
            <a class="button" href={hashOf("editor", "", { write: alertTemplate(name) })}>
              Alert
            </a>
            <a class="button" href={hashOf("editor", "", { replace: name })}>
              Replace
            </a>
            <Drop name={name} onDrop={onDrop} />
          </>
        )}
      </div>
      <Problem text={line.error.value} />
      {now && now.state !== "running" && <LifeNotice name={name} state={now.state} />}
      {now && (
        <>
          {/* Why it does not run is told above. */}
          {now.state !== "restarting" && now.state !== "failed" && (
            <div class={`card slim ${now.cause?.attention === 3 ? "bad" : ""}`}>
              <div class="cause row">
                <Cause line={now} />
              </div>
            </div>
          )}
          <Figures now={now} />
        </>
      )}
      {now && <About name={name} tab={tab} />}
    </>
  );
}

function About({ name, tab }: { name: string; tab: Tab }) {
  return (
    <>
      <div class="tabs" role="tablist" aria-label={`About ${name}`}>
        {(Object.keys(TABS) as Tab[]).map((one) => (
          <button type="button" role="tab" aria-selected={one === tab} onClick={() => go("query", name, one === "now" ? {} : { tab: one })}>
            {TABS[one]}
          </button>
        ))}
      </div>
      {tab === "now" && <Now name={name} />}
      {tab === "plan" && <Plan name={name} />}
      {tab === "statement" && <Statement name={name} />}
    </>
  );
}

function Figures({ now }: { now: QueryLine }) {
  return (
    <div class="figures">
      <Figure what="Results">{count(now.rows)}</Figure>
      <Figure what="Rate">{rate(now.rate)}</Figure>
      <Figure what="p50 / p99">
        {milliseconds(now.p50_ms)} <span class="soft small">/ {milliseconds(now.p99_ms)}</span>
      </Figure>
      <Figure what="Slowdown">{times(now.slowdown)}</Figure>
      <Figure what="Lag">{now.lag_s === null ? "–" : span(now.lag_s)}</Figure>
      <Figure what="Pending rows">{count(now.rows_waiting)}</Figure>
      <Figure what="CPU share">
        {percent(now.cpu)} {now.shared_by > 1 && <span class="soft small">shared by {now.shared_by}</span>}
      </Figure>
      <Figure what="State">{bytes(now.state_bytes)}</Figure>
    </div>
  );
}

function Now({ name }: { name: string }) {
  const history = usePolling((stop) => api.history(name, stop), 5000, name + token.value);
  return (
    <>
      <LiveResults query={name} />
      {history.data.value && <QueryHistory found={history.data.value} />}
    </>
  );
}

function Plan({ name }: { name: string }) {
  const plan = usePolling((stop) => api.explain(name, stop), 10_000, name + token.value);
  return (
    <section class="card">
      <h2>
        Execution plan <a href={hashOf("graph", name)}>live graph</a>
      </h2>
      <Problem text={plan.error.value} />
      <Scroll label="Plan">
        <pre class="wide">{plan.data.value}</pre>
      </Scroll>
    </section>
  );
}

function Statement({ name }: { name: string }) {
  const versions = usePolling((stop) => api.versions(name, stop), 10_000, name + token.value);
  return <Versions found={versions.data.value ?? []} />;
}

function Drop({ name, onDrop }: { name: string; onDrop: () => void }) {
  const asked = useSignal(false);
  return asked.value ? (
    <>
      <span class="small">Its results are deleted, too.</span>
      <button type="button" class="danger" onClick={onDrop}>
        Drop {name}
      </button>
      <button type="button" onClick={() => (asked.value = false)}>
        Cancel
      </button>
    </>
  ) : (
    <button type="button" onClick={() => (asked.value = true)}>
      Drop
    </button>
  );
}

function Leaving({ name, onStay }: { name: string; onStay: () => void }) {
  const problem = useSignal<string | null>(null);
  useEffect(() => {
    api.run(`DROP QUERY ${quoted(name)}`).then(
      () => go("overview"),
      (error: Error) => (problem.value = error.message),
    );
  }, [name]);
  return (
    <>
      <div class="head">
        <h1>{name}</h1>
      </div>
      <Problem text={problem.value} />
      {problem.value ? (
        <button type="button" onClick={onStay}>
          Back to {name}
        </button>
      ) : (
        <p class="soft">The query is being dropped …</p>
      )}
    </>
  );
}
