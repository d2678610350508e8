// Errors and late rows: what could not be read, what came too late, and what has failed.
import { useSignal } from "@preact/signals";
import { api, type Answer, type Row } from "../api/client";
import { Alerts } from "../components/alerts";
import { RowsTable } from "../components/rows-table";
import { Cause, Empty, Problem, Scroll } from "../components/small";
import { count } from "../format";
import { token } from "../state/connection";
import { usePolling } from "../state/polling";
import { go, hashOf, route } from "../state/router";
import { lateTemplate, quoted } from "../state/statements";

const NEWEST = 200;

export function Errors() {
  const { name, options } = route.value;
  const { data, error } = usePolling((stop) => api.overview({ sort: "attention", limit: 50 }, stop), 2000, token.value);
  const streams = data.value?.streams ?? [];
  const broken = data.value?.queries.filter((line) => (line.cause?.attention ?? 0) > 2) ?? [];
  const shown = name || streams.find((stream) => stream.bad || stream.late)?.name || streams[0]?.name || "";
  return (
    <>
      <div class="head">
        <h1>Errors &amp; alerts</h1>
      </div>
      <Problem text={error.value} />
      {data.value?.problems.map((problem) => <div class="notice">{problem}</div>)}
      <section class="card flush">
        <h2>Failed and stopped queries</h2>
        {broken.length === 0 ? (
          <Empty>All queries are running.</Empty>
        ) : (
          <Scroll label="Failed and stopped queries">
            <table>
              <tbody>
                {broken.map((line) => (
                  <tr key={line.name}>
                    <td class="name">
                      <a href={hashOf("query", line.name)}>{line.name}</a>
                    </td>
                    <td class="cause">
                      <Cause line={line} />
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </Scroll>
        )}
      </section>
      <Alerts />
      <section class="card flush">
        <h2>Rows that no query receives</h2>
        <Scroll label="Rows that no query receives">
          <table>
            <thead>
              <tr>
                <th>Stream</th>
                <th class="number">Read</th>
                <th class="number">Unreadable</th>
                <th class="number">Late</th>
                <th class="number">Not needed</th>
                <th>Source</th>
              </tr>
            </thead>
            <tbody>
              {streams.map((stream) => (
                <tr key={stream.name} class="link" onClick={() => go("errors", stream.name)}>
                  <td class="name">
                    <a href={hashOf("errors", stream.name)}>{stream.name}</a>
                  </td>
                  <td class="number">{count(stream.read)}</td>
                  <td class={`number ${stream.bad ? "bad" : ""}`}>{count(stream.bad)}</td>
                  <td class={`number ${stream.late ? "warn" : ""}`}>
                    {stream.late ? (
                      <a href={hashOf("errors", stream.name, { kind: "late" })} onClick={(event) => event.stopPropagation()}>
                        {count(stream.late)}
                      </a>
                    ) : (
                      0
                    )}
                  </td>
                  <td class="number">{count(stream.unneeded)}</td>
                  <td class={stream.error ? "bad small" : "soft"}>{stream.error ?? "ok"}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      </section>
      {shown && <LostRows stream={shown} key={shown + (options.get("kind") ?? "")} />}
    </>
  );
}

function LostRows({ stream }: { stream: string }) {
  const kind = useSignal<"errors" | "late">(route.value.options.get("kind") === "late" ? "late" : "errors");
  const from = quoted(`${stream}_${kind.value}`);
  const replaying = useSignal(false);
  const told = useSignal("");
  const problem = useSignal<string | null>(null);
  const found = usePolling<Row[]>(
    async () => (await api.run(`SELECT * FROM ${from} ORDER BY 1 DESC LIMIT ${NEWEST}`)).answers[0]?.rows ?? [],
    0,
    kind.value + token.value,
  );
  const replay = async (): Promise<void> => {
    replaying.value = true;
    problem.value = null;
    try {
      told.value = (await api.run(`REPLAY ${from}`)).answers.map(answerInWords).join(" ");
      found.again();
    } catch (error) {
      problem.value = (error as Error).message;
    }
    replaying.value = false;
  };
  return (
    <section class="card flush">
      <div class="row" style={{ padding: "12px 16px" }}>
        <h2 style={{ margin: 0 }}>Newest lost rows of {stream}</h2>
        <button type="button" aria-pressed={kind.value === "errors"} onClick={() => (kind.value = "errors")}>
          Unreadable
        </button>
        <button type="button" aria-pressed={kind.value === "late"} onClick={() => (kind.value = "late")}>
          Late
        </button>
        <button type="button" onClick={found.again}>
          Refresh
        </button>
        {kind.value === "errors" && !!found.data.value?.length && (
          <button type="button" class="main" disabled={replaying.value} onClick={replay}>
            {replaying.value ? "Replaying …" : "Replay them"}
          </button>
        )}
        {kind.value === "late" && !!found.data.value?.length && (
          <a class="button main" href={hashOf("editor", "", { write: lateTemplate(stream) })}>
            Replay them in a query
          </a>
        )}
        <span class="soft small">
          {kind.value === "late" ? (
            <>
              Results up to the watermark have been emitted, so late rows cannot enter {stream} any more. A query can read
              them from the stream <code>{from}</code>, from the beginning if {stream} has RETAIN. It stores the columns
              that queries use, or all columns with RETAIN.
            </>
          ) : (
            <>
              After a fix, rows that can be read enter {stream} as newly arrived rows. A query with{" "}
              <code>SELECT … FROM {from}</code> can store or repair the other rows.
            </>
          )}
        </span>
      </div>
      {told.value && (
        <div class="notice" role="status">
          {told.value}
        </div>
      )}
      <Problem text={problem.value} />
      {found.error.value ? (
        <Empty>{found.error.value}</Empty>
      ) : found.data.value?.length ? (
        <RowsTable rows={found.data.value} label={`${kind.value} rows of ${stream}`} />
      ) : (
        <Empty>{!found.data.value ? "…" : kind.value === "errors" ? `Every row of ${stream} could be read.` : `No row of ${stream} was late.`}</Empty>
      )}
    </section>
  );
}

/** What a statement gave, in one line. */
function answerInWords(answer: Answer): string {
  const row = answer.rows?.[0];
  return answer.message || Object.entries(row ?? {}).map(([name, value]) => `${name}: ${String(value)}`).join(", ");
}
