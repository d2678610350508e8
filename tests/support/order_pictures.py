"""The pictures of docs/order.md, drawn from what the intake and the union do with the tuples in them.

python tests/support/order_pictures.py        # from the root, with tests on the path
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from xml.sax.saxutils import escape

import pyarrow as pa

from ingest.streams import Kept, external, rows
from slicemill.ingest.intake import Intake
from slicemill.ingest.watermarks import watermark
from slicemill.operators.alignment import borders
from slicemill.time import BEGINNING

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"

INK, QUIET, GRID = "#1b2733", "#566372", "#e3e8ec"
LATE, MARK = "#c0392b", "#0b7285"
COLOURS = ("#3b5bdb", "#e8890c", "#7048a8")
_STYLE = f"""
text {{ font-family: system-ui, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif; font-size: 13px; fill: {INK}; }}
text.small {{ font-size: 12px; fill: {QUIET}; }}
text.title {{ font-weight: 600; }}
"""  # noqa: E501


@dataclass
class Drawing:
    """A plot of timestamps (upwards) by the clock (to the right), in seconds."""

    title: str
    seconds: int
    timestamps: int
    across: float = 44.0
    up: float = 15.0
    left: float = 60.0
    top: float = 46.0
    right: float = 225.0
    parts: list[str] = field(default_factory=list)

    def x(self, clock: float) -> float:
        return self.left + clock * self.across

    def y(self, ts: float) -> float:
        return self.top + (self.timestamps - ts) * self.up

    def text(
        self, x: float, y: float, words: str, kind: str = "small", anchor: str = "start", fill: str = ""
    ) -> None:
        style = f' style="fill: {fill}"' if fill else ""
        self.parts.append(
            f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}"{style}>{escape(words)}</text>'
        )

    def line(
        self, points: Iterable[tuple[float, float]], colour: str, width: float = 2, dash: str = ""
    ) -> None:
        path = " ".join(f"{self.x(clock):g},{self.y(ts):g}" for clock, ts in points)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashed}/>'
        )

    def dot(self, clock: float, ts: float, colour: str, label: str = "", late: bool = False) -> None:
        x, y = self.x(clock), self.y(ts)
        if late:
            cross = f"M{x - 5:g} {y - 5:g}L{x + 5:g} {y + 5:g}M{x - 5:g} {y + 5:g}L{x + 5:g} {y - 5:g}"
            self.parts.append(f'<path d="{cross}" stroke="{LATE}" stroke-width="2.5" fill="none"/>')
        else:
            self.parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="5" fill="{colour}"/>')
        if label:
            self.text(x, y + 20 if late else y - 10, label, anchor="middle", fill=LATE if late else colour)

    def note(self, clock: float, ts: float, words: str, colour: str = QUIET) -> None:
        self.text(self.x(clock) + 8, self.y(ts) + 4, words, fill=colour)

    def svg(self) -> str:
        width = self.x(self.seconds) + self.right
        height = self.y(0) + 46
        grid = [
            f'<line x1="{self.left:g}" y1="{self.y(ts):g}" x2="{self.x(self.seconds):g}" y2="{self.y(ts):g}" '
            f'stroke="{GRID}"/>'
            for ts in range(0, self.timestamps + 1, 2)
        ]
        axes = Drawing("", self.seconds, self.timestamps, self.across, self.up, self.left, self.top)
        for ts in range(0, self.timestamps + 1, 4):
            axes.text(self.left - 10, self.y(ts) + 4, str(ts), anchor="end")
        for clock in range(0, self.seconds + 1, 2):
            axes.text(self.x(clock), self.y(0) + 18, str(clock), anchor="middle")
        axes.text(self.x(self.seconds), self.y(0) + 36, "clock (s)", anchor="end")
        axes.text(self.left - 38, self.top - 10, "timestamp (s)")
        axes.text(self.left + 110, 20, self.title, kind="title")
        body = "\n".join([*grid, *axes.parts, *self.parts])
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
            f'viewBox="0 0 {width:g} {height:g}" role="img">\n<title>{escape(self.title)}</title>\n'
            f"<style>{_STYLE}</style>\n"
            f'<rect width="100%" height="100%" fill="#ffffff"/>\n{body}\n</svg>\n'
        )


def steps(points: Sequence[tuple[float, float]], until: float) -> list[tuple[float, float]]:
    """A watermark as a line: it stays where it is until it moves."""
    found = [points[0]]
    for (_, before), (clock, ts) in pairwise([*points, (until, points[-1][1])]):
        found += [(clock, before), (clock, ts)]
    return found


class Watched:
    """An intake that is read at moments of the clock; what it made of each tuple, and its watermark."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        self.intake: Intake = kept.open()
        self.tuples: list[tuple[int, int, bool, str]] = []  # clock, timestamp, late, partition
        self.marks: list[tuple[float, float]] = []

    def read(self, clock: int, partition: str = "", *times: int, ended: bool = False) -> None:
        before = len(self.kept.late)
        table: pa.Table | None = rows(times) if times else None
        self.kept.keep(self.intake.admit(partition, table, clock, BEGINNING, clock, ended=ended))
        for ts in times:
            self.tuples.append((clock, ts, len(self.kept.late) > before, partition))
        self.mark(clock)

    def mark(self, clock: float) -> None:
        mark = watermark(self.kept.stream, self.kept.progress, int(clock))
        if mark > BEGINNING:
            self.marks.append((clock, mark))


