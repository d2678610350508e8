"""Queries that begin in the past, in mills that stop, crash and get other queries: what they must give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from hypothesis import strategies as st

from engine.changing.catalogue import DECLARED, KINDS, RELATIONS, TABLES
from engine.changing.come_and_go import Shown, Step, events, shown, staged, take
from slicemill.api.mill import Mill
from support.engine import Clock, fed_mill, feed_rows, finish, inline_pool

EVENTS = 100
# A classifier has no RETAIN, and ad hoc queries have no past.
PAST = [name for name, kind in KINDS.items() if not kind.ad_hoc and "decided" not in kind.uses]
RETAINED = {
    name: text.replace(" AS ", " RETAIN 1 DAY AS ", 1) for name, text in RELATIONS.items() if "STREAM" in text
}
VIEWS = {name: text for name, text in RELATIONS.items() if text.startswith("CREATE VIEW")}


def _declared() -> str:
    """All that queries are made of, from the beginning."""
    text = DECLARED
    for clause in ("ORDER BY ts;", "ORDER BY ts SKEW 1 SECOND;", "ORDER BY current_time;"):
        assert clause in text
        text = text.replace(clause, f"{clause[:-1]} RETAIN 1 DAY;")
    return text + "".join(f"{one};" for one in (*RETAINED.values(), *VIEWS.values()))


SCRIPT = _declared()


@dataclass
class Scene:
    """A mill in which queries begin in the past; events are the same in every scene of a seed."""

    folder: Path
    seed: int
    subtasks: int = 1
    clock: Clock = field(default_factory=Clock)
    position: int = 0
    begun: dict[str, tuple[str, str]] = field(default_factory=dict)  # query: its statement, and its kind
    states: set[str | None] = field(default_factory=set)  # that queries from the past were seen in

    def __post_init__(self) -> None:
        self.mill = self._started()

    def _started(self) -> Mill:
        mill = fed_mill(self.folder, self.clock, inline_pool(), self.subtasks)
        for name, rows in TABLES.items():
            mill.table(name, rows)
        mill.execute(SCRIPT + "".join(f"{text};" for text, _ in self.begun.values()))
        mill.open()
        return mill

    def past(self, name: str, kind: str) -> None:
        """A query that begins where the streams do."""
        self._create(name, kind, KINDS[kind].create(f"{name} FROM BEGINNING"))

    def live(self, name: str, kind: str) -> None:
        self._create(name, kind, KINDS[kind].create(name))

    def _create(self, name: str, kind: str, text: str) -> None:
        self.mill.execute(text)
        self.begun[name] = text, kind

    def drop(self, name: str) -> None:
        if name in self.begun:
            self.mill.execute(f"DROP QUERY {name}")
            del self.begun[name]

    def feed(self, count: int) -> None:
        for event in events(self.seed, EVENTS)[self.position : self.position + count]:
            self.clock.now = event.at_us
            feed_rows(self.mill, event.stream, [event.row])
            self.position += 1

    def run(self) -> None:
        self.mill.dispatcher.run_some()

    def run_all(self) -> None:
        self.mill.dispatcher.run_all()
        self.states |= {self.mill.backfills.state_of(name) for name in self.begun}

    def restart(self, checkpoint: bool) -> None:
        self.mill.close(checkpoint=checkpoint)
        self.mill = self._started()

    def end(self) -> None:
        """Every query from the past has given what one gives that was always there."""
        self.feed(EVENTS)
        finish(self.mill)
        for name, (text, kind) in self.begun.items():
            if "FROM BEGINNING" in text:
                given = self.mill.queries[name]
                assert given.error is None, (kind, given.error)
                rows = [(timed.ts, timed.row) for timed in given.rows()]
                expected = always(self.seed, kind)
                assert shown(rows) == expected, (name, kind, shown(rows) - expected, expected - shown(rows))

    def close(self) -> None:
        self.mill.close()


@cache
def always(seed: int, kind: str) -> Shown:
    """What a query gives that was there before the first event, in a mill that nobody stops."""
    with staged(lambda folder: Scene(folder, seed)) as scene:
        scene.live("alone", kind)
        scene.feed(EVENTS)
        finish(scene.mill)
        return shown((timed.ts, timed.row) for timed in scene.mill.queries["alone"].rows())


def play(steps: Sequence[Step], seed: int = 0, subtasks: int = 1) -> set[str | None]:
    """Take the steps, and compare at the end; the states that queries from the past were seen in."""
    with staged(lambda folder: Scene(folder, seed, subtasks)) as scene:
        take(scene, steps)
        scene.end()
        return scene.states


@st.composite
def sequences(draw: st.DrawFn) -> list[Step]:
    """Some queries begin in the past, beside others, while events come and mills stop and crash."""
    kinds = st.sampled_from(PAST)
    names: list[str] = []
    steps: list[Step] = [("feed", draw(st.integers(0, 40)))]
    for number in range(draw(st.integers(2, 8))):
        choice = draw(st.integers(0, 9))
        if choice <= 2 or number == 0:
            names.append(f"p{number}")
            steps.append(("past", names[-1], draw(kinds)))
        elif choice == 3:
            names.append(f"l{number}")
            steps.append(("live", names[-1], draw(kinds)))
        elif choice == 4:
            steps.append(("restart", draw(st.booleans())))
        elif choice == 5 and names:
            steps.append(("drop", draw(st.sampled_from(names))))
        elif choice <= 7:
            steps.append(("run_all",))
        else:
            steps.append(("run",))
        steps.append(("feed", draw(st.integers(0, 20))))
    return steps
