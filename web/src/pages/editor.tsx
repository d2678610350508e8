// Editor: write statements, see mistakes and the plan as you type, run them, look at the answers.
import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { api, quoted, Refused, type Answer, type PlanPreview, type RequestProblem } from "../api/client";
import { Chart } from "../components/chart";
import { EslEditor } from "../components/esl-editor";
import { EXAMPLES, wordsOf } from "../components/esl-words";
import { RowsTable } from "../components/rows-table";
import { count } from "../format";
import { token } from "../state/connection";
import { usePolling } from "../state/polling";
import { hashOf, route } from "../state/router";

const KEY = "slicemill-draft";

export function Editor() {
  const text = useSignal(sessionStorage.getItem(KEY) ?? "");
  const problems = useSignal<RequestProblem[]>([]);
  const refused = useSignal<RequestProblem[]>([]);
  const answers = useSignal<Answer[]>([]);
  const running = useSignal(false);
  const preview = useSignal<PlanPreview | null>(null);
  const catalog = usePolling((stop) => api.catalog(stop), 10_000, token.value);
  const words = useMemo(() => wordsOf(catalog.data.value ?? []), [catalog.data.value]);
  const replaced = route.value.options.get("replace");

  useEffect(() => {
    if (!replaced) return;
    void api.versions(replaced).then((versions) => {
      const before = versions.find((version) => version.text)?.text.trim().replace(/;?$/, ";") ?? "";
      text.value = `-- Its results go, and its windows start empty; what it shares with others stays.\nDROP QUERY ${quoted(replaced)};\n${before}`;
    });
  }, [replaced]);
  useEffect(() => sessionStorage.setItem(KEY, text.value), [text.value]);
  useEffect(() => {
    const stop = new AbortController();
    const timer = setTimeout(async () => {
      if (!/create\s+query/i.test(text.value)) preview.value = null;
      else preview.value = await api.preview(text.value, stop.signal).catch(() => null);
    }, 600);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [text.value]);

  const run = async (): Promise<void> => {
    if (running.value || !text.value.trim()) return;
    running.value = true;
    refused.value = [];
    try {
      answers.value = (await api.run(text.value)).answers;
      catalog.again();
    } catch (problem) {
      answers.value = [];
      refused.value = problem instanceof Refused ? problem.problems : [{ message: (problem as Error).message, hint: "" }];
    }
    running.value = false;
  };
  const shownProblems = refused.value.length ? refused.value : problems.value;
  return (
    <>
      <div class="head">
        <h1>Editor</h1>
        <span class="space" />
        <select
          aria-label="Examples"
          value=""
          onChange={(event) => {
            const chosen = EXAMPLES[Number(event.currentTarget.value)];
            if (chosen) text.value = chosen.text;
            event.currentTarget.value = "";
          }}
        >
          <option value="">Start from an example …</option>
          {EXAMPLES.map((example, index) => (
            <option value={index}>{example.title}</option>
          ))}
        </select>
        <button type="button" class="main" onClick={run} disabled={running.value}>
          {running.value ? "Running …" : "Run"} <span class="small">ctrl-↵</span>
        </button>
      </div>
      <div class="wide-left">
        <div class="stack">
          <EslEditor
            text={text.value}
            catalog={words}
            onChange={(written) => {
              text.value = written;
              refused.value = [];
              if (!written.trim()) problems.value = [];
            }}
            onProblems={(found) => (problems.value = found)}
            onRun={run}
          />
          <div aria-live="polite">
            {shownProblems.map((problem) => (
              <div class="problem">
                {problem.line && <span class="soft">line {problem.line}: </span>}
                {problem.message}
                {problem.hint && <div class="soft">{problem.hint}</div>}
              </div>
            ))}
          </div>
        </div>
        <Preview found={shownProblems.length ? null : preview.value} />
      </div>
      {answers.value.map((answer) => (
        <AnswerCard answer={answer} />
      ))}
    </>
  );
}

function Preview({ found }: { found: PlanPreview | null }) {
  if (!found || !found.queries.length) {
    return (
      <div class="card soft">
        <h2>Plan</h2>
        The plan of what you write shows up here, with what it would share with queries that run.
      </div>
    );
  }
  const names = found.shares_with;
  return (
    <div class="card">
      <h2>Plan of {found.queries.join(", ")}</h2>
      <p>
        {count(found.operators)} operators
        {found.running_already > 0 ? (
          <span class="good">
            , {count(found.running_already)} of which run already for {names.slice(0, 3).join(", ")}
            {names.length > 3 ? ` and ${count(names.length - 3)} more` : ""}
          </span>
        ) : (
          ", all new"
        )}
        .
      </p>
      <div class="scroll" style={{ maxHeight: "46vh" }} tabIndex={0} role="region" aria-label="Plan">
        <pre>{found.plan}</pre>
      </div>
    </div>
  );
}

function AnswerCard({ answer }: { answer: Answer }) {
  const rows = answer.rows ?? [];
  const made = answer.tag === "CREATE QUERY" ? /^query (.+?): /.exec(answer.message)?.[1] : undefined;
  const numbers = (answer.columns ?? []).filter((column) => /^(u?int|float|double|decimal)/.test(column.type)).slice(0, 3);
  const colours = ["accent", "violet", "blue"] as const;
  return (
    <section class={`card ${answer.rows ? "flush" : ""}`}>
      <h2>
        {answer.tag} <span class="soft small">{answer.rows ? `${count(rows.length)} rows` : answer.message}</span>{" "}
        {made && <a href={hashOf("query", made)}>see its results</a>}
      </h2>
      {answer.rows && rows.length > 1 && numbers.length > 0 && (
        <div style={{ padding: "0 16px" }}>
          <Chart
            title="By row"
            time={false}
            height={140}
            at={rows.map((_, index) => index + 1)}
            lines={numbers.map((column, index) => ({
              name: column.name,
              colour: colours[index]!,
              values: rows.map((row) => (typeof row[column.name] === "number" ? (row[column.name] as number) : null)),
            }))}
            shown={count}
          />
        </div>
      )}
      {answer.rows && <RowsTable rows={rows} label={`Rows of ${answer.tag}`} />}
    </section>
  );
}
