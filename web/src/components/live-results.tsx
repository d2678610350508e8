// Results as they come: a tail that keeps its rows when stopped, can be filtered and downloaded.
import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { api, save, type Row } from "../api/client";
import { follow } from "../api/live";
import { plural } from "../format";
import { RowsTable, shownValue } from "./rows-table";
import { Problem } from "./small";

const KEPT = 500;
const SHOWN = 200;

/** The newest rows first, at most so many. */
export function withNewest(rows: Row[], fresh: Row[], kept = KEPT): Row[] {
  return [...fresh.slice(-kept).reverse(), ...rows].slice(0, kept);
}

export function matching(rows: Row[], filter: string): Row[] {
  const wanted = filter.trim().toLowerCase();
  if (!wanted) return rows;
  return rows.filter((row) => Object.values(row).some((value) => shownValue(value).toLowerCase().includes(wanted)));
}

export function LiveResults({ query }: { query: string }) {
  const rows = useSignal<Row[]>([]);
  const seen = useSignal(0);
  const running = useSignal(true);
  const connected = useSignal(false);
  const ended = useSignal(false);
  const filter = useSignal("");
  const skipped = useSignal(false);
  const problem = useSignal<string | null>(null);
  const saveAll = (): void => {
    problem.value = null;
    const path = `/v1/queries/${encodeURIComponent(query)}/results?most_rows=100000`;
    api.download(path, "text/csv", `${query}.csv`).catch((error: Error) => (problem.value = error.message));
  };

  useEffect(() => {
    rows.value = [];
    seen.value = 0;
    ended.value = false;
    skipped.value = false;
    running.value = true;
  }, [query]);
  useEffect(() => {
    if (!running.value) return;
    let waiting: Row[] = [];
    let frame = 0;
    const show = (): void => {
      frame = 0;
      rows.value = withNewest(rows.peek(), waiting);
      waiting = [];
    };
    const stop = follow(query, rows.peek().length ? 0 : SHOWN, {
      rows: (fresh) => {
        seen.value = seen.peek() + fresh.length;
        waiting = waiting.length > KEPT ? [...waiting, ...fresh].slice(-KEPT) : waiting.concat(fresh);
        // Often enough for eyes, seldom enough for phones.
        frame ||= window.setTimeout(show, 250);
      },
      gap: () => (skipped.value = true),
      ended: () => (ended.value = true),
      state: (on) => (connected.value = on),
    });
    return () => {
      stop();
      clearTimeout(frame);
      if (waiting.length) show();
    };
  }, [query, running.value]);

  const found = useMemo(() => matching(rows.value, filter.value), [rows.value, filter.value]);
  const state = ended.value ? "the query was dropped" : !running.value ? "stopped" : connected.value ? "live" : "connecting";
  return (
    <section class="card flush" aria-label="Results">
      <div class="row" style={{ padding: "12px 16px" }}>
        <h2 style={{ margin: 0 }}>Results</h2>
        <span class={`badge ${connected.value && running.value ? "good" : ""}`}>{state}</span>
        <span class="soft small">{plural(seen.value, "row")} so far{skipped.value && "; some were skipped because they arrived too fast"}</span>
        <span style={{ flex: 1 }} />
        <input
          placeholder="Filter"
          aria-label="Filter results"
          value={filter.value}
          onInput={(event) => (filter.value = event.currentTarget.value)}
        />
        <button type="button" aria-pressed={!running.value} onClick={() => (running.value = !running.value)}>
          {running.value ? "Stop" : "Continue"}
        </button>
        <button type="button" onClick={() => download(found, query)} disabled={!found.length}>
          Save shown rows
        </button>
        <button type="button" onClick={saveAll}>
          Save all stored (CSV)
        </button>
      </div>
      <Problem text={problem.value} />
      {found.length ? (
        <RowsTable rows={found.slice(0, SHOWN)} label="Newest results first" />
      ) : (
        <div class="empty">{rows.value.length ? "No row matches." : "Rows appear here when they are committed."}</div>
      )}
    </section>
  );
}

function download(rows: Row[], name: string): void {
  save(new Blob([rows.map((row) => JSON.stringify(row)).join("\n")], { type: "application/json" }), `${name}.jsonl`);
}
