// Numbers for people: short, and never "NaN".
const NOTHING = "–";

export function count(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NOTHING;
  const size = Math.abs(value);
  if (size >= 1e9) return `${round(value / 1e9)} G`;
  if (size >= 1e6) return `${round(value / 1e6)} M`;
  if (size >= 1e4) return `${round(value / 1e3)} k`;
  return Number.isInteger(value) ? value.toLocaleString("en") : round(value);
}

export function rate(value: number | null | undefined): string {
  return value === null || value === undefined ? NOTHING : `${count(value)}/s`;
}

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return NOTHING;
  const names = ["B", "kB", "MB", "GB", "TB"];
  let size = value;
  let place = 0;
  while (size >= 1000 && place < names.length - 1) {
    size /= 1000;
    place++;
  }
  return `${round(size)} ${names[place]}`;
}

export function milliseconds(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NOTHING;
  return value >= 1000 ? `${round(value / 1000)} s` : `${round(value)} ms`;
}

/** What a row costs: micro- or milliseconds, with two digits. */
export function microseconds(value: number): string {
  return value >= 1000 ? milliseconds(Number((value / 1000).toPrecision(2))) : `${count(Number(value.toPrecision(2)))} µs`;
}

export function percent(value: number | null | undefined): string {
  return value === null || value === undefined || !Number.isFinite(value) ? NOTHING : `${round(value * 100)} %`;
}

export function times(value: number | null | undefined): string {
  return value === null || value === undefined || !Number.isFinite(value) ? NOTHING : `${round(value)}×`;
}

/** A moment of event time; streams that count from 0 show their seconds. */
export function moment(us: number | null | undefined): string {
  if (us === null || us === undefined) return NOTHING;
  if (us < 120_000_000) return span(us / 1e6);
  if (us < 86_400_000_000 * 365) return hours(us / 1e6);
  return new Date(us / 1000).toISOString().slice(11, 23);
}

/** Cut the milliseconds of a time of day, where there is no room for them. */
export function wholeSeconds(moment: string): string {
  return moment.replace(/(:\d\d)\.\d+$/, "$1");
}

/** 3:05:07, for what is compared to the second. */
function hours(seconds: number): string {
  const two = (number: number): string => String(Math.floor(number)).padStart(2, "0");
  return `${Math.floor(seconds / 3600)}:${two((seconds / 60) % 60)}:${two(seconds % 60)}`;
}

export function span(seconds: number): string {
  if (!Number.isFinite(seconds)) return NOTHING;
  if (seconds >= 86_400) return `${round(seconds / 86_400)} d`;
  if (seconds >= 3600) return `${round(seconds / 3600)} h`;
  if (seconds >= 120) return `${round(seconds / 60)} min`;
  return `${round(seconds)} s`;
}

export function clock(seconds: number): string {
  return new Date(seconds * 1000).toTimeString().slice(0, 8);
}

function round(value: number): string {
  const size = Math.abs(value);
  if (size >= 100) return Math.round(value).toLocaleString("en");
  if (size >= 10) return trim(value.toFixed(1));
  if (size >= 0.01 || size === 0) return trim(value.toFixed(2));
  return value.toPrecision(1);
}

function trim(text: string): string {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

export function plural(number: number, one: string, many = `${one}s`): string {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** A service level in short: p99 < 2 s. */
export function level(text: string): string {
  return text.replace(/ milliseconds?\b/g, " ms").replace(/ seconds?\b/g, " s").replace(/ minutes?\b/g, " min");
}
