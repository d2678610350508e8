// The server's API, typed by its OpenAPI description.
import { needsToken, offline, token } from "../state/connection";
import type { components } from "./schema";

type Schemas = components["schemas"];
export type Overview = Schemas["Overview"];
export type QueryLine = Schemas["QueryLine"];
export type StreamFigures = Schemas["StreamFigures"];
export type QueryEntry = Schemas["QueryEntry"];
export type FigureColumns = Schemas["FigureColumns"];
export type MillHistory = Schemas["MillHistory"];
export type GraphBody = Schemas["GraphBody"];
export type GraphNode = Schemas["GraphNode"];
export type GraphArc = Schemas["GraphArc"];
export type ComponentLine = Schemas["ComponentLine"];
export type SliceChain = Schemas["SliceChain"];
export type StoredSlice = Schemas["StoredSliceBody"];
export type Policies = Schemas["Policies"];
export type PlanAnswer = Schemas["PlanAnswer"];
export type TokenLine = Schemas["TokenLine"];
export type ModelPicture = Schemas["ModelPicture"];
export type QueryVersion = Schemas["VersionEntry"];
export type RequestProblem = Schemas["RequestProblem"];
export type Answer = Schemas["AnswerBody"];
export type PlanPreview = Schemas["PlanPreview"];
export type AlertEntry = Schemas["AlertEntry"];
export type EditorWords = Schemas["EditorWords"];
export type Row = Record<string, unknown>;

/** The server refused; `problems` says why, for statements with places. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly problems: RequestProblem[],
  ) {
    super(problems.map((one) => one.message).join("; ") || `the server answered ${status}`);
  }
}

/** The server does not answer. */
export class Unreachable extends Error {}

export async function request(path: string, options: RequestInit = {}): Promise<Response> {
  const headers = new Headers(options.headers);
  if (token.value) headers.set("Authorization", `Bearer ${token.value}`);
  let response: Response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (problem) {
    if (options.signal?.aborted) throw problem;
    offline.value = true;
    throw new Unreachable("the server does not answer");
  }
  offline.value = false;
  if (response.ok) return response;
  if (response.status === 401) needsToken.value = true;
  const body = (await response.json().catch(() => ({ errors: [] }))) as { errors?: RequestProblem[] };
  throw new Refused(response.status, body.errors ?? []);
}

async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await request(path, { signal })).json() as Promise<T>;
}

async function post<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  const headers = { "Content-Type": "application/json" };
  const response = await request(path, { method: "POST", headers, body: JSON.stringify(body), signal });
  return response.json() as Promise<T>;
}

const part = encodeURIComponent;

export interface OverviewWish {
  search?: string;
  sort?: string;
  limit?: number;
  offset?: number;
}

export const api = {
  overview: ({ search = "", sort = "attention", limit = 50, offset = 0 }: OverviewWish, signal?: AbortSignal) =>
    get<Overview>(`/v1/overview?search=${part(search)}&sort=${sort}&limit=${limit}&offset=${offset}`, signal),
  query: (name: string, signal?: AbortSignal) => get<QueryEntry>(`/v1/queries/${part(name)}`, signal),
  line: (name: string, signal?: AbortSignal) => get<QueryLine>(`/v1/queries/${part(name)}/line`, signal),
  versions: (name: string, signal?: AbortSignal) =>
    get<QueryVersion[]>(`/v1/queries/${part(name)}/versions`, signal).then((found) => found.reverse()),
  history: (name: string, signal?: AbortSignal) => get<FigureColumns>(`/v1/history/${part(name)}`, signal),
  millHistory: (signal?: AbortSignal) => get<MillHistory>("/v1/history", signal),
  words: (signal?: AbortSignal) => get<EditorWords>("/v1/words", signal),
  explain: async (name: string, signal?: AbortSignal) => (await request(`/v1/queries/${part(name)}/explain`, { signal })).text(),
  graph: (options: Record<string, string>, signal?: AbortSignal) =>
    get<GraphBody>(`/v1/graph?${new URLSearchParams(options)}`, signal),
  components: (signal?: AbortSignal) => get<ComponentLine[]>("/v1/graph/components", signal),
  chains: (signal?: AbortSignal) => get<SliceChain[]>("/v1/slices", signal),
  slices: (query: string, signal?: AbortSignal) => get<SliceChain[]>(`/v1/slices/${part(query)}`, signal),
  alerts: (signal?: AbortSignal) => get<AlertEntry[]>("/v1/alerts", signal),
  policies: (signal?: AbortSignal) => get<Policies>("/v1/policies", signal),
  simulate: (body: Schemas["PlanRequest"]) => post<PlanAnswer>("/v1/simulate", body),
  models: (signal?: AbortSignal) => get<ModelPicture[]>("/v1/models", signal),
  tokens: (signal?: AbortSignal) => get<TokenLine[]>("/v1/tokens", signal),
  addToken: (body: { name: string; role: string; names: string[] }) =>
    post<Schemas["MadeToken"]>("/v1/tokens", body),
  dropToken: async (name: string) => void (await request(`/v1/tokens/${part(name)}`, { method: "DELETE" })),
  check: (text: string, signal?: AbortSignal) =>
    post<Schemas["RefusedRequest"]>("/v1/check", { text }, signal),
  preview: (text: string, signal?: AbortSignal) => post<PlanPreview>("/v1/preview", { text }, signal),
  run: (text: string) => post<Schemas["StatementAnswers"]>("/v1/statements", { text }),
  download: async (path: string, accept: string, name: string) => {
    const blob = await (await request(path, { headers: { Accept: accept } })).blob();
    save(blob, name);
  },
};

export function save(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
