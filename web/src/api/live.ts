// Live results: server-sent events by fetch, which can show a token, and which ends while a page is hidden.
import { request, Refused, type Row } from "./client";
import { cutEvents } from "./live-events";

export interface Following {
  rows: (rows: Row[]) => void;
  gap: () => void;
  ended: () => void;
  state: (connected: boolean) => void;
}

/** Follow a query until `stop`, with its newest rows before those that come; goes on where it was after a lost connection. */
export function follow(query: string, recent: number, told: Following): () => void {
  let next: number | null = null;
  let stopped = false;
  let current: AbortController | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;

  const hidden = (): boolean => document.visibilityState === "hidden";
  const listen = async (): Promise<void> => {
    clearTimeout(timer);
    if (stopped || current || hidden()) return;
    const own = (current = new AbortController());
    try {
      const from = next === null ? `?recent=${recent}` : `?since=${next}`;
      const response = await request(`/v1/queries/${encodeURIComponent(query)}/live${from}`, { signal: own.signal });
      told.state(true);
      const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const cut = cutEvents(text + value);
        text = cut.rest;
        for (const event of cut.events) {
          if (event.id) next = Number(event.id);
          if (event.event === "rows") told.rows((JSON.parse(event.data) as { rows: Row[] }).rows);
          else if (event.event === "gap") told.gap();
          else if (event.event === "end") {
            stopped = true;
            told.ended();
          }
        }
      }
    } catch (problem) {
      if (problem instanceof Refused && problem.status === 404) {
        stopped = true;
        told.ended();
      }
    }
    if (current !== null && current !== own) return; // another connection has taken over
    current = null;
    told.state(false);
    if (!stopped && !hidden()) timer = setTimeout(listen, 1000);
  };
  const seen = (): void => {
    if (hidden()) {
      current?.abort();
      current = null;
    } else void listen();
  };
  document.addEventListener("visibilitychange", seen);
  void listen();
  return () => {
    stopped = true;
    clearTimeout(timer);
    current?.abort();
    document.removeEventListener("visibilitychange", seen);
  };
}
