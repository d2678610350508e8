// Overview: what needs attention and why, streams, workers, events.
import { useSignal } from "@preact/signals";
import { api, type Overview as Data, type QueryLine } from "../api/client";
import { FiringAlerts } from "../components/alerts";
import { Bar, Cause, Empty, Figure, Name, Problem, Scroll, State } from "../components/small";
import { bytes, clock, count, level, milliseconds, moment, percent, plural, rate, span, times } from "../format";
import { token } from "../state/connection";
import { usePolling } from "../state/polling";
import { go, hashOf } from "../state/router";

const PAGE = 50;
const COLUMNS = [
  { sort: "name", title: "Query", number: false },
  { sort: "attention", title: "Status and cause", number: false },
  { sort: "rate", title: "Rows", number: true },
  { sort: "p99", title: "p99", number: true },
  { sort: "slowdown", title: "Slowdown", number: true },
  { sort: "lag", title: "Lag", number: true },
  { sort: "waiting", title: "Waiting", number: true },
  { sort: "cpu", title: "CPU", number: true },
  { sort: "state", title: "State", number: true },
  { sort: "shed", title: "Dropped", number: true },
] as const;

export function Overview() {
  const search = useSignal("");
  const sort = useSignal("attention");
  const offset = useSignal(0);
  const wish = { search: search.value, sort: sort.value, offset: offset.value, limit: PAGE };
  const { data, error } = usePolling((stop) => api.overview(wish, stop), 1000, JSON.stringify([wish, token.value]));
  const found = data.value;
  const find = (text: string): void => {
    search.value = text;
    offset.value = 0;
  };
  return (
    <>
      <div class="head">
        <h1>Overview</h1>
        <span class="space" />
        <input
          type="search"
          placeholder="Search queries  ( / )"
          aria-label="Search queries"
          value={search.value}
          onInput={(event) => find(event.currentTarget.value)}
        />
        <a class="button" href={hashOf("editor")}>
          New query
        </a>
      </div>
      <Problem text={error.value} />
      {found === null ? <p class="soft">…</p> : found.total === 0 && found.streams.length === 0 ? <Welcome /> : null}
      {found?.problems.map((problem) => <div class="notice">{problem}</div>)}
      {found && found.total + found.streams.length > 0 && (
        <>
          <FiringAlerts />
          <Totals found={found} />
          <section class="card flush">
            <Queries found={found} sort={sort.value} onSort={(wanted) => (sort.value = wanted)} />
            <Pager found={found} offset={offset.value} onMove={(wanted) => (offset.value = wanted)} />
          </section>
          <div class="wide-left">
            <Streams found={found} />
            <div class="stack">
              <Workers found={found} />
              <Events found={found} />
            </div>
          </div>
        </>
      )}
    </>
  );
}

function Welcome() {
  return (
    <div class="card">
      <h2>Nothing is declared yet</h2>
      <p>
        Declare a stream and a first query in the <a href={hashOf("editor")}>editor</a>, which has examples. Running queries
        appear here.
      </p>
    </div>
  );
}

function Totals({ found }: { found: Data }) {
  const troubled = found.needing_attention;
  return (
    <div class="figures">
      <Figure what="Need attention" tone={troubled ? "bad" : "good"}>
        {count(troubled)} <span class="soft small">of {count(found.total)}</span>
      </Figure>
      <Figure what="Rows in">{rate(found.rate_in)}</Figure>
      <Figure what="Results out">{rate(found.rate_out)}</Figure>
      <Figure what="Cores used">{count(Number(found.cpu.toFixed(2)))}</Figure>
      <Figure what="Pending rows">{count(found.rows_waiting)}</Figure>
      <Figure what="State">{bytes(found.state_bytes)}</Figure>
      <Figure what="Policy">{found.policy}</Figure>
    </div>
  );
}

