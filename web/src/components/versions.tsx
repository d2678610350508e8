// The statement of a query, what it was before, and what changed.
import { useSignal } from "@preact/signals";
import type { QueryVersion } from "../api/client";
import { diffLines } from "./diff";
import { Empty } from "./small";

export function Versions({ found }: { found: QueryVersion[] }) {
  const compared = useSignal(1);
  const older = found[compared.value];
  const newest = found[0];
  return (
    <div class="wide-left">
      <section class="card">
        <h2>{older ? `What changed since ${when(older)}` : "Statement"}</h2>
        {newest && older ? (
          <pre>
            {diffLines(older.text, newest.text).map((line) => (
              <div class={line.kind}>
                {{ same: "  ", added: "+ ", removed: "- " }[line.kind]}
                {line.text}
              </div>
            ))}
          </pre>
        ) : (
          <pre>{newest?.text}</pre>
        )}
      </section>
      <section class="card">
        <h2>Versions</h2>
        {found.length === 0 && <Empty>…</Empty>}
        <ul class="versions" aria-label="Versions">
          {found.map((version, place) => (
            <li class="row small">
              <span>{when(version)}</span>
              <span class="soft">{version.by && `by ${version.by}`}</span>
              <span class="space" />
              {place === 0 ? (
                <span class="badge good">now</span>
              ) : (
                <button type="button" aria-pressed={place === compared.value} onClick={() => (compared.value = place)}>
                  Compare
                </button>
              )}
            </li>
          ))}
        </ul>
      </section>
    </div>
  );
}

function when(version: QueryVersion): string {
  return new Date(version.at).toLocaleString();
}
