// The keyboard: / goes to the search, g and a letter goes to a page.
import { go } from "./router";

export const PAGES = [
  { page: "overview", title: "Overview", key: "o" },
  { page: "graph", title: "Graph", key: "g" },
  { page: "query", title: "Query", key: "q" },
  { page: "editor", title: "Editor", key: "e" },
  { page: "slices", title: "Slices", key: "s" },
  { page: "scheduling", title: "Scheduling", key: "p" },
  { page: "models", title: "Models & shedding", key: "m" },
  { page: "errors", title: "Errors & alerts", key: "r" },
  { page: "settings", title: "Settings", key: "t" },
] as const;

const WAIT_MS = 1200;

/** What a key does after those before it: the page to go to, or the search. */
export function keyMeaning(key: string, afterG: boolean): string | null {
  if (afterG) return PAGES.find((one) => one.key === key)?.page ?? null;
  return key === "/" ? "search" : null;
}

export function listenToKeys(): void {
  let pressedG = -Infinity;
  addEventListener("keydown", (event) => {
    const target = event.composedPath()[0] as HTMLElement;
    const writing = target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName);
    if (writing || event.ctrlKey || event.metaKey || event.altKey) return;
    const meaning = keyMeaning(event.key, event.timeStamp - pressedG < WAIT_MS);
    pressedG = event.key === "g" && meaning === null ? event.timeStamp : -Infinity;
    if (meaning === "search") {
      const search = document.querySelector<HTMLInputElement>("input[type=search]");
      if (search) {
        event.preventDefault();
        search.focus();
      }
    } else if (meaning !== null) go(meaning);
  });
}
