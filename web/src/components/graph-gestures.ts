// What fingers, a mouse, a wheel and keys do to a view of a graph.
export interface Point {
  x: number;
  y: number;
}

/** Where the drawing's corner is, and how large it is drawn. */
export interface View extends Point {
  scale: number;
}

const LEAST = 0.08;
const MOST = 2.5;
const STEP = 60;
const KEY_ZOOM = 1.3;
const A_CLICK = 4; // pixels that a hand may tremble
const WHEEL = 500; // pixels of a wheel for a factor of e
const PINCH = 100; // trackpads send pinches as a wheel with ctrl, in small steps
const LINE = 16; // pixels, where a wheel counts lines
const ARROWS: Record<string, Point> = {
  ArrowLeft: { x: 1, y: 0 },
  ArrowRight: { x: -1, y: 0 },
  ArrowUp: { x: 0, y: 1 },
  ArrowDown: { x: 0, y: -1 },
};

/** A view that is larger by a factor, where the point under `at` stays. */
export function zoomed(view: View, factor: number, at: Point): View {
  const scale = Math.min(MOST, Math.max(LEAST, view.scale * factor));
  const kept = scale / view.scale;
  return { scale, x: at.x - (at.x - view.x) * kept, y: at.y - (at.y - view.y) * kept };
}

/** A view moved by a finger, or by two, whose distance is its size: what is under them stays under them. */
export function fingered(view: View, before: readonly Point[], after: readonly Point[]): View {
  const [was, now] = [middle(before), middle(after)];
  const moved = { ...view, x: view.x + now.x - was.x, y: view.y + now.y - was.y };
  const apart = distance(before);
  return apart > 0 ? zoomed(moved, distance(after) / apart, now) : moved;
}

/** By how much a turn of the wheel zooms. */
export function wheelFactor({ deltaY, deltaMode, ctrlKey }: Pick<WheelEvent, "deltaY" | "deltaMode" | "ctrlKey">): number {
  const pixels = deltaMode === 1 ? deltaY * LINE : deltaY;
  // A mouse with ctrl turns by whole notches, which are no small steps.
  return Math.exp(-pixels / (ctrlKey && Math.abs(pixels) < PINCH / 2 ? PINCH : WHEEL));
}

export interface Hand {
  view: () => View;
  show: (view: View) => void;
  /** Whether it is being moved by hand. */
  held: (now: boolean) => void;
}

/** Let a hand move what is in `host`, until what is returned is called. */
export function followHand(host: HTMLElement, { view, show, held }: Hand): () => void {
  const fingers = new Map<number, Point>();
  let began: Point = { x: 0, y: 0 };
  let dragged = false;
  const within = (event: MouseEvent): Point => {
    const { left, top } = host.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  };
  const two = (): Point[] => [...fingers.values()].slice(0, 2);

  const pressed = (event: PointerEvent): void => {
    if (event.pointerType === "mouse") fingers.clear(); // its button may have come up outside of the window
    if (!fingers.size) {
      began = within(event);
      dragged = false;
    }
    fingers.set(event.pointerId, within(event));
    held(true);
  };
  const moved = (event: PointerEvent): void => {
    if (!fingers.has(event.pointerId)) return;
    if (!event.buttons) return released(event);
    const now = within(event);
    dragged ||= fingers.size > 1 || distance([began, now]) > A_CLICK;
    const before = two();
    fingers.set(event.pointerId, now);
    if (!dragged) return;
    host.classList.add("dragged");
    show(fingered(view(), before, two()));
  };
  const released = (event: PointerEvent): void => {
    if (!fingers.delete(event.pointerId) || fingers.size) return;
    held(false);
    host.classList.remove("dragged");
  };
  const clicked = (event: MouseEvent): void => {
    if (dragged) event.stopPropagation(); // the end of a drag, and no choice
    dragged = false;
  };
  const turned = (event: WheelEvent): void => {
    event.preventDefault();
    show(zoomed(view(), wheelFactor(event), within(event)));
  };
  const typed = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return; // the browser's own
    const by = ARROWS[event.key];
    const centre = { x: host.clientWidth / 2, y: host.clientHeight / 2 };
    if (by) show({ ...view(), x: view().x + by.x * STEP, y: view().y + by.y * STEP });
    else if (event.key === "+" || event.key === "-") show(zoomed(view(), event.key === "+" ? KEY_ZOOM : 1 / KEY_ZOOM, centre));
    else return;
    event.preventDefault();
  };

  const gone = new AbortController();
  const { signal } = gone;
  host.addEventListener("click", clicked, { capture: true, signal });
  host.addEventListener("keydown", typed, { signal });
  host.addEventListener("wheel", turned, { passive: false, signal });
  host.addEventListener("pointerdown", pressed, { signal });
  addEventListener("pointermove", moved, { signal });
  addEventListener("pointerup", released, { signal });
  addEventListener("pointercancel", released, { signal });
  return () => gone.abort();
}

function middle(points: readonly Point[]): Point {
  const sum = points.reduce((a, b) => ({ x: a.x + b.x, y: a.y + b.y }));
  return { x: sum.x / points.length, y: sum.y / points.length };
}

function distance([a, b]: readonly Point[]): number {
  return a && b ? Math.hypot(a.x - b.x, a.y - b.y) : 0;
}
