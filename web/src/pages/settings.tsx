// Settings: how it looks, who gets in, and a bundle for those who help.
import { useSignal } from "@preact/signals";
import { api } from "../api/client";
import { Empty, Problem, Scroll } from "../components/small";
import { token, useToken } from "../state/connection";
import { PAGES } from "../state/keys";
import { usePolling } from "../state/polling";
import { theme, type Theme } from "../state/theme";

export function Settings() {
  const overview = usePolling((stop) => api.overview({ limit: 1 }, stop), 0, token.value);
  const found = overview.data.value;
  const problem = useSignal<string | null>(null);
  const bundle = async (): Promise<void> => {
    problem.value = null;
    try {
      await api.download("/v1/support-bundle", "application/zip", "slicemill-support.zip");
    } catch (error) {
      problem.value = (error as Error).message;
    }
  };
  return (
    <>
      <div class="head">
        <h1>Settings</h1>
      </div>
      <div class="columns">
        <section class="card stack">
          <h2>This page</h2>
          <label class="field">
            Colours
            <select value={theme.value} onChange={(event) => (theme.value = event.currentTarget.value as Theme)}>
              <option value="system">system setting</option>
              <option value="light">light</option>
              <option value="dark">dark</option>
            </select>
          </label>
          <div class="small">
            <p>
              Keys: <kbd>/</kbd> search; <kbd>g</kbd> and then{" "}
              {PAGES.map((one) => (
                <span>
                  <kbd>{one.key}</kbd> {one.title.toLowerCase()}{" "}
                </span>
              ))}
            </p>
          </div>
        </section>
        <section class="card stack">
          <h2>You</h2>
          <div>
            {found ? (
              <>
                <b>{found.user ?? "the user of this machine"}</b>, role <span class="badge">{found.role}</span>
              </>
            ) : (
              "…"
            )}
          </div>
          {token.value && (
            <div>
              <button type="button" onClick={() => useToken("")}>
                Delete the token from this page
              </button>
            </div>
          )}
          <h2>Help</h2>
          <div class="row">
            <button type="button" onClick={bundle}>
              Support bundle
            </button>
            <span class="soft small">statements, plans and metrics, without rows</span>
          </div>
          <Problem text={problem.value} />
          <div class="small soft">
            slicemill {found?.version} · <a href="/openapi.json">API</a> · <a href="/console/licences.txt">licences</a>
          </div>
        </section>
      </div>
      <Tokens />
    </>
  );
}

function Tokens() {
  const tokens = usePolling((stop) => api.tokens(stop), 0, token.value);
  const name = useSignal("");
  const role = useSignal("admin");
  const names = useSignal("");
  const made = useSignal<{ name: string; token: string } | null>(null);
  const problem = useSignal<string | null>(null);
  const tried = async (what: () => Promise<void>): Promise<void> => {
    problem.value = null;
    try {
      await what();
      tokens.again();
    } catch (error) {
      problem.value = (error as Error).message;
    }
  };
  const add = (event: Event): void => {
    event.preventDefault();
    void tried(async () => {
      const patterns = names.value.split(/[\s,]+/).filter(Boolean);
      const fresh = await api.addToken({ name: name.value, role: role.value, names: patterns });
      made.value = { name: name.value, token: fresh.token };
      if (!tokens.data.value?.length) useToken(fresh.token);
      name.value = "";
    });
  };
  return (
    <section class="card stack">
      <h2>Tokens</h2>
      {tokens.error.value ? (
        <Empty>{tokens.error.value}</Empty>
      ) : (
        <>
          {tokens.data.value?.length === 0 && (
            <p class="soft">No token is required, because the server accepts only connections from this machine. The first token must have role admin.</p>
          )}
          {!!tokens.data.value?.length && (
            <Scroll label="Tokens">
              <table>
                <thead>
                  <tr>
                    <th>Name</th>
                    <th>Role</th>
                    <th>Permitted names</th>
                    <th class="number">Drop</th>
                  </tr>
                </thead>
                <tbody>
                  {tokens.data.value.map((one) => (
                    <tr key={one.name}>
                      <td class="name">{one.name}</td>
                      <td>{one.role}</td>
                      <td>{one.names.join(", ") || "all"}</td>
                      <td class="number">
                        <button type="button" class="danger" onClick={() => tried(() => api.dropToken(one.name))}>
                          Drop
                        </button>
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </Scroll>
          )}
          <form class="row ends" onSubmit={add}>
            <label class="field">
              Name
              <input required value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} />
            </label>
            <label class="field">
              Role
              <select value={role.value} onChange={(event) => (role.value = event.currentTarget.value)}>
                <option value="reader">reader: read only</option>
                <option value="operator">operator: also declare and drop</option>
                <option value="admin">admin: also manage tokens</option>
              </select>
            </label>
            <label class="field">
              Permitted names
              <input placeholder="sales_*" value={names.value} onInput={(event) => (names.value = event.currentTarget.value)} />
            </label>
            <button class="main">Create a token</button>
          </form>
          {made.value && (
            <div class="notice">
              The token of {made.value.name}, shown once: <code>{made.value.token}</code>
            </div>
          )}
        </>
      )}
      <Problem text={problem.value} />
    </section>
  );
}
