"""Queries of the catalogue that come and go: mills that try changes of it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeAlias, TypeVar

from hypothesis import strategies as st

from engine.changing.catalogue import CHANGED, DECLARED, KINDS, RELATIONS, TABLES
from slicemill.api.mill import Mill
from slicemill.testing import Clock, inline_pool
from slicemill.time import BEGINNING
from support.engine import fed_mill, feed_rows, finish

SECOND = 1_000_000

Step: TypeAlias = tuple[Any, ...]  # a method of Scene, and its arguments


@dataclass(frozen=True)
class Event:
    at_us: int
    stream: str
    row: tuple[object, ...]


@cache
def events(seed: int, count: int = 36) -> tuple[Event, ...]:
    """Tuples in order of time, some at the same time; a few of s come late."""
    chance = random.Random(seed)
    found, at = [], SECOND
    for _ in range(count):
        at += chance.choice([0, 0, SECOND // 4, SECOND // 2, SECOND, SECOND, 2 * SECOND])
        stream, k, v = chance.choice("ssssrri"), chance.randrange(3), chance.randrange(6)
        late = 3 * SECOND // 2 if (stream, k, v) == ("s", 1, 3) else 0
        found.append(Event(at, stream, (k, v, at - late)))
    return tuple(found)


@dataclass
class Scene:
    """A mill whose queries come and go between events, which are the same in every scene of a seed."""

    folder: Path
    seed: int
    subtasks: int = 1
    clock: Clock = field(default_factory=Clock)
    position: int = 0  # how many events have come
    live: dict[str, tuple[str, int]] = field(default_factory=dict)  # query: kind, and when it came
    born: dict[str, int] = field(default_factory=dict)  # relation: when it came
    changes: list[tuple[int, int]] = field(default_factory=list)  # of the table: when, and to what
    paused: dict[str, Counter[tuple[int, str]]] = field(default_factory=dict)  # query: what it gave before
    streams_paused: set[str] = field(default_factory=set)
    partly: dict[str, int] = field(default_factory=dict)  # queries that have kept some state: since when

    def __post_init__(self) -> None:
        self.mill = fed_mill(self.folder, self.clock, inline_pool(), self.subtasks)
        for name, rows in TABLES.items():
            self.mill.tables.set_rows(name, rows)
        self.mill.execute(DECLARED)
        self.mill.open()

    # -- changes ---------------------------------------------------------------------------------------

    def create(self, name: str, kind: str) -> None:
        self.mill.execute(f"{self._relations(kind)} {KINDS[kind].create(name)};")
        self.live[name] = kind, self.position

    def _relations(self, kind: str) -> str:
        new = [relation for relation in KINDS[kind].relations if relation not in self.born]
        self.born |= dict.fromkeys(new, self.position)
        return " ".join(f"{RELATIONS[relation]};" for relation in new)

    def drop(self, name: str) -> None:
        """A query goes; what it has given until then is part of what it would have given."""
        kind, since = self.live.pop(name)
        self.paused.pop(name, None)
        if self.partly.pop(name, None) is not None:
            self.mill.execute(f"DROP QUERY {name}")
            return
        handle = self.mill.queries.get(name)
        self.mill.execute(f"DROP QUERY {name}")
        if handle is not None and not KINDS[kind].finds_stored and not KINDS[kind].reads_table:
            given = shown((timed.ts, timed.row) for timed in handle.timed_rows())
            assert not given - alone(self.seed, kind, since, self._births(kind)), kind

    def table(self, number: int) -> None:
        """The rows of a table change."""
        self.mill.tables.set_rows("t", CHANGED[number])
        self.changes.append((self.position, number))

    def replace(self, name: str, kind: str) -> None:
        self.mill.execute(f"{self._relations(kind)} DROP QUERY {name}; {KINDS[kind].create(name)};")
        self.paused.pop(name, None)
        self.partly.pop(name, None)
        self.live[name] = kind, self.position

    def or_replace(self, name: str, kind: str) -> None:
        """Another definition takes the place of a query's; it is paused as it was."""
        if name not in self.live or KINDS[kind].ad_hoc or KINDS[self.live[name][0]].ad_hoc:
            return
        relations = self._relations(kind)
        if relations:
            self.mill.execute(relations)
        text = KINDS[kind].create(name).replace("CREATE", "CREATE OR REPLACE", 1)
        before, since = self.live[name]
        effects = {
            one.effect for one in self.mill.statements.explain_replace(text) if "no state" not in one.what
        }
        self.mill.execute(text)
        if kind != before:
            self.partly.pop(name, None)
            if "keeps" in effects or KINDS[before].finds_stored or KINDS[kind].finds_stored:
                self.partly[name] = since
            self.live[name] = kind, self.position
            if name in self.paused:
                self.paused[name] = results(self.mill, name, kind)

    def pause(self, name: str) -> None:
        """A query gives nothing more for a while."""
        if name in self.live and name in self.mill.queries and name not in self.paused:
            self.mill.execute(f"PAUSE QUERY {name}")
            self.paused[name] = results(self.mill, name, self.live[name][0])

    def resume(self, name: str) -> None:
        before = self.paused.pop(name, None)
        if before is not None and name in self.live:
            assert results(self.mill, name, self.live[name][0]) == before
            self.mill.execute(f"RESUME QUERY {name}")

    def pause_stream(self, name: str) -> None:
        if name in self.mill.home.logs and (name in "sri" or name in self.born):
            self.mill.execute(f"PAUSE STREAM {name}")
            self.streams_paused.add(name)

    def resume_streams(self) -> None:
        for name in sorted(self.streams_paused):
            if name in "sri" or name in self.born:
                self.mill.execute(f"RESUME STREAM {name}")
        self.streams_paused.clear()

    def tidy(self) -> None:
        """Relations that nobody reads go."""
        used = {relation for kind, _ in self.live.values() for relation in KINDS[kind].relations}
        for relation in [name for name in reversed(self.born) if name not in used]:
            what = RELATIONS[relation].split()[1]
            self.mill.execute(f"DROP {what} {relation}")
            del self.born[relation]

    def feed(self, count: int) -> None:
        for event in events(self.seed)[self.position : self.position + count]:
            self.clock.now = event.at_us
            feed_rows(self.mill, event.stream, [event.row])
            self.position += 1

    def run(self) -> None:
        self.mill.dispatcher.run_some()

    def restart(self, checkpoint: bool, name: str = "", kind: str = "") -> None:
        """The process ends, in good order or not, and the next one runs the same statements.

        With a name and a kind, the next one has another query of that name; with a name alone it has none.
        Tables are not given again.
        """
        self.mill.close(checkpoint=checkpoint)
        dropped = f"DROP QUERY {name};" if name in self.live else ""
        if name:
            self.live.pop(name, None)
            self.paused.pop(name, None)
        if kind:
            self._relations(kind)
            self.live[name] = kind, self.position
        relations = "".join(f"{RELATIONS[relation]};" for relation in self.born)
        queries = "".join(f"{KINDS[kind].create(name)};" for name, (kind, _) in self.live.items())
        self.partly.pop(name, None)
        self.mill = fed_mill(self.folder, self.clock, inline_pool(), self.subtasks)
        self.mill.execute(dropped + DECLARED + relations + queries)
        self.mill.open()

    def _births(self, kind: str) -> tuple[tuple[str, int], ...]:
        return tuple((name, self.born[name]) for name in KINDS[kind].relations)

    # -- what comes out --------------------------------------------------------------------------------

    def end(self) -> None:
        """All that is left comes, the streams end, and every query has given what it gives alone."""
        self.feed(len(events(self.seed)))
        self.resume_streams()
        finish(self.mill)
        for name in list(self.paused):
            self.resume(name)
        finish(self.mill)
        for name, (kind, since) in self.live.items():
            given = results(self.mill, name, kind)
            changes = tuple(self.changes) if KINDS[kind].reads_table else ()
            expected = alone(self.seed, kind, since, self._births(kind), changes)
            if name in self.partly:
                self._check_replaced(name, kind, since, changes)
            elif not KINDS[kind].finds_stored:
                assert given == expected, (name, kind, since)
            else:
                always = alone(self.seed, kind, 0, self._births(kind), changes)
                assert not expected - given and not given - always, (name, kind, since)
                complete = None if KINDS[kind].ad_hoc else self.mill.queries[name].complete_from()
                if complete is not None:
                    assert _from(given, complete) == _from(always, complete), (name, kind, since, complete)

    def _check_replaced(self, name: str, kind: str, since: int, changes: tuple[tuple[int, int], ...]) -> None:
        """It kept some state: from when it says that it is complete, it gives what it would have always."""
        complete = self.mill.queries[name].complete_from()
        if complete is not None:
            replaced_us = events(self.seed)[since - 1].at_us if since else BEGINNING
            always = alone(self.seed, kind, 0, self._births(kind), changes)
            given, at = results(self.mill, name, kind), max(complete, replaced_us)
            assert _from(given, at) == _from(always, at), (name, kind, since, complete)

    def close(self) -> None:
        self.mill.close()