def lateness() -> Drawing:
    """SLACK: how far below the greatest timestamp a tuple may be."""
    drawing = Drawing("SLACK 5: late is what is more than 5 below a tuple before it", 11, 20)
    watched = Watched(Kept(external(slack=5)))
    arriving = [(1, 9), (2, 5), (4, 12), (5, 6), (6, 11), (8, 18), (9, 13), (10, 12)]
    reached: list[tuple[float, float]] = []
    for clock, ts in arriving:
        watched.read(clock, "", ts)
        reached.append((clock, max(at for _, at, late, _ in watched.tuples if not late)))
    high, low = steps(reached, 11), steps(watched.marks, 11)
    area = " ".join(f"{drawing.x(x):g},{drawing.y(y):g}" for x, y in [*high, *reversed(low)])
    drawing.parts.append(f'<polygon points="{area}" fill="{COLOURS[0]}" opacity="0.10"/>')
    drawing.line(high, COLOURS[0], 1.2, "4 3")
    drawing.line(low, MARK, 2.5)
    for clock, ts, late, _ in watched.tuples:
        drawing.dot(clock, ts, COLOURS[0], str(ts), late)
    drawing.note(11, 18, "greatest timestamp so far", COLOURS[0])
    drawing.note(11, 15.5, "held back, to be put in order", QUIET)
    drawing.note(11, 13, "watermark: greatest − SLACK", MARK)
    drawing.note(11, 7, "below it a tuple is late (×)", LATE)
    return drawing


def partitions() -> Drawing:
    """The stream waits for the partition that is furthest behind, and for none that is silent."""
    drawing = Drawing("Three partitions: the watermark is the least of those that are not silent", 15, 22)
    watched = Watched(Kept(external(), ("p0", "p1", "p2")))
    moments: list[tuple[int, str, tuple[int, ...], bool]] = [
        (1, "p0", (4,), False),
        (2, "p1", (2,), False),
        (3, "p2", (1,), False),
        (4, "p0", (8,), False),
        (5, "p1", (5,), False),
        (6, "p2", (), False),
        (7, "p0", (11,), False),
        (8, "p1", (9,), False),
        (9, "p2", (7,), False),
        (10, "p2", (12,), False),
        (11, "p0", (16,), False),
        (12, "p1", (), True),
        (13, "p2", (18,), False),
        (14, "p0", (19,), False),
    ]
    for clock, name, times, ended in moments:
        watched.read(clock, name, *times, ended=ended)
    drawing.line(steps(watched.marks, 15), MARK, 2.5)
    for place, name in enumerate(("p0", "p1", "p2")):
        good = [(clock, ts) for clock, ts, late, of in watched.tuples if of == name and not late]
        drawing.line(good, COLOURS[place], 1, "3 3")
        for clock, ts, late, of in watched.tuples:
            if of == name:
                drawing.dot(clock, ts, COLOURS[place], late=late)
    drawing.note(6, 2.6, "p2 is silent: it does not hold the others", COLOURS[2])
    drawing.note(9, 6.6, "p2 returns below the watermark: late", LATE)
    drawing.note(12, 10.4, "p1 has ended: silent for good", COLOURS[1])
    for place, (name, height) in enumerate((("p0", 20.5), ("p1", 18.5), ("p2", 16.5))):
        drawing.note(15, height, f"partition {name}", COLOURS[place])
    drawing.note(15, 14, "the stream's watermark", MARK)
    return drawing


