// The frame: navigation, what is wrong with the connection, and a page, whose code comes when it is wanted.
import { useSignal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { TokenDialog } from "./components/token-dialog";
import { Overview } from "./pages/overview";
import { needsToken, offline } from "./state/connection";
import { PAGES } from "./state/keys";
import { hashOf, route } from "./state/router";
import { isDark, nextTheme, shownTheme } from "./state/theme";

const LATER: Record<string, () => Promise<ComponentType>> = {
  overview: async () => Overview,
  graph: async () => (await import("./pages/graph")).Graph,
  query: async () => (await import("./pages/query")).Query,
  editor: async () => (await import("./pages/editor")).Editor,
  slices: async () => (await import("./pages/slices")).Slices,
  scheduling: async () => (await import("./pages/scheduling")).Scheduling,
  models: async () => (await import("./pages/models")).Models,
  errors: async () => (await import("./pages/errors")).Errors,
  settings: async () => (await import("./pages/settings")).Settings,
};

export function App() {
  const { page } = route.value;
  const shown = useSignal<{ page: string; Page: ComponentType } | null>({ page: "overview", Page: Overview });
  useEffect(() => {
    let wanted = true;
    const load = LATER[page] ?? LATER.overview!;
    const show = (Page: ComponentType): void => {
      if (wanted) shown.value = { page, Page };
    };
    load().then(show, () => show(NotLoaded));
    document.title = `${PAGES.find((one) => one.page === page)?.title ?? "Overview"} · slicemill`;
    return () => void (wanted = false);
  }, [page]);
  const Page = shown.value?.page === page || !LATER[page] ? shown.value?.Page : null;
  return (
    <>
      <Navigation page={page} />
      <main>
        {offline.value && (
          <div class="notice bad" role="alert">
            The server does not answer. The page shows the last data received and reconnects every second.
          </div>
        )}
        {Page ? <Page /> : <p class="soft">…</p>}
      </main>
      {needsToken.value && <TokenDialog />}
    </>
  );
}

/** Its code could not be fetched: the server is away, or was exchanged for one of another version. */
function NotLoaded() {
  return (
    <div class="card">
      <p>This page could not be loaded.</p>
      <button type="button" onClick={() => location.reload()}>
        Reload the console
      </button>
    </div>
  );
}

function Navigation({ page }: { page: string }) {
  shownTheme.value;
  const here = useRef<HTMLAnchorElement>(null);
  // On a phone the pages are a strip that is wider than the screen.
  useEffect(() => here.current?.scrollIntoView({ block: "nearest", inline: "center" }), [page]);
  return (
    <nav class="nav" aria-label="Pages">
      <a class="brand" href={hashOf("overview")}>
        <img src="/console/icon.svg" alt="" /> slicemill
      </a>
      {PAGES.map((one) => (
        <a class="item" ref={one.page === page ? here : undefined} href={hashOf(one.page)} aria-current={one.page === page ? "page" : undefined}>
          {one.title} <kbd aria-hidden="true">{one.key}</kbd>
        </a>
      ))}
      <div class="foot">
        <button type="button" onClick={nextTheme}>
          {isDark() ? "Light" : "Dark"}
        </button>
      </div>
    </nav>
  );
}
