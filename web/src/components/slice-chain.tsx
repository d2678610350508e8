// The state of a join as a picture: slices by age, how full they are, and how far each query reaches.
import type { SliceChain, StoredSlice } from "../api/client";
import { bytes, clock, count, span } from "../format";
import { Scroll } from "./small";

const WIDTH = 880;
const LEFT = 222;
const BOX = 36;
const STRIP = 4;
const MOST_STRIPS = 6;
const REACH = 17;
const LETTER = 6.4;
const INKS = ["var(--accent)", "var(--violet)", "var(--blue)", "var(--warn)", "var(--good)", "var(--bad)"];

export interface ChainLayout {
  newest: number;
  oldestAge: number;
  lanes: { label: string; slices: StoredSlice[] }[];
  reaches: { query: string; age: number; rows: number }[];
}

/** Lanes by part and subtask, and how old the oldest row is that the join of each query can meet. */
export function layOut(chain: SliceChain): ChainLayout {
  const newest = Math.max(0, ...chain.slices.map((slice) => slice.latest_us));
  const age = (us: number): number => (newest - us) / 1e6;
  const lanes = new Map<string, StoredSlice[]>();
  const reaches = new Map<string, { age: number; rows: number }>();
  for (const slice of chain.slices) {
    const worker = slice.worker === null || slice.worker === undefined ? "" : ` · worker ${slice.worker}`;
    const label = `${slice.part} · subtask ${slice.subtask}${worker}`;
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
    reaches: [...reaches]
      .map(([query, found]) => ({ query, rows: found.rows, age: Math.min(found.age, chain.reaches[query] ?? Infinity) }))
      .sort((a, b) => b.age - a.age),
  };
}

/** The first of some texts that fits. */
export function fitting(width: number, ...texts: string[]): string {
  return texts.find((text) => text.length * LETTER <= width) ?? "";
}

export interface SubtaskLoad {
  subtask: number;
  rows: number;
  bytes: number;
}

/** The subtasks of a chain by the worker that has them. */
export function subtasksOverWorkers(chain: SliceChain): { worker: string; subtasks: SubtaskLoad[] }[] {
  const found = new Map<string, Map<number, SubtaskLoad>>();
  for (const slice of chain.slices) {
    const worker = slice.worker === null || slice.worker === undefined ? "none" : String(slice.worker);
    const subtasks = found.get(worker) ?? new Map<number, SubtaskLoad>();
    const before = subtasks.get(slice.subtask) ?? { subtask: slice.subtask, rows: 0, bytes: 0 };
    subtasks.set(slice.subtask, { subtask: slice.subtask, rows: before.rows + slice.rows, bytes: before.bytes + slice.bytes });
    found.set(worker, subtasks);
  }
  return [...found]
    .sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }))
    .map(([worker, subtasks]) => ({ worker, subtasks: [...subtasks.values()].sort((a, b) => a.subtask - b.subtask) }));
}

export interface CutTrack {
  label: string;
  points: { at: number; ages: number[] }[];
}

/** By part and subtask, where it was cut and since when. */
export function cutTracks(chain: SliceChain): CutTrack[] {
  const found = new Map<string, CutTrack>();
  for (const move of chain.moves) {
    const label = `${move.part} · subtask ${move.subtask}`;
    const track = found.get(label) ?? { label, points: [] };
    track.points.push({ at: move.at_s, ages: move.used });
    found.set(label, track);
  }
  return [...found.values()].sort((a, b) => a.label.localeCompare(b.label));
}

/** Cuts as they moved: time from left to right, age upwards. */
export function CutsOverTime({ chain, now }: { chain: SliceChain; now: number }) {
  const tracks = cutTracks(chain);
  const from = Math.min(now - 1, ...chain.moves.map((move) => move.at_s));
  const most = Math.max(1e-6, ...chain.moves.flatMap((move) => move.used));
  const [width, height] = [440, 110];
  const x = (at: number): number => 52 + ((width - 62) * (at - from)) / (now - from);
  const y = (age: number): number => height - 18 - ((height - 32) * age) / most;
  return (
    <svg class="slices" viewBox={`0 0 ${width} ${height}`} style={{ width: "100%" }} role="img" aria-label="Slice borders (ages) over time">
      <text x={0} y={y(most) + 4}>
        {span(most)}
      </text>
      <text x={0} y={y(0) + 4}>
        newest
      </text>
      <text x={x(from)} y={height - 2}>
        {clock(from)}
      </text>
      <text x={x(now)} y={height - 2} text-anchor="end">
        now
      </text>
      <line x1={x(from)} x2={x(now)} y1={y(0)} y2={y(0)} stroke="var(--line)" />
      {tracks.map((track, index) =>
        track.points.map((point, place) =>
          point.ages.map((age) => (
            <line
              class="cut"
              x1={x(point.at)}
              x2={x(track.points[place + 1]?.at ?? now)}
              y1={y(age)}
              y2={y(age)}
              stroke={INKS[index % INKS.length]}
            >
              <title>{`${track.label}: slice border at age ${span(age)} since ${clock(point.at)}`}</title>
            </line>
          )),
        ),
      )}
    </svg>
  );
}

