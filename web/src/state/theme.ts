// Light or dark: as the system has it, until somebody says otherwise.
import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
const KEY = "slicemill-theme";

export const theme = signal<Theme>((localStorage.getItem(KEY) as Theme | null) ?? "system");
/** Counts changes of what is shown, for drawings that have to be drawn again. */
export const shownTheme = signal(0);

export function followTheme(): void {
  effect(() => {
    const root = document.documentElement;
    if (theme.value === "system") root.removeAttribute("data-theme");
    else root.dataset.theme = theme.value;
    localStorage.setItem(KEY, theme.value);
    shownTheme.value = shownTheme.peek() + 1;
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => shownTheme.value++);
}

export function nextTheme(): void {
  const dark = isDark();
  theme.value = dark ? "light" : "dark";
}

export function isDark(): boolean {
  if (theme.value !== "system") return theme.value === "dark";
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
