// Editor: write statements, see mistakes and the plan as you type, run them, look at the answers.
import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { api, Refused, type Answer, type PlanPreview, type RequestProblem, type Row } from "../api/client";
import { EslEditor } from "../components/esl-editor";
import { EXAMPLES, NO_WORDS } from "../components/esl-words";
import { chartPlan } from "../components/chart-plan";
import { ResultChart } from "../components/result-chart";
import { RowsTable } from "../components/rows-table";
import { Scroll } from "../components/small";
import { count } from "../format";
import { token } from "../state/connection";
import { usePolling } from "../state/polling";
import { hashOf, route } from "../state/router";
import { explainReplacements, replacing } from "../state/statements";

const KEY = "slicemill-draft";

export function Editor() {
  const replaced = route.value.options.get("replace");
  const written = route.value.options.get("write");
  const text = useSignal(written ?? (replaced ? "" : (sessionStorage.getItem(KEY) ?? "")));
  const problems = useSignal<RequestProblem[]>([]);
  // What only running told: a check that ends later finds nothing of it, so it stays until something else is written.
  const refused = useSignal<RequestProblem[]>([]);
  const answers = useSignal<Answer[]>([]);
  const running = useSignal(false);
  // What was run needs no plan any more: what it declares is there.
  const ran = useSignal("");
  const preview = useSignal<PlanPreview | null>(null);
  const kept = useSignal<Row[]>([]);
  const words = usePolling((stop) => api.words(stop), 10_000, token.value);

  useEffect(() => {
    if (!replaced) return;
    const stop = new AbortController();
    const before = text.peek();
    api.versions(replaced, stop.signal).then(
      (versions) => {
        if (text.peek() === before) text.value = replacing(versions[0]?.text ?? "");
      },
      (problem: Error) => {
        if (!stop.signal.aborted) refused.value = [{ message: problem.message, hint: "" }];
      },
    );
    return () => stop.abort();
  }, [replaced]);
  useEffect(() => sessionStorage.setItem(KEY, text.value), [text.value]);

  const changed = (now: string): void => {
    if (now !== text.value) refused.value = [];
    text.value = now;
  };
  const write = (example: string): void => {
    changed(example);
    answers.value = [];
  };
  // Answers may come in any order: one to a text that has been changed since says nothing any more.
  const checked = async (now: string, found: RequestProblem[]): Promise<void> => {
    const isOld = (): boolean => now !== text.peek();
    if (isOld()) return;
    problems.value = found;
    if (now === ran.peek()) return;
    const plans = !found.length && /create\b[^;]*\bquery\b/i.test(now);
    const planned = plans ? await api.preview(now).catch(() => null) : null;
    if (isOld()) return;
    preview.value = planned;
    const asked = found.length ? "" : explainReplacements(now);
    const effects = asked ? await api.run(asked).then(({ answers }) => answers.flatMap((one) => one.rows ?? []), () => []) : [];
    if (!isOld()) kept.value = effects;
  };
  const run = async (): Promise<void> => {
    const asked = text.value;
    if (running.value || !asked.trim()) return;
    running.value = true;
    ran.value = asked;
    refused.value = [];
    answers.value = [];
    try {
      const { errors } = await api.check(asked);
      if (asked === text.peek()) problems.value = errors;
      if (!errors.length) {
        answers.value = (await api.run(asked)).answers;
        words.again();
      }
    } catch (problem) {
      ran.value = "";
      const told = problem instanceof Refused ? problem.problems : [{ message: (problem as Error).message, hint: "" }];
      if (asked === text.peek()) refused.value = told;
    }
    running.value = false;
  };
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
            if (chosen) write(chosen.text);
            event.currentTarget.value = "";
          }}
        >
          <option value="">Start from an example …</option>
          {EXAMPLES.map((example, index) => (
            <option value={index}>{example.title}</option>
          ))}
        </select>
        <button type="button" class="main" onClick={run} disabled={running.value}>
          {running.value ? "Running …" : "Run"} <span class="small hint">ctrl-↵</span>
        </button>
      </div>
      <div class="wide-left">
        <div class="stack">
          <EslEditor
            text={text.value}
            words={words.data.value ?? NO_WORDS}
            onChange={changed}
            onChecked={checked}
            onRun={run}
          />
          <div aria-live="polite">
            {[...problems.value, ...refused.value].map((problem) => (
              <div class="problem">
                {problem.line && <span class="soft">line {problem.line}: </span>}
                {problem.message}
                {problem.hint && <div class="soft">{problem.hint}</div>}
              </div>
            ))}
          </div>
          {answers.value.map((answer) => (
            <AnswerCard answer={answer} />
          ))}
        </div>
        <div class="stack">
          {kept.value.length > 0 && <Replacement effects={kept.value} />}
          <Preview found={problems.value.length ? null : preview.value} />
        </div>
      </div>
    </>
  );
}

/** What a replacement would keep, before it is done. */
function Replacement({ effects }: { effects: Row[] }) {
  return (
    <section class="card" aria-label="Effects of the replacement">
      <h2>Effects of the replacement</h2>
      <dl class="facts">
        {effects.map((one) => (
          <>
            <dt>{String(one.effect)}</dt>
            <dd>
              {String(one.what)} <span class="soft small">{String(one.name)}</span>
            </dd>
          </>
        ))}
      </dl>
    </section>
  );
}

function Preview({ found }: { found: PlanPreview | null }) {
  if (!found || !found.queries.length) {
    return (
      <div class="card soft">
        <h2>Plan</h2>
        The plan of your queries appears here, with the operators that they would share with running queries.
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
            , {count(found.running_already)} of which {found.running_already === 1 ? "is" : "are"} already running for {names.slice(0, 3).join(", ")}
            {names.length > 3 ? ` and ${count(names.length - 3)} more` : ""}
          </span>
        ) : (
          ", all new"
        )}
        .
      </p>
      <Scroll label="Plan" high="max(300px, 100vh - 240px)">
        <pre class="wide">{found.plan}</pre>
      </Scroll>
    </div>
  );
}

function AnswerCard({ answer }: { answer: Answer }) {
  const rows = answer.rows ?? [];
  const made = answer.tag === "CREATE QUERY" ? /^query (.+?): /.exec(answer.message)?.[1] : undefined;
  const plan = useMemo(() => chartPlan(answer.columns ?? [], rows), [answer]);
  const look = useSignal<"table" | "chart">("table");
  return (
    <section class={`card ${answer.rows ? "flush" : ""}`} aria-label={`Answer to ${answer.tag}`}>
      <div class={answer.rows ? "row pad" : "row"}>
        <h2>
          {answer.tag} <span class="soft small">{answer.rows ? `${count(rows.length)} rows` : answer.message}</span>{" "}
          {made && <a href={hashOf("query", made)}>see its results</a>}
        </h2>
        {plan && (
          <>
            <span class="space" />
            {(["table", "chart"] as const).map((one) => (
              <button type="button" aria-pressed={look.value === one} onClick={() => (look.value = one)}>
                {one === "table" ? "Table" : "Chart"}
              </button>
            ))}
          </>
        )}
      </div>
      {answer.rows && (look.value === "table" || !plan) && <RowsTable rows={rows} label={`Rows of ${answer.tag}`} />}
      {plan && look.value === "chart" && (
        <div class="pad">
          <ResultChart plan={plan} rows={rows} />
        </div>
      )}
    </section>
  );
}
