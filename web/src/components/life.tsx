// The life of a query: what it is in, and what one can do about it.
import { useSignal } from "@preact/signals";
import { api, type QueryEntry } from "../api/client";
import { count, percent, plural, span } from "../format";
import { token } from "../state/connection";
import { usePolling } from "../state/polling";
import { quoted } from "../state/statements";
import { Bar, Problem } from "./small";

const ACTIONS: Record<string, ("PAUSE" | "RESUME" | "RESTART")[]> = {
  running: ["PAUSE"],
  paused: ["RESUME"],
  restarting: ["RESTART"],
  failed: ["RESTART"],
};
const WORDS = { PAUSE: "Pause", RESUME: "Resume", RESTART: "Restart" };

/** Pause, resume or restart, as its state allows. */
export function LifeButtons({ name, state, onDone }: { name: string; state: string; onDone: () => void }) {
  const problem = useSignal<string | null>(null);
  const asking = useSignal(false);
  const act = async (action: string): Promise<void> => {
    asking.value = true;
    try {
      await api.run(`${action} QUERY ${quoted(name)}`);
      problem.value = null;
    } catch (error) {
      problem.value = (error as Error).message;
    }
    asking.value = false;
    onDone();
  };
  return (
    <>
      {(ACTIONS[state] ?? []).map((action) => (
        <button type="button" disabled={asking.value} onClick={() => act(action)}>
          {WORDS[action]}
        </button>
      ))}
      <Problem text={problem.value} />
    </>
  );
}

/** What is to be said of a query that does not simply run. */
export function LifeNotice({ name, state }: { name: string; state: string }) {
  const { data } = usePolling((stop) => api.query(name, stop), 1000, name + state + token.value);
  const found = data.value;
  if (!found || found.state !== state) return null;
  return state === "backfilling" ? <Backfill found={found} /> : <Stopped found={found} />;
}

function Stopped({ found }: { found: QueryEntry }) {
  const time = (text: string): string => new Date(text).toLocaleTimeString();
  const tried = found.next_try ? `; next retry at ${time(found.next_try)}` : "; stopped until RESTART QUERY";
  return (
    <div class={`notice ${found.state === "paused" ? "" : "bad"}`} role="status">
      {found.state === "paused"
        ? `Paused${found.paused_since ? ` since ${time(found.paused_since)}` : ""}${found.paused_by ? ` by ${found.paused_by}` : ""}: the query emits no results until it is resumed, and no rows are lost.`
        : `Failed ${plural(found.failures ?? 1, "time")} in a row${tried}. ${found.error ?? ""}`}
    </div>
  );
}

interface Progress {
  share: number;
  rows_left: number;
  rows_per_s: number | null;
  seconds_left: number | null;
}

function Backfill({ found }: { found: QueryEntry }) {
  const progress = found.progress as Progress | null;
  if (!progress) return null;
  return (
    <div class="card slim" role="status">
      <div class="row small">
        <b>Backfill of past rows: {percent(progress.share)}</b>
        <span class="soft">
          {count(progress.rows_left)} rows left{progress.rows_per_s ? ` at ${count(Math.round(progress.rows_per_s))}/s` : ""}
          {progress.seconds_left === null ? "" : `, about ${span(progress.seconds_left)}`}
        </span>
      </div>
      <Bar share={progress.share} label={`${percent(progress.share)} of the past rows are read`} />
    </div>
  );
}