function Queries({ found, sort, onSort }: { found: Data; sort: string; onSort: (sort: string) => void }) {
  return (
    <Scroll label="Queries">
      <table>
        <thead>
          <tr>
            {COLUMNS.map((column) => (
              <th
                class={column.number ? "number" : ""}
                aria-sort={column.sort === sort ? (column.number ? "descending" : "ascending") : undefined}
              >
                <button type="button" onClick={() => onSort(column.sort)}>
                  {column.title}
                </button>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {found.queries.map((line) => (
            <Line line={line} key={line.name} />
          ))}
        </tbody>
      </table>
      {found.queries.length === 0 && <Empty>No query matches.</Empty>}
    </Scroll>
  );
}

function Line({ line }: { line: QueryLine }) {
  const tone = line.level_met === false ? "bad" : line.level_met ? "good" : "";
  return (
    <tr class="link" onClick={() => go("query", line.name)}>
      <td class="name">
        <a href={hashOf("query", line.name)}>
          <Name of={line.name} />
        </a>{" "}
        {line.state !== "running" && <State of={line.state} />}
      </td>
      <td class="cause">
        <Cause line={line} />
      </td>
      <td class="number">{rate(line.rate)}</td>
      <td class={`number ${tone}`} title={line.level ?? ""}>
        {milliseconds(line.p99_ms)}
        {line.level && <div class="small soft">{level(line.level)}</div>}
      </td>
      <td class="number">{times(line.slowdown)}</td>
      <td class="number">{line.lag_s === null ? "–" : span(line.lag_s)}</td>
      <td class="number">{count(line.rows_waiting)}</td>
      <td class="number" title={`its task uses ${percent(line.task_cpu)} of a core, shared by ${line.shared_by}`}>
        {percent(line.cpu)}
      </td>
      <td class="number">{bytes(line.state_bytes)}</td>
      <td class="number" title={line.budget ?? ""}>
        {line.shed_share === null ? "–" : percent(line.shed_share)}
      </td>
    </tr>
  );
}

function Pager({ found, offset, onMove }: { found: Data; offset: number; onMove: (offset: number) => void }) {
  if (found.matching <= PAGE) return null;
  const end = Math.min(found.matching, offset + PAGE);
  return (
    <div class="legend row">
      <span>
        {offset + 1}–{end} of {count(found.matching)}
      </span>
      <button type="button" disabled={offset === 0} onClick={() => onMove(Math.max(0, offset - PAGE))}>
        Previous
      </button>
      <button type="button" disabled={end >= found.matching} onClick={() => onMove(offset + PAGE)}>
        Next
      </button>
    </div>
  );
}

function Streams({ found }: { found: Data }) {
  return (
    <section class="card flush">
      <h2>Streams</h2>
      <Scroll label="Streams">
        <table>
          <thead>
            <tr>
              <th>Stream</th>
              <th class="number">Rows in</th>
              <th class="number">Read</th>
              <th class="number">Watermark</th>
              <th class="number">Late</th>
              <th class="number">Unreadable</th>
            </tr>
          </thead>
          <tbody>
            {found.streams.map((stream) => (
              <tr key={stream.name}>
                <td class="name">
                  {stream.name}
                  {stream.error && <div class="bad small">{stream.error}</div>}
                </td>
                <td class="number">{rate(stream.rate)}</td>
                <td class="number">{count(stream.read)}</td>
                <td class="number">{stream.ended ? "ended" : moment(stream.watermark_us)}</td>
                <td class="number">{lost(stream.name, stream.late, "late")}</td>
                <td class="number">{lost(stream.name, stream.bad, "errors")}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </section>
  );
}

function lost(stream: string, rows: number, kind: "late" | "errors") {
  return rows ? <a href={hashOf("errors", stream, { kind })}>{count(rows)}</a> : "0";
}

function Workers({ found }: { found: Data }) {
  return (
    <section class="card">
      <h2>Workers</h2>
      {found.workers.length === 0 && <span class="soft">No worker has run a task yet.</span>}
      <div class="stack" style={{ gap: "8px" }}>
        {found.workers.map((worker) => (
          <div key={worker.worker}>
            <div class="row small">
              <b>worker {worker.worker}</b>
              <span class="soft">
                {percent(worker.cpu)} of a core · {plural(worker.subtasks, "subtask")} · {bytes(worker.state_bytes)}
              </span>
            </div>
            <Bar share={worker.cpu} label={`worker ${worker.worker} uses ${percent(worker.cpu)} of a core`} />
          </div>
        ))}
      </div>
    </section>
  );
}

function Events({ found }: { found: Data }) {
  return (
    <section class="card">
      <h2>Events</h2>
      {found.events.length === 0 && <span class="soft">Nothing has happened since the server started.</span>}
      <ul class="events" tabIndex={0}>
        {found.events.map((event) => (
          <li>
            <span class="soft">{clock(event.at_s)}</span>
            <span>{event.text}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}
