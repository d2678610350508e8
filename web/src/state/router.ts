// A hash router: `#/query/hot_items?tab=plan` is page `query`, name `hot_items` and some options.
import { computed, signal } from "@preact/signals";

export interface Route {
  page: string;
  name: string;
  options: URLSearchParams;
}

export function parseHash(hash: string): Route {
  const [path = "", options = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [page = "", ...rest] = path.split("/");
  return { page: page || "overview", name: decoded(rest.join("/")), options: new URLSearchParams(options) };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // written by hand, with a % that stands for itself
  }
}

export function hashOf(page: string, name = "", options: Record<string, string> = {}): string {
  const words = new URLSearchParams(options).toString();
  return `#/${page}${name ? `/${encodeURIComponent(name)}` : ""}${words ? `?${words}` : ""}`;
}

const here = typeof location === "undefined" ? "" : location.hash;
const hash = signal(here);
export const route = computed(() => parseHash(hash.value));

export function listenToHash(): void {
  addEventListener("hashchange", () => (hash.value = location.hash));
}

export function go(page: string, name = "", options: Record<string, string> = {}): void {
  location.hash = hashOf(page, name, options);
}