def silence() -> Drawing:
    """SKEW: time goes on while nothing comes."""
    drawing = Drawing("Silence from 4 s on: what moves the watermark", 15, 18)
    marks = {}
    for name, stream in (("with", external(skew=3)), ("without", external())):
        watched = Watched(Kept(stream))
        for clock, ts in ((1, 0), (2, 2), (3, 3), (4, 4)):
            watched.read(clock, "", ts)
        for clock in range(5, 12):
            watched.read(clock)
        watched.read(12, "", 12)
        for clock in (13, 14, 15):
            watched.read(clock)
        marks[name] = watched
    drawing.line([(0, 0), (15, 15)], QUIET, 1.2, "2 3")
    drawing.line(steps(marks["without"].marks, 15), COLOURS[1], 2)
    drawing.line(steps(marks["with"].marks, 15), MARK, 2.5)
    for clock, ts, late, _ in marks["with"].tuples:
        drawing.dot(clock, ts, COLOURS[0], late=late)
    drawing.note(15, 15.5, "the clock: ORDER BY current_time", QUIET)
    drawing.note(15, 13.2, "SKEW 3: last timestamp", MARK)
    drawing.note(15, 12.0, "+ time since its arrival − 3", MARK)
    drawing.note(15, 10.4, "without SKEW: only data", COLOURS[1])
    drawing.note(8, 2.6, "each step is a poll that found nothing", MARK)
    return drawing


def union() -> Drawing:
    """A tuple goes out when nothing can come before it any more; its own input does not count."""
    drawing = Drawing("A union of a and b: a tuple waits for the watermark of the other input", 15, 16)
    a = [(1, 1), (4, 4), (7, 7), (10, 10)]
    b = [(2, 2), (5, 5)]

    def mark_of_b(clock: float) -> float:
        told = [ts for at, ts in b if at <= clock]
        last = b[-1][0]
        return (
            max(told[-1], told[-1] + (clock - last) - 3)
            if clock > last
            else (told[-1] if told else BEGINNING)
        )

    moments = [clock / 20 for clock in range(40, 301)]
    drawing.line([(clock, mark_of_b(clock)) for clock in moments], COLOURS[1], 2)
    for of, (colour, arriving) in enumerate(((COLOURS[0], a), (COLOURS[1], b))):
        for at, ts in arriving:
            out = first_out(of, at, ts, a, mark_of_b)
            drawing.line([(at, ts), (out, ts)], colour, 5 if out > at else 1)
            drawing.dot(at, ts, colour)
            if out > at:
                x, y = drawing.x(out), drawing.y(ts)
                drawing.parts.append(
                    f'<path d="M{x:g} {y - 6:g}L{x + 9:g} {y:g}L{x:g} {y + 6:g}Z" fill="{colour}"/>'
                )
    drawing.note(15, 13.6, "a comes every 3 s", COLOURS[0])
    drawing.note(15, 12.2, "b: SKEW 3, silent from 5 s on", COLOURS[1])
    drawing.note(15, 10.8, "━━ waits, then goes out ▶", QUIET)
    drawing.text(drawing.x(13) + 14, drawing.y(10) + 16, "out when b is known up to 10", fill=COLOURS[0])
    return drawing


def first_out(
    of: int, at: int, ts: int, a: Sequence[tuple[int, int]], mark_of_b: Callable[[float], float]
) -> float:
    """The first moment at which a tuple may go into the union."""
    clock = float(at)
    while True:
        known_a = max((told for came, told in a if came <= clock), default=BEGINNING)
        below = borders([known_a, int(mark_of_b(clock)) if clock >= 2 else BEGINNING])
        if ts < below[of]:
            return clock
        clock += 0.25


DRAWINGS = {"lateness": lateness, "partitions": partitions, "silence": silence, "union": union}


if __name__ == "__main__":
    for name, draw in DRAWINGS.items():
        (FOLDER / f"order-{name}.svg").write_text(draw().svg())