Shown = Counter[tuple[int, str]]


def shown(rows: object) -> Shown:
    return Counter((ts, repr(row)) for ts, row in rows)  # type: ignore[attr-defined]


def _from(rows: Shown, ts: int) -> Shown:
    return Counter({row: count for row, count in rows.items() if ts == BEGINNING or row[0] > ts})


def results(mill: Mill, name: str, kind: str) -> Shown:
    if KINDS[kind].ad_hoc:
        return shown((0, row) for row in mill.tables.rows(name))
    query = mill.queries[name]
    assert query.error is None, (kind, query.error)
    return shown((timed.ts, timed.row) for timed in query.timed_rows())


@cache
def alone(
    seed: int,
    kind: str,
    since: int,
    births: tuple[tuple[str, int], ...],
    changes: tuple[tuple[int, int], ...] = (),
) -> Shown:
    """What a query gives in a mill of its own that nobody stops, where it comes after so many events."""
    with TemporaryDirectory() as folder:
        scene = Scene(Path(folder), seed)
        try:
            # What happens after as many events happens in this order.
            actions = [(born, 0, name) for name, born in births]
            actions += [(at, 1, number) for at, number in changes]
            actions += [(max([since, *(born for _, born in births)]), 2, kind)]
            for at, what, which in sorted(actions, key=lambda action: action[:2]):
                scene.feed(at - scene.position)
                if what == 0:
                    scene.mill.execute(RELATIONS[which])
                    scene.born[which] = at
                elif what == 1:
                    scene.table(which)
                else:
                    scene.create("alone", which)
            scene.feed(len(events(seed)))
            finish(scene.mill)
            return results(scene.mill, "alone", kind)
        finally:
            scene.close()


