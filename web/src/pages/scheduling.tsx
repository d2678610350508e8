// Scheduling: which policy decides, what changed with it, who goes next and why, and what a load would do.
import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { api, type MillHistory, type PlanAnswer, type Policies } from "../api/client";
import { Chart } from "../components/chart";
import { Empty, Problem, Scroll, StartHere } from "../components/small";
import { clock, count, microseconds, milliseconds, percent, span, times } from "../format";
import { byPolicy } from "../state/before-after";
import { token } from "../state/connection";
import { usePolling } from "../state/polling";
import { hashOf } from "../state/router";

export function Scheduling() {
  const policies = usePolling((stop) => api.policies(stop), 2000, token.value);
  const history = usePolling((stop) => api.millHistory(stop), 5000, token.value);
  const found = policies.data.value;
  return (
    <>
      <div class="head">
        <h1>Scheduling</h1>
      </div>
      <Problem text={policies.error.value} />
      {found && <Switch found={found} onSwitched={() => (policies.again(), history.again())} />}
      {history.data.value && <BeforeAfter found={history.data.value} />}
      {found && <Priorities found={found} />}
      {found && <Planner found={found} />}
    </>
  );
}

function Switch({ found, onSwitched }: { found: Policies; onSwitched: () => void }) {
  const problem = useSignal<string | null>(null);
  const chosen = useSignal("");
  const wanted = chosen.value || found.policy;
  const set = async (): Promise<void> => {
    problem.value = null;
    try {
      await api.run(`SET policy = '${wanted}'`);
      chosen.value = "";
      onSwitched();
    } catch (error) {
      problem.value = (error as Error).message;
    }
  };
  return (
    <section class="card">
      <div class="row">
        <h2 style={{ margin: 0 }}>
          Policy <span class="badge good">{found.policy}</span>
        </h2>
        <select aria-label="Policy" value={wanted} onChange={(event) => (chosen.value = event.currentTarget.value)}>
          {!found.policies.some((one) => one.name === found.policy) && <option value={found.policy}>{found.policy}</option>}
          {found.policies.map((one) => (
            <option value={one.name}>
              {one.name} – {one.aim}
            </option>
          ))}
        </select>
        <button type="button" class="main" disabled={wanted === found.policy} onClick={set}>
          Switch
        </button>
        <span class="soft small">
          {aimOf(found, wanted)}. A change of the policy affects no results.
        </span>
      </div>
      {Object.entries(found.components).map(([name, policy]) => (
        <p class="small">
          Queries connected with <b>{name}</b> have their own policy: {policy}
        </p>
      ))}
      <Problem text={problem.value} />
    </section>
  );
}

