// Small parts that many pages use.
import type { ComponentChildren } from "preact";
import type { QueryLine } from "../api/client";
import { level } from "../format";
import { hashOf } from "../state/router";

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
  const text = line.cause?.text ?? (line.rate > 0 || line.rows > 0 ? "no delay" : "no results yet");
  return (
    <div class={attention ? "" : "soft"}>
      <span class={`dot a${attention}`} aria-hidden="true" />
      <span>{level(text)}</span>
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

/** What may be wider or higher than its place; the keyboard scrolls it too. */
export function Scroll({ label, high = "", children }: { label: string; high?: string; children: ComponentChildren }) {
  return (
    <div class="scroll" style={{ maxHeight: high }} tabIndex={0} role="region" aria-label={label}>
      {children}
    </div>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <div class="empty">{children}</div>;
}

/** Where there is no query yet. */
export function StartHere() {
  return (
    <>
      No query runs yet. Write one in the <a href={hashOf("editor")}>editor</a>, which has examples.
    </>
  );
}

/** A name that may break behind its underscores, where space is short. */
export function Name({ of }: { of: string }) {
  return (
    <>
      {of.split(/(?<=_)/).map((part, place) => (
        <>
          {place > 0 && <wbr />}
          {part}
        </>
      ))}
    </>
  );
}

const TONES: Record<string, string> = { running: "good", failed: "bad" };

/** The state of a query as a badge. */
export function State({ of }: { of: string }) {
  return <span class={`badge ${TONES[of] ?? "warn"}`}>{of}</span>;
}
