// Whether the server answers, and whether it wants a token.
import { signal } from "@preact/signals";

const TOKEN = "slicemill-token";

export const offline = signal(false);
export const needsToken = signal(false);
export const token = signal<string>(sessionStorage.getItem(TOKEN) ?? "");

/** Kept until the tab is closed, and nowhere else. */
export function useToken(text: string): void {
  token.value = text.trim();
  if (token.value) sessionStorage.setItem(TOKEN, token.value);
  else sessionStorage.removeItem(TOKEN);
  needsToken.value = false;
}