/** Who goes first by a policy, and what for; its parameters, in brackets, do not change that. */
function aimOf(found: Policies, policy: string): string {
  const known = found.policies.find((one) => one.name === policy.replace(/\(.*/, ""));
  return known ? `${policy}: ${known.rule}; it minimises: ${known.aim}` : policy;
}

function BeforeAfter({ found }: { found: MillHistory }) {
  const { at = [], response_ms = [], slowdown = [], rows_waiting = [] } = found.columns;
  const marks = useMemo(() => found.policies.slice(1).map((one) => ({ at: one.at_s, text: one.policy })), [found]);
  const lines = useMemo(
    () => ({
      response: [{ name: "mean", values: response_ms, colour: "accent" as const }],
      slowdown: [{ name: "mean", values: slowdown, colour: "violet" as const }],
      waiting: [{ name: "rows", values: rows_waiting, colour: "warn" as const }],
    }),
    [found],
  );
  const responses = byPolicy(at, response_ms, found.policies);
  const slowdowns = byPolicy(at, slowdown, found.policies);
  const waiting = byPolicy(at, rows_waiting, found.policies);
  return (
    <section class="card">
      <h2>Before and after</h2>
      {at.length < 2 ? (
        <Empty>Charts appear after the second sample.</Empty>
      ) : (
        <div class="charts">
          <Chart title="Mean response time" at={at} lines={lines.response} shown={milliseconds} marks={marks} />
          <Chart title="Mean slowdown" at={at} lines={lines.slowdown} shown={times} marks={marks} />
          <Chart title="Pending rows" at={at} lines={lines.waiting} shown={count} marks={marks} />
        </div>
      )}
      <Scroll label="Before and after">
        <table>
          <thead>
            <tr>
              <th>Policy</th>
              <th class="number">Since</th>
              <th class="number">Response</th>
              <th class="number">Slowdown</th>
              <th class="number">Pending rows</th>
            </tr>
          </thead>
          <tbody>
            {responses.map((one, place) => (
              <tr>
                <td class="name">{one.policy}</td>
                <td class="number">{clock(one.from)}</td>
                <td class="number">{milliseconds(one.mean)}</td>
                <td class="number">{times(slowdowns[place]!.mean)}</td>
                <td class="number">{count(waiting[place]!.mean)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </section>
  );
}

function Priorities({ found }: { found: Policies }) {
  return (
    <section class="card flush">
      <h2>
        Order of tasks, with reasons{" "}
        <span class="soft small">
          {aimOf(found, found.policy)}
        </span>
      </h2>
      <Scroll label="Priorities" high="440px">
        <table>
          <thead>
            <tr>
              <th class="number">Place</th>
              <th>Task and queries</th>
              <th class="number">Priority</th>
              <th>Why</th>
              <th class="number">Cost per run</th>
              <th class="number">Cost per row</th>
              <th class="number">Results/row</th>
              <th class="number">CPU</th>
            </tr>
          </thead>
          <tbody>
            {found.tasks.slice(0, 100).map((task) => (
              <tr key={task.task}>
                <td class="number">{task.place ?? "–"}</td>
                <td class="name">
                  {task.task}
                  <div class="small soft">
                    {task.queries.slice(0, 4).map((name) => (
                      <>
                        <a href={hashOf("query", name)}>{name}</a>{" "}
                      </>
                    ))}
                    {task.queries.length > 4 && `and ${task.queries.length - 4} more`}
                  </div>
                </td>
                <td class="number">{task.priority === null ? "–" : count(Number(task.priority.toPrecision(3)))}</td>
                <td class="small">{task.why}</td>
                <td class="number">{milliseconds(task.overhead_ms)}</td>
                <td class="number">{microseconds(task.row_us)}</td>
                <td class="number">{count(Number(task.per_row.toPrecision(2)))}</td>
                <td class="number">{percent(task.cpu)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      {found.tasks.length === 0 && (
        <Empty>
          <StartHere />
        </Empty>
      )}
      {found.tasks.length > 100 && <div class="legend">first 100 of {count(found.tasks.length)}</div>}
    </section>
  );
}

function Planner({ found }: { found: Policies }) {
  const overview = usePolling((stop) => api.overview({ limit: 1 }, stop), 0, token.value);
  const rates = useSignal<Record<string, string>>({});
  const other = useSignal("hnr");
  const cores = useSignal("2");
  const fresh = useSignal("");
  const answer = useSignal<PlanAnswer | null>(null);
  const problem = useSignal<string | null>(null);
  const asking = useSignal(false);
  const streams = overview.data.value?.streams ?? [];
  const shown = (name: string, now: number): string => rates.value[name] ?? String(Math.round(now) || 100);
  const plan = async (event: Event): Promise<void> => {
    event.preventDefault();
    asking.value = true;
    problem.value = null;
    try {
      const wanted = Object.fromEntries(streams.map((stream) => [stream.name, Number(shown(stream.name, stream.rate))]));
      const policies = [...new Set([found.policy, other.value])];
      answer.value = await api.simulate({ rates: wanted, policies, cores: Number(cores.value), seconds: 30, text: fresh.value });
    } catch (error) {
      answer.value = null;
      problem.value = (error as Error).message;
    }
    asking.value = false;
  };
  return (
    <section class="card">
      <h2>Simulate another load, policy or query</h2>
      <p class="soft small">
        The scheduler is simulated for half a minute of virtual time, with the costs that this server has measured. The costs
        of a new query are first measured over recent rows. Running queries are not affected.
      </p>
      <form class="row ends" onSubmit={plan}>
        {streams.slice(0, 8).map((stream) => (
          <label class="field">
            {stream.name}, rows/s
            <input
              type="number"
              min="0"
              style={{ width: "110px" }}
              value={shown(stream.name, stream.rate)}
              onInput={(event) => (rates.value = { ...rates.value, [stream.name]: event.currentTarget.value })}
            />
          </label>
        ))}
        <label class="field">
          Cores
          <input type="number" min="1" max="256" style={{ width: "70px" }} value={cores.value} onInput={(event) => (cores.value = event.currentTarget.value)} />
        </label>
        <label class="field">
          Compare {found.policy} with
          <select value={other.value} onChange={(event) => (other.value = event.currentTarget.value)}>
            {found.policies.map((one) => (
              <option value={one.name}>{one.name}</option>
            ))}
          </select>
        </label>
        <label class="field whole">
          A new query (optional)
          <textarea
            rows={2}
            placeholder="CREATE QUERY name AS SELECT …"
            value={fresh.value}
            onInput={(event) => (fresh.value = event.currentTarget.value)}
          />
        </label>
        <button class="main" disabled={asking.value}>
          {asking.value ? "Simulating …" : "Simulate"}
        </button>
      </form>
      <Problem text={problem.value} />
      {answer.value && <Outcome answer={answer.value} />}
    </section>
  );
}

interface OutcomeFigures {
  policy: string;
  response_s: { mean: number | null; max: number | null };
  slowdown: { mean: number | null; max: number | null };
  staleness: number | null;
  mean_rows_waiting: number | null;
  behind_s: number | null;
}

function Outcome({ answer }: { answer: PlanAnswer }) {
  const outcomes = answer.outcomes as unknown as OutcomeFigures[];
  const ms = (seconds: number | null): string => milliseconds(seconds === null ? null : seconds * 1000);
  return (
    <div aria-live="polite">
      {answer.verdict.map((line) => (
        <p>{line}</p>
      ))}
      <Scroll label="Simulated results">
        <table>
          <thead>
            <tr>
              <th>Policy</th>
              <th class="number">Mean response</th>
              <th class="number">Longest response</th>
              <th class="number">Mean slowdown</th>
              <th class="number">Stale</th>
              <th class="number">Pending rows</th>
              <th class="number">Behind at the end</th>
            </tr>
          </thead>
          <tbody>
            {outcomes.map((one) => (
              <tr>
                <td class="name">{one.policy}</td>
                <td class="number">{ms(one.response_s.mean)}</td>
                <td class="number">{ms(one.response_s.max)}</td>
                <td class="number">{times(one.slowdown.mean)}</td>
                <td class="number">{percent(one.staleness)}</td>
                <td class="number">{count(one.mean_rows_waiting)}</td>
                <td class="number">{one.behind_s === null ? "–" : span(one.behind_s)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </div>
  );
}
