import type { Row } from "../api/client";
import { Scroll } from "./small";

const MOST = 500;
const SHORT = 32; // letters: a time, say, is not broken into two lines

/** Rows as a table; columns in the order of the first row. */
export function RowsTable({ rows, label }: { rows: Row[]; label: string }) {
  const first = rows[0];
  if (!first) return <div class="empty">No rows.</div>;
  const names = Object.keys(first);
  const numeric = new Set(names.filter((name) => rows.every((row) => row[name] === null || typeof row[name] === "number")));
  return (
    <Scroll label={label} high="420px">
      <table>
        <thead>
          <tr>
            {names.map((name) => (
              <th class={numeric.has(name) ? "number" : ""}>{name}</th>
            ))}
          </tr>
        </thead>
        <tbody class="mono">
          {rows.slice(0, MOST).map((row) => (
            <tr>
              {names.map((name) => {
                const shown = shownValue(row[name]);
                const short = shown.length <= SHORT ? "short" : "";
                return <td class={numeric.has(name) ? "number" : short}>{shown}</td>;
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

export function shownValue(value: unknown): string {
  if (value === null || value === undefined) return "∅";
  if (typeof value === "object") return JSON.stringify(value);
  return String(value);
}
