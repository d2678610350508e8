// Server-sent events as text.
export interface ServerEvent {
  event: string;
  data: string;
  id: string;
}

/** Cuts a text of events into events; what is not whole yet stays in `rest`. */
export function cutEvents(text: string): { events: ServerEvent[]; rest: string } {
  const blocks = text.split("\n\n");
  const rest = blocks.pop() ?? "";
  const events: ServerEvent[] = [];
  for (const block of blocks) {
    const found: ServerEvent = { event: "message", data: "", id: "" };
    for (const line of block.split("\n")) {
      const at = line.indexOf(": ");
      if (at <= 0) continue;
      const field = line.slice(0, at);
      if (field === "event" || field === "data" || field === "id") found[field] = line.slice(at + 2);
    }
    if (found.data) events.push(found);
  }
  return { events, rest };
}
