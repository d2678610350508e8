// How a query did over time: one small chart for each figure that it has.
import { useMemo } from "preact/hooks";
import type { FigureColumns } from "../api/client";
import { bytes, count, milliseconds, percent, rate, span, times } from "../format";
import { Chart, type Line } from "./chart";
import { Empty } from "./small";

interface ChartLook {
  title: string;
  shown: (value: number | null) => string;
  lines: [string, string, Line["colour"]][];
}

const CHARTS: ChartLook[] = [
  { title: "Results", shown: rate, lines: [["rate", "rate", "accent"]] },
  { title: "Response time", shown: milliseconds, lines: [["p50_ms", "p50", "accent"], ["p99_ms", "p99", "warn"]] },
  { title: "Slowdown", shown: times, lines: [["slowdown", "slowdown", "violet"]] },
  { title: "Staleness", shown: percent, lines: [["staleness", "stale", "blue"]] },
  { title: "Lag behind input streams", shown: (value) => (value === null ? "–" : span(value)), lines: [["lag_s", "lag", "violet"]] },
  { title: "Pending rows", shown: count, lines: [["rows_waiting", "waiting", "warn"]] },
  { title: "State", shown: bytes, lines: [["state_bytes", "state", "blue"]] },
  { title: "CPU share", shown: percent, lines: [["cpu", "cpu", "accent"]] },
  { title: "Rows dropped", shown: count, lines: [["shed", "dropped", "bad"]] },
  { title: "Accuracy", shown: percent, lines: [["accuracy", "accuracy", "accent"]] },
];

export function QueryHistory({ found }: { found: FigureColumns }) {
  const charts = useMemo(
    () =>
      CHARTS.map((chart) => ({
        ...chart,
        drawn: chart.lines.map(([column, name, colour]) => ({ name, colour, values: found.columns[column] ?? [] })),
      })).filter((chart) => chart.drawn.some((line) => line.values.some((value) => value !== null))),
    [found],
  );
  const at = found.columns.at ?? [];
  return (
    <section class="card">
      <h2>
        The last half hour <span class="soft small">one sample every 5 s</span>
      </h2>
      {at.length < 2 ? (
        <Empty>Charts appear after the second sample.</Empty>
      ) : (
        <div class="charts">
          {charts.map((chart) => (
            <Chart key={chart.title} title={chart.title} at={at} lines={chart.drawn} shown={chart.shown} />
          ))}
        </div>
      )}
    </section>
  );
}

