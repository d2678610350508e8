// Slices: what joins keep, by age, and who needs it.
import { api, type SliceChain } from "../api/client";
import { subtasksOverWorkers, ChainPicture, CutsOverTime } from "../components/slice-chain";
import { Empty, Problem, Scroll } from "../components/small";
import { bytes, count, plural, span } from "../format";
import { token } from "../state/connection";
import { usePolling } from "../state/polling";
import { go, hashOf, route } from "../state/router";

export function Slices() {
  const { name } = route.value;
  const chains = usePolling((stop) => api.chains(stop), 10_000, token.value);
  const queries = [...new Set(chains.data.value?.flatMap((chain) => chain.queries) ?? [])].sort();
  const query = name || queries[0] || "";
  const slices = usePolling<SliceChain[] | null>(
    (stop) => (query ? api.slices(query, stop) : Promise.resolve(null)),
    3000,
    query + token.value,
  );
  return (
    <>
      <div class="head">
        <h1>Slices</h1>
        <span class="space" />
        <select aria-label="Query" value={query} onChange={(event) => go("slices", event.currentTarget.value)}>
          {name && !queries.includes(name) && <option value={name}>{name}</option>}
          {queries.map((one) => (
            <option value={one}>{one}</option>
          ))}
        </select>
      </div>
      <p class="soft">
        Joins with the same keys share state slices. A slice holds the rows between two ages; the newest rows are on the right.
        The lines below the slices show the window of each query. The page shows the state of the last checkpoint.
      </p>
      <Problem text={slices.error.value ?? chains.error.value} />
      {slices.data.value?.map((chain) => (
        <section class="card stack">
          <h2>
            {chain.task}{" "}
            <span class="soft small">
              {count(sum(chain, "rows"))} rows · {bytes(sum(chain, "bytes"))} · {plural(chain.subtasks, "subtask")} · {plural(chain.queries.length, "query", "queries")}
            </span>
          </h2>
          <ChainPicture chain={chain} />
          <p class="soft small">
            A stronger colour means more rows in a slice. The strips inside show how many of its rows each query needs, in the
            colour of the query's name. Dashed lines are slice borders. The lines below show the window of each query.
          </p>
          <div class="columns">
            <Subtasks chain={chain} />
            <div>
              <h3>Slice borders over time</h3>
              {chain.moves.length ? (
                <CutsOverTime chain={chain} now={Date.now() / 1000} />
              ) : (
                <p class="soft small">No borders yet: the state is divided once the rates of its streams have been measured.</p>
              )}
            </div>
          </div>
          <Cuts chain={chain} />
          <div class="row small">
            {chain.queries.slice(0, 30).map((one) => (
              <a href={hashOf("query", one)}>{one}</a>
            ))}
          </div>
        </section>
      ))}
      {(slices.data.value?.length === 0 || (!query && chains.data.value)) && (
        <div class="card">
          <Empty>
            {query ? `${query} has no state slices.` : "No join has state slices."} Only joins have slices. They appear after the
            first checkpoint of a join, some seconds after its start.
          </Empty>
        </div>
      )}
    </>
  );
}

function sum(chain: SliceChain, what: "rows" | "bytes"): number {
  return chain.slices.reduce((total, slice) => total + slice[what], 0);
}

function Subtasks({ chain }: { chain: SliceChain }) {
  const workers = subtasksOverWorkers(chain);
  const most = Math.max(1, ...workers.flatMap((one) => one.subtasks.map((subtask) => subtask.rows)));
  return (
    <div>
      <h3>Subtasks per worker</h3>
      {workers.map(({ worker, subtasks }) => (
        <div class="row small cells">
          <span class="soft">worker {worker}</span>
          {subtasks.map((subtask) => (
            <span class="cell" style={{ background: `color-mix(in srgb, var(--accent) ${10 + (35 * subtask.rows) / most}%, transparent)` }}>
              {subtask.subtask}: {count(subtask.rows)} rows · {bytes(subtask.bytes)}
            </span>
          ))}
        </div>
      ))}
    </div>
  );
}

function Cuts({ chain }: { chain: SliceChain }) {
  if (!chain.cuts.length) return null;
  const ends = (values: number[]): string => values.map(span).join(", ") || "–";
  return (
    <Scroll label={`Slice borders of ${chain.task}`}>
      <table class="small">
        <thead>
          <tr>
            <th>Part</th>
            <th class="number">Subtask</th>
            <th class="number">Rows/s</th>
            <th>Borders</th>
            <th>Borders for least memory</th>
            <th>Borders for least work</th>
            <th class="number">Expected rows</th>
          </tr>
        </thead>
        <tbody>
          {chain.cuts.map((cut) => (
            <tr>
              <td>{cut.part}</td>
              <td class="number">{cut.subtask}</td>
              <td class="number">{count(Math.round(cut.rate))}</td>
              <td>{ends(cut.used)}</td>
              <td>{ends(cut.finest)}</td>
              <td>{ends(cut.cheapest)}</td>
              <td class="number">{count(Math.round(cut.expected_rows))}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}
