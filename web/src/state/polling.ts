// Asking again and again while somebody looks: a hidden page asks nothing.
import { useSignal, type Signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Refused, Unreachable } from "../api/client";

export interface Polled<T> {
  data: Signal<T | null>;
  error: Signal<string | null>;
  again: () => void;
}

/** The newest answer of `ask`; asked again every so many milliseconds and whenever `key` changes. */
export function usePolling<T>(ask: (stop: AbortSignal) => Promise<T>, everyMs: number, key = ""): Polled<T> {
  const data = useSignal<T | null>(null);
  const error = useSignal<string | null>(null);
  const turn = useSignal(0);
  const round = turn.value;
  useEffect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let asking = false;
    const look = async (): Promise<void> => {
      clearTimeout(timer);
      if (asking || stop.signal.aborted || document.visibilityState === "hidden") return;
      asking = true;
      try {
        const found = await ask(stop.signal);
        if (stop.signal.aborted) return; // something else is asked by now, and its answer may be here already
        data.value = found;
        error.value = null;
      } catch (problem) {
        if (stop.signal.aborted) return;
        error.value = problem instanceof Unreachable ? null : String((problem as Error).message);
        if (problem instanceof Refused && problem.status === 404) data.value = null;
      }
      asking = false;
      if (everyMs > 0) timer = setTimeout(look, everyMs);
    };
    const seen = (): void => void look();
    document.addEventListener("visibilitychange", seen);
    void look();
    return () => {
      stop.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [key, everyMs, round]);
  return { data, error, again: () => void turn.value++ };
}
