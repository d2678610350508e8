// Small parts that many pages use.
import type { ComponentChildren } from "preact";
import type { QueryLine } from "../api/client";

export function Figure({ what, children, tone = "" }: { what: string; children: ComponentChildren; tone?: string }) {
  return (
    <div>
      <div class="what">{what}</div>
      <div class={`value ${tone}`}>{children}</div>
    </div>
  );
}

export function Cause({ line }: { line: QueryLine }) {
  const attention = line.cause?.attention ?? 0;
  const text = line.cause?.text ?? (line.rate > 0 || line.rows > 0 ? "runs well" : "no results yet");
  return (
    <div class={attention ? "" : "soft"}>
      <span class={`dot a${attention}`} aria-hidden="true" />
      <span>{text}</span>
    </div>
  );
}

export function Problem({ text }: { text: string | null }) {
  return text ? (
    <div class="notice bad" role="alert">
      {text}
    </div>
  ) : null;
}

export function Bar({ share, label }: { share: number; label: string }) {
  const width = `${Math.min(100, Math.max(0, share * 100))}%`;
  return (
    <div class="bar" role="img" aria-label={label}>
      <i style={{ width }} />
    </div>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <div class="empty">{children}</div>;
}
