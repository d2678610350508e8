// The state of a join as a picture: slices by age, how full they are, and how far each query reaches.
import type { SliceChain, StoredSlice } from "../api/client";
import { bytes, count, span } from "../format";

const WIDTH = 880;
const LEFT = 186;
const ROW = 34;
const REACH = 17;
const LETTER = 6.4;
const INKS = ["var(--accent)", "var(--violet)", "var(--blue)", "var(--warn)", "var(--good)", "var(--bad)"];

export interface ChainLayout {
  newest: number;
  oldestAge: number;
  lanes: { label: string; slices: StoredSlice[] }[];
  reaches: { query: string; age: number; rows: number }[];
}

/** Lanes by part and cell, and how old the oldest row is that each query may still see. */
export function layOut(chain: SliceChain): ChainLayout {
  const newest = Math.max(0, ...chain.slices.map((slice) => slice.latest_us));
  const age = (us: number): number => (newest - us) / 1e6;
  const lanes = new Map<string, StoredSlice[]>();
  const reaches = new Map<string, { age: number; rows: number }>();
  for (const slice of chain.slices) {
    const worker = slice.worker === null || slice.worker === undefined ? "" : ` · worker ${slice.worker}`;
    const label = `${slice.part} · cell ${slice.cell}${worker}`;
    lanes.set(label, [...(lanes.get(label) ?? []), slice]);
    for (const [query, rows] of Object.entries(slice.wanted)) {
      if (!rows) continue;
      const before = reaches.get(query) ?? { age: 0, rows: 0 };
      reaches.set(query, { age: Math.max(before.age, age(slice.earliest_us)), rows: before.rows + rows });
    }
  }
  const oldestAge = Math.max(1e-6, ...chain.slices.map((slice) => age(slice.earliest_us)));
  return {
    newest,
    oldestAge,
    lanes: [...lanes].sort(([a], [b]) => a.localeCompare(b)).map(([label, slices]) => ({ label, slices })),
    reaches: [...reaches].map(([query, found]) => ({ query, ...found })).sort((a, b) => b.age - a.age),
  };
}

/** The first of some texts that fits. */
export function fitting(width: number, ...texts: string[]): string {
  return texts.find((text) => text.length * LETTER <= width) ?? "";
}

export function ChainPicture({ chain }: { chain: SliceChain }) {
  const { newest, oldestAge, lanes, reaches } = layOut(chain);
  const most = Math.max(1, ...chain.slices.map((slice) => slice.rows));
  const x = (seconds: number): number => LEFT + (WIDTH - LEFT - 10) * (1 - seconds / oldestAge);
  const top = 24;
  const reachTop = top + lanes.length * ROW + 14;
  const shownReaches = reaches.slice(0, 24);
  const height = reachTop + shownReaches.length * REACH + 8;
  const cuts = [...new Set(chain.cuts.flatMap((cut) => cut.used))].filter((at) => at > 0 && at < oldestAge);
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={`Slices of ${chain.unit}`}>
      <svg class="slices" viewBox={`0 0 ${WIDTH} ${height}`} style={{ minWidth: "620px", width: "100%" }} role="img" aria-label={`Slices of ${chain.unit} by age`}>
        {[0, 0.25, 0.5, 0.75, 1].map((share) => (
          <text x={x(share * oldestAge)} y={14} text-anchor={share === 0 ? "end" : share === 1 ? "start" : "middle"}>
            {share === 0 ? "newest" : `${span(share * oldestAge)} old`}
          </text>
        ))}
        {lanes.map(({ label, slices }, lane) => (
          <g>
            <text x={0} y={top + lane * ROW + 19}>
              {label.length > 32 ? `${label.slice(0, 31)}…` : label}
              <title>{label}</title>
            </text>
            {slices.map((slice) => {
              const from = x((newest - slice.earliest_us) / 1e6);
              const to = x((newest - slice.latest_us) / 1e6);
              const width = Math.max(3, to - from);
              return (
                <g>
                  <rect
                    class="slice"
                    x={from}
                    y={top + lane * ROW + 3}
                    width={width}
                    height={ROW - 8}
                    rx={3}
                    fill="var(--accent)"
                    fill-opacity={0.15 + (0.55 * slice.rows) / most}
                  >
                    <title>{`${count(slice.rows)} rows, ${bytes(slice.bytes)}\n${Object.entries(slice.wanted)
                      .map(([query, rows]) => `${query}: ${count(rows)}`)
                      .join("\n")}`}</title>
                  </rect>
                  <text class="ink" x={from + 6} y={top + lane * ROW + 20}>
                    {fitting(width - 8, `${count(slice.rows)} rows · ${bytes(slice.bytes)}`, `${count(slice.rows)} rows`, count(slice.rows))}
                  </text>
                </g>
              );
            })}
          </g>
        ))}
        {cuts.map((at) => (
          <line x1={x(at)} x2={x(at)} y1={top} y2={reachTop - 10} stroke="var(--bad)" stroke-dasharray="4 3">
            <title>{`cut at ${span(at)}`}</title>
          </line>
        ))}
        {shownReaches.map(({ query, age, rows }, place) => (
          <g>
            <text x={0} y={reachTop + place * REACH + 4}>
              {query.length > 22 ? `${query.slice(0, 21)}…` : query}
            </text>
            <line
              class="reach"
              x1={x(age)}
              x2={x(0)}
              y1={reachTop + place * REACH}
              y2={reachTop + place * REACH}
              stroke={INKS[place % INKS.length]}
            >
              <title>{`${query} reaches ${span(age)} back: ${count(rows)} rows`}</title>
            </line>
          </g>
        ))}
      </svg>
    </div>
  );
}