export function ChainPicture({ chain }: { chain: SliceChain }) {
  const { newest, oldestAge, lanes, reaches } = layOut(chain);
  const masks = reaches.slice(0, MOST_STRIPS).map((reach) => reach.query);
  const ROW = BOX + masks.length * STRIP + 9;
  const most = Math.max(1, ...chain.slices.map((slice) => slice.rows));
  const x = (seconds: number): number => LEFT + (WIDTH - LEFT - 10) * (1 - seconds / oldestAge);
  const top = 24;
  const reachTop = top + lanes.length * ROW + 14;
  const shownReaches = reaches.slice(0, 24);
  const height = reachTop + shownReaches.length * REACH + 8;
  const cuts = [...new Set(chain.cuts.flatMap((cut) => cut.used))].filter((at) => at > 0 && at < oldestAge);
  return (
    <Scroll label={`Slices of ${chain.task}`}>
      <svg class="slices" viewBox={`0 0 ${WIDTH} ${height}`} style={{ minWidth: "620px", width: "100%" }} role="img" aria-label={`Slices of ${chain.task} by age`}>
        {[0, 0.25, 0.5, 0.75, 1].map((share) => (
          <text x={x(share * oldestAge)} y={14} text-anchor={share === 0 ? "end" : share === 1 ? "start" : "middle"}>
            {share === 0 ? "newest" : `${span(share * oldestAge)} old`}
          </text>
        ))}
        {lanes.map(({ label, slices }, lane) => (
          <g>
            <text x={0} y={top + lane * ROW + 19}>
              {label.length > 36 ? `${label.slice(0, 35)}…` : label}
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
                    height={ROW - 6}
                    rx={3}
                    fill="var(--accent)"
                    fill-opacity={0.15 + (0.55 * slice.rows) / most}
                  >
                    <title>{`${count(slice.rows)} rows, ${bytes(slice.bytes)}\n${Object.entries(slice.wanted)
                      .map(([query, rows]) => `${query}: ${count(rows)}`)
                      .join("\n")}`}</title>
                  </rect>
                  <text class="ink" x={from + 6} y={top + lane * ROW + 20}>
                    {fitting(width - 8, `${count(slice.rows)} rows`, count(slice.rows))}
                  </text>
                  <text class="ink faint" x={from + 6} y={top + lane * ROW + 33}>
                    {fitting(width - 8, bytes(slice.bytes))}
                  </text>
                  {masks.map((query, place) => {
                    const share = slice.rows ? (slice.wanted[query] ?? 0) / slice.rows : 0;
                    return share > 0 ? (
                      <rect
                        class="mask"
                        x={from + 2}
                        y={top + lane * ROW + BOX + 1 + place * STRIP}
                        width={Math.max(1, (width - 4) * Math.min(1, share))}
                        height={STRIP - 1}
                        fill={INKS[place % INKS.length]}
                      >
                        <title>{`${count(slice.wanted[query])} of ${count(slice.rows)} rows are for ${query}`}</title>
                      </rect>
                    ) : null;
                  })}
                </g>
              );
            })}
          </g>
        ))}
        {cuts.map((at) => (
          <line x1={x(at)} x2={x(at)} y1={top} y2={reachTop - 10} stroke="var(--bad)" stroke-dasharray="4 3">
            <title>{`slice border at age ${span(at)}`}</title>
          </line>
        ))}
        {shownReaches.map(({ query, age, rows }, place) => (
          <g>
            <text x={0} y={reachTop + place * REACH + 4} style={{ fill: INKS[place % INKS.length] }}>
              {query.length > 24 ? `${query.slice(0, 23)}…` : query}
            </text>
            <text x={LEFT - 12} y={reachTop + place * REACH + 4} text-anchor="end">
              {span(chain.reaches[query] ?? age)}
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
    </Scroll>
  );
}
