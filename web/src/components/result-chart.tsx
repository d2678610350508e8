// Rows of an answer as a chart.
import { useMemo } from "preact/hooks";
import type { Row } from "../api/client";
import { count } from "../format";
import { Chart } from "./chart";
import { INKS, numbersOf, type ChartPlan } from "./chart-plan";

export function ResultChart({ plan, rows }: { plan: ChartPlan; rows: Row[] }) {
  const drawn = useMemo(() => {
    const at = plan.kind === "time" ? rows.map((row) => Date.parse(String(row[plan.x])) / 1000) : rows.map((_, index) => index + 1);
    const order = at.map((_, index) => index).sort((a, b) => at[a]! - at[b]!);
    const lines = plan.ys.map((name, index) => {
      const values = numbersOf(rows, name);
      return { name, colour: INKS[index % INKS.length]!, values: order.map((place) => values[place]!) };
    });
    return { at: order.map((place) => at[place]!), lines };
  }, [plan, rows]);
  if (plan.kind === "bars") return <Bars plan={plan} rows={rows} />;
  const title = plan.kind === "time" ? `By ${plan.x}` : "By row";
  return <Chart title={title} time={plan.kind === "time"} height={220} at={drawn.at} lines={drawn.lines} shown={count} />;
}

function Bars({ plan, rows }: { plan: ChartPlan; rows: Row[] }) {
  return (
    <div class="columns">
      {plan.ys.slice(0, 4).map((y, index) => {
        const values = numbersOf(rows, y);
        const most = Math.max(1e-12, ...values.map((value) => Math.abs(value ?? 0)));
        return (
          <figure class="bars" aria-label={`${y} by ${plan.x}`}>
            <figcaption>
              {y} by {plan.x}
            </figcaption>
            {rows.map((row, place) => (
              <div>
                <span>{String(row[plan.x] ?? "∅")}</span>
                <i style={{ width: `${(60 * Math.abs(values[place] ?? 0)) / most}%`, background: `var(--${INKS[index % INKS.length]})` }} />
                <b>{count(values[place])}</b>
              </div>
            ))}
          </figure>
        );
      })}
    </div>
  );
}
