// Query: how one query does and did, its results, its text and what it was before.
import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { api, quoted, type FigureColumns, type StatementVersion } from "../api/client";
import { Chart, type Line } from "../components/chart";
import { diffLines } from "../components/diff";
import { LiveResults } from "../components/live-results";
import { Cause, Empty, Figure, Problem } from "../components/small";
import { bytes, count, milliseconds, percent, rate, times } from "../format";
import { token } from "../state/connection";
import { usePolling } from "../state/polling";
import { go, hashOf, route } from "../state/router";

export function Query() {
  const { name } = route.value;
  return name ? <OneQuery name={name} key={name} /> : <ChooseQuery />;
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
        {data.value?.queries.length === 0 && <Empty>No query matches.</Empty>}
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

function OneQuery({ name }: { name: string }) {
  const line = usePolling((stop) => api.line(name, stop), 1000, name + token.value);
  const history = usePolling((stop) => api.history(name, stop), 5000, name + token.value);
  const versions = usePolling((stop) => api.versions(name, stop), 30_000, name + token.value);
  const now = line.data.value;
  const text = versions.data.value?.[0]?.text ?? "";
  return (
    <>
      <div class="head">
        <h1>{name}</h1>
        {now && <span class={`badge ${now.state === "failed" ? "bad" : "good"}`}>{now.state}</span>}
        {now?.level && <span class={`badge ${now.level_met === false ? "bad" : ""}`}>{now.level}</span>}
        <span class="space" />
        <a class="button" href={hashOf("graph", name)}>
          Graph
        </a>
        <a class="button" href={hashOf("slices", name)}>
          Slices
        </a>
        <a class="button" href={hashOf("editor", "", { replace: name })}>
          Replace
        </a>
        <Drop name={name} />
      </div>
      <Problem text={line.error.value} />
      {now && (
        <>
          <div class={`card ${now.cause?.attention === 3 ? "bad" : ""}`}>
            <div class="cause row">
              <Cause line={now} />
            </div>
          </div>
          <div class="figures">
            <Figure what="Results">{count(now.rows)}</Figure>
            <Figure what="Rate">{rate(now.rate)}</Figure>
            <Figure what="p50">{milliseconds(now.p50_ms)}</Figure>
            <Figure what="p99">{milliseconds(now.p99_ms)}</Figure>
            <Figure what="Slowdown">{times(now.slowdown)}</Figure>
            <Figure what="Rows waiting">{count(now.rows_waiting)}</Figure>
            <Figure what="CPU, its part">{percent(now.cpu)}</Figure>
            <Figure what="Shared by">{count(now.shared_by)}</Figure>
            <Figure what="State">{bytes(now.state_bytes)}</Figure>
          </div>
        </>
      )}
      <LiveResults query={name} />
      {history.data.value && <History found={history.data.value} />}
      <Versions name={name} found={versions.data.value ?? []} text={text} />
    </>
  );
}

interface ChartLook {
  title: string;
  shown: (value: number | null) => string;
  lines: [string, string, Line["colour"]][];
}

const CHARTS: ChartLook[] = [
  { title: "Results", shown: rate, lines: [["rate", "rate", "accent"]] },
  { title: "Response time", shown: milliseconds, lines: [["p50_ms", "p50", "accent"], ["p99_ms", "p99", "warn"]] },
  { title: "Slowdown", shown: times, lines: [["slowdown", "slowdown", "violet"]] },
  { title: "Staleness", shown: percent, lines: [["staleness", "stale", "blue"]] },
  { title: "Rows waiting", shown: count, lines: [["rows_waiting", "waiting", "warn"]] },
  { title: "State", shown: bytes, lines: [["state_bytes", "state", "blue"]] },
  { title: "CPU, its part", shown: percent, lines: [["cpu", "cpu", "accent"]] },
  { title: "Rows dropped", shown: count, lines: [["shed", "dropped", "bad"]] },
  { title: "Accuracy", shown: percent, lines: [["accuracy", "accuracy", "accent"]] },
];

function History({ found }: { found: FigureColumns }) {
  const charts = useMemo(
    () =>
      CHARTS.map((chart) => ({
        ...chart,
        drawn: chart.lines.map(([column, name, colour]) => ({ name, colour, values: found.columns[column] ?? [] })),
      })).filter((chart) => chart.drawn.some((line) => line.values.some((value) => value !== null))),
    [found],
  );
  const at = found.columns.at ?? [];
  return (
    <section class="card">
      <h2>
        The last half hour <span class="soft small">a sample every 5 s</span>
      </h2>
      {at.length < 2 ? (
        <Empty>Charts begin with the second sample.</Empty>
      ) : (
        <div class="charts">
          {charts.map((chart) => (
            <Chart key={chart.title} title={chart.title} at={at} lines={chart.drawn} shown={chart.shown} />
          ))}
        </div>
      )}
    </section>
  );
}

function Versions({ name, found, text }: { name: string; found: StatementVersion[]; text: string }) {
  const compared = useSignal(0);
  const texts = found.filter((version) => version.text);
  const older = texts[compared.value];
  return (
    <div class="columns">
      <section class="card">
        <h2>Statement</h2>
        <pre>{text}</pre>
      </section>
      <section class="card">
        <h2>Versions of {name}</h2>
        {found.map((version) => (
          <div class="row small">
            <span class="soft">{new Date(version.at).toLocaleString()}</span>
            <span>{version.text ? "declared" : "dropped"}</span>
            <span class="soft">{version.by && `by ${version.by}`}</span>
            {version.text && texts.indexOf(version) > 0 && (
              <button type="button" onClick={() => (compared.value = texts.indexOf(version))}>
                Compare
              </button>
            )}
          </div>
        ))}
        {compared.value > 0 && older && (
          <pre style={{ marginTop: "10px" }}>
            {diffLines(older.text, texts[0]!.text).map((line) => (
              <div class={line.kind}>
                {{ same: "  ", added: "+ ", removed: "- " }[line.kind]}
                {line.text}
              </div>
            ))}
          </pre>
        )}
      </section>
    </div>
  );
}

function Drop({ name }: { name: string }) {
  const asked = useSignal(false);
  const problem = useSignal<string | null>(null);
  const drop = async (): Promise<void> => {
    try {
      await api.run(`DROP QUERY ${quoted(name)}`);
      go("overview");
    } catch (error) {
      problem.value = (error as Error).message;
    }
  };
  return asked.value ? (
    <>
      <span class="small">Its results go with it.</span>
      <button type="button" class="danger" onClick={drop}>
        Drop {name}
      </button>
      <button type="button" onClick={() => (asked.value = false)}>
        Keep it
      </button>
      <Problem text={problem.value} />
    </>
  ) : (
    <button type="button" onClick={() => (asked.value = true)}>
      Drop
    </button>
  );
}
