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
        Joins that meet on the same keys share one chain of slices. A slice is a stretch of age: the right end is the newest
        row. Below each chain stands how far back each query reaches; it is the state of the last checkpoint.
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
            The stronger its colour, the more rows a box holds. The strips in it are its masks: how many of its rows are for
            each query, in the colour of its name. Dashed lines are cuts; below, each query reaches as far back as its window does.
          </p>
          <div class="columns">
            <Subtasks chain={chain} />
            <div>
              <h3>Cuts as they moved</h3>
              {chain.moves.length ? (
                <CutsOverTime chain={chain} now={Date.now() / 1000} />
              ) : (
                <p class="soft small">None yet: a chain is cut once it is known how fast rows come.</p>
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
            {query ? `${query} has no slices to show.` : "No join has slices to show."} Only joins have slices; they are seen
            from a join's first checkpoint on, some seconds after it began.
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
      <h3>Subtasks over workers</h3>
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
    <Scroll label={`Cuts of ${chain.task}`}>
      <table class="small">
        <thead>
          <tr>
            <th>Part</th>
            <th class="number">Subtask</th>
            <th class="number">Rows/s</th>
            <th>Cut at</th>
            <th>Least memory</th>
            <th>Least work</th>
            <th class="number">Rows expected</th>
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
