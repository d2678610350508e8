// A small line chart over time, by uPlot, in the colours of the theme.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { colour, shownTheme } from "../state/theme";

export interface Line {
  name: string;
  values: (number | null)[];
  colour: "accent" | "blue" | "violet" | "warn" | "bad";
}

interface ChartProps {
  title: string;
  at: (number | null)[];
  lines: Line[];
  shown: (value: number | null) => string;
  marks?: { at: number; text: string }[];
  time?: boolean;
  height?: number;
}

export function Chart({ title, at, lines, shown, marks = [], time = true, height = 110 }: ChartProps) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const marked = useRef(marks);
  marked.current = marks;
  const look = shownTheme.value;
  const names = lines.map((line) => line.name).join();
  useEffect(() => {
    const host = place.current!;
    const axis = { stroke: colour("soft"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "10px system-ui" };
    const chart = new uPlot(
      {
        width: host.clientWidth || 280,
        height,
        legend: { show: false },
        cursor: { y: false, points: { size: 5 } },
        scales: { x: { time }, y: { range: (_, __, most) => [0, most > 0 ? most * 1.1 : 1] } },
        axes: [
          { ...axis, size: 22, space: 70, ...(time ? { values: (_: uPlot, splits: number[]) => splits.map(hours) } : {}) },
          { ...axis, size: 52, space: 32, values: (_: uPlot, splits: number[]) => splits.map((value) => shown(value)) },
        ],
        series: [
          {},
          ...lines.map((line) => ({ label: line.name, stroke: colour(line.colour), width: 1.6, spanGaps: true, points: { show: false } })),
        ],
        hooks: { draw: [(drawn) => drawMarks(drawn, marked.current)] },
      },
      [at as number[], ...lines.map((line) => line.values)],
      host,
    );
    plot.current = chart;
    const resized = new ResizeObserver(() => chart.setSize({ width: host.clientWidth, height }));
    resized.observe(host);
    return () => {
      resized.disconnect();
      chart.destroy();
    };
  }, [look, names, height]);
  useEffect(() => {
    plot.current?.setData([at as number[], ...lines.map((line) => line.values)]);
  }, [at, lines]);
  const words = lines.map((line) => `${lines.length > 1 ? `${line.name} ` : ""}${shown(last(line.values))}`).join(" · ");
  return (
    <div class="chart" role="img" aria-label={`${title}: ${words}`}>
      <h3>
        <span>{title}</span>
        <b>
          {lines.length > 1
            ? lines.map((line) => (
                <span style={{ color: `var(--${line.colour})` }}>
                  {line.name} {shown(last(line.values))}
                </span>
              ))
            : words}
        </b>
      </h3>
      <div class="plot" style={{ height: `${height}px` }} ref={place} />
    </div>
  );
}

function drawMarks(chart: uPlot, marks: { at: number; text: string }[]): void {
  const { ctx } = chart;
  for (const mark of marks) {
    const x = chart.valToPos(mark.at, "x", true);
    if (x < chart.bbox.left || x > chart.bbox.left + chart.bbox.width) continue;
    ctx.save();
    ctx.strokeStyle = colour("warn");
    ctx.fillStyle = colour("warn");
    ctx.beginPath();
    ctx.moveTo(x, chart.bbox.top);
    ctx.lineTo(x, chart.bbox.top + chart.bbox.height);
    ctx.stroke();
    ctx.font = `${11 * devicePixelRatio}px system-ui`;
    ctx.textAlign = "left";
    ctx.fillText(mark.text, x + 4, chart.bbox.top + 12 * devicePixelRatio);
    ctx.restore();
  }
}

const hours = (seconds: number): string => new Date(seconds * 1000).toTimeString().slice(0, 8);

export function last(values: (number | null)[]): number | null {
  for (let place = values.length - 1; place >= 0; place--) {
    const value = values[place];
    if (value !== null && value !== undefined) return value;
  }
  return null;
}
