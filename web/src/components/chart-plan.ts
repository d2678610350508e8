// How rows are drawn: over time where there is a time, as bars where there are names, else by row.
import type { Answer, Row } from "../api/client";

export const INKS = ["accent", "violet", "blue"] as const;
const MOST_BARS = 40;
type Column = NonNullable<Answer["columns"]>[number];

export interface ChartPlan {
  kind: "time" | "bars" | "rows";
  x: string;
  ys: string[];
}

/** How to draw some columns; null where there is nothing to draw. */
export function chartPlan(columns: Column[], rows: Row[]): ChartPlan | null {
  const isNumber = (column: Column): boolean => /^(u?int|float|double|decimal)/.test(column.type);
  const ys = columns.filter(isNumber).map((column) => column.name);
  if (!ys.length || rows.length < 2) return null;
  const time = columns.find((column) => column.type.startsWith("timestamp"));
  if (time) return { kind: "time", x: time.name, ys: ys.slice(0, INKS.length) };
  const name = columns.find((column) => /^(string|large_string|bool)/.test(column.type));
  if (name && rows.length <= MOST_BARS) return { kind: "bars", x: name.name, ys };
  return { kind: "rows", x: "", ys: ys.slice(0, INKS.length) };
}

/** Numbers of a column; decimals come as text. */
export function numbersOf(rows: Row[], column: string): (number | null)[] {
  return rows.map((row) => {
    const value = row[column];
    return value === null || value === undefined || value === "" || !Number.isFinite(Number(value)) ? null : Number(value);
  });
}