class Staged(Protocol):
    """A scene: a mill in a folder, on which steps are taken."""

    def close(self) -> None: ...


S = TypeVar("S", bound=Staged)


@contextmanager
def staged(made: Callable[[Path], S]) -> Iterator[S]:
    """Give a scene in a folder of its own, and close the scene at the end."""
    with TemporaryDirectory() as folder:
        scene = made(Path(folder))
        try:
            yield scene
        finally:
            scene.close()


def take(scene: object, steps: Sequence[Step]) -> None:
    """Take steps: each is the name of a method, with its arguments."""
    for step, *arguments in steps:
        getattr(scene, step)(*arguments)


def play(steps: Sequence[Step], seed: int = 0, subtasks: int = 1) -> None:
    """Take the steps that are possible, and compare at the end."""
    with staged(lambda folder: Scene(folder, seed, subtasks)) as scene:
        for word, *given in steps:
            if word in ("create", "replace", "or_replace", "table") and scene.streams_paused:
                scene.resume_streams()  # a query that comes would get what is held back
            known = bool(given) and given[0] in scene.live
            if not (word == "create" and known) and not (word in ("drop", "replace") and not known):
                getattr(scene, word)(*given)
        scene.end()


@st.composite
def sequences(draw: st.DrawFn) -> tuple[list[Step], int, int]:
    """Steps with a few kinds of queries, so that many share something; a seed, and a number of subtasks."""
    pool = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=2, max_size=6, unique=True))
    names, kinds = st.sampled_from("abcd"), st.sampled_from(pool)
    step: st.SearchStrategy[Step] = st.one_of(
        st.tuples(st.just("create"), names, kinds),
        st.tuples(st.just("create"), names, kinds),
        st.tuples(st.just("drop"), names),
        st.tuples(st.just("replace"), names, kinds),
        st.tuples(st.just("tidy")),
        st.tuples(st.just("feed"), st.integers(1, 6)),
        st.tuples(st.just("feed"), st.integers(1, 6)),
        st.tuples(st.just("run")),
        st.tuples(st.just("table"), st.integers(0, len(CHANGED) - 1)),
        st.tuples(st.just("restart"), st.booleans()),
        st.tuples(st.just("restart"), st.booleans(), names, st.one_of(st.just(""), kinds)),
    )
    return (
        draw(st.lists(step, min_size=4, max_size=16)),
        draw(st.integers(0, 2)),
        draw(st.sampled_from([1, 3])),
    )
