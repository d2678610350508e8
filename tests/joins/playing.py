"""A mill that runs random joins while queries come and go, workers die and the mill starts again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Literal, TypeAlias
from unittest.mock import patch

from hypothesis import assume
from hypothesis import strategies as st

from joins.chained import DrawnChain, chain_sets
from joins.drawn import (
    DECLARED,
    Arrival,
    DrawnJoin,
    FinishedInput,
    arrivals,
    by_stream,
    join_sets,
    keyed_sets,
    overlapping_sets,
)
from slicemill.api.mill import Mill
from slicemill.lifecycle import task_changes
from slicemill.operators.graph import QueryGraph
from slicemill.plan.placement import Placement, PlacementKind, placements_of
from slicemill.plan.tasks import Task
from slicemill.runtime import skew
from slicemill.runtime.rescale import can_change
from slicemill.scheduling.balance import Move
from slicemill.testing import Clock, inline_pool
from slicemill.time import BEGINNING
from support.engine import fed_mill, feed_rows, finish

WORKERS = 3
# Some tens of rows are enough to find keys heavy, and light again.
EAGER = skew.SkewLimits(uneven=1.1, light=0.1, enough_work=0.5, enough_ahead=0.5, row_work=0.01)
MOST_RESULTS = 3_000
_OFTEN = 6  # an eager scene runs behind so many rows

# What happens between two rows; the number behind a word says to which worker, or how many there are then.
Action: TypeAlias = tuple[Literal["run", "lose", "move", "workers", "place", "restart", "crash"], int]
GivenRows: TypeAlias = list[tuple[int, tuple[object, ...]]]


@dataclass(frozen=True)
class Life:
    """The rows between which a query lives; one without an end stays."""

    begin: int = 0
    end: int | None = None


@dataclass(frozen=True)
class Scene:
    """What happens: joins with their lives, rows, and what comes between them."""

    joins: Sequence[DrawnJoin | DrawnChain]
    lives: list[Life]
    rows: list[Arrival]
    actions: list[tuple[int, Action]]
    subtasks: int = 1
    placing: int = 0
    """From which each unit's placement is drawn, of all that it can have."""
    eager: bool = False
    """A key with a few rows more than others is heavy: tasks that can be are by key, and run often."""


@dataclass
class _Stage:
    """A mill in a folder, with what it runs now."""

    scene: Scene
    folder: Path
    subtasks: int
    clock: Clock = field(default_factory=Clock)
    live: dict[int, str] = field(default_factory=dict)
    heavy: int = 0  # after how many actions a task had heavy keys

    def __post_init__(self) -> None:
        self.mill = self._opened()

    def _opened(self) -> Mill:
        self.pool = inline_pool(WORKERS)
        mill = fed_mill(self.folder, self.clock, self.pool, self.subtasks)
        mill.execute(DECLARED + "".join(f"{text};\n" for text in self.live.values()))
        mill.open()
        return mill

    def create(self, number: int) -> None:
        self.live[number] = f"CREATE QUERY q{number} AS {self.scene.joins[number].esl()}"
        self.mill.execute(self.live[number])

    def drop(self, number: int) -> GivenRows:
        found = self.given(number)
        del self.live[number]
        self.mill.execute(f"DROP QUERY q{number}")
        return found

    def feed(self, rows: Sequence[Arrival]) -> None:
        for name, fed in by_stream(rows).items():
            feed_rows(self.mill, name, fed)

    def act(self, action: Action) -> None:
        word, number = action
        self.heavy += any(fields.get("heavy") for fields in self.mill.home.tasks.values())
        if word == "run":
            self.mill.dispatcher.run_all()
        elif word == "lose":
            self.pool.lose(number % len(self.pool.members()))
        elif word == "move":
            for task in self.mill.dispatcher.tasks.values():
                for subtask in range(task.subtasks):
                    move = Move((task.id, subtask), (number + subtask) % WORKERS, at_once=subtask % 2 == 0)
                    self.mill.dispatcher.balancing.request(move)
        elif word == "place":
            self._place(number)
        elif word == "workers":
            self.mill.rescaler.set_workers(number + 1)
        else:
            self.mill.close(checkpoint=word == "restart")
            self.mill = self._opened()

    def _place(self, number: int) -> None:
        """Give each task whose state can follow other subtasks."""
        for task in list(self.mill.dispatcher.tasks.values()):
            plan, chooser = task.plan, Random(f"{number} {task.id}")
            subtasks = chooser.randint(1, 6)
            possible = [
                placement
                for placement in placements_of(plan.task, plan.graph, subtasks)
                if can_change(plan.task, plan.graph, placement)
            ]
            if possible:
                assert self.mill.rescaler.rescale(task, chooser.choice(possible))

    def given(self, number: int) -> GivenRows:
        query = self.mill.queries[f"q{number}"]
        assert query.error is None, (self.live[number], query.error)
        return [(timed.ts, timed.row) for timed in query.timed_rows()]


def check(scene: Scene) -> int:
    """Each join gives what SQL over the finished input gives, and in the order of one undisturbed subtask.

    Returns how often a task was seen to have heavy keys.
    """
    whole = FinishedInput(scene.rows)
    alone = _undisturbed(scene)
    with TemporaryDirectory() as folder, ExitStack() as running:
        # Forcing one kind of placement would refuse sets of joins in which not all can have it.
        running.enter_context(
            patch.object(task_changes, "choose_placement", partial(_drawn_placement, scene))
        )
        running.enter_context(patch.object(skew, "LIMITS", EAGER if scene.eager else skew.LIMITS))
        stage = _Stage(scene, Path(folder), scene.subtasks)
        try:
            _play(stage, whole)
            finish(stage.mill)
            for number, text in stage.live.items():
                given, join = stage.given(number), scene.joins[number]
                expected = whole.rows(join)
                if scene.lives[number].begin == 0:
                    assert Counter(given) == expected, text
                    assert given == alone[number], text
                else:
                    _check_newcomer(stage, number, given, whole)
            return stage.heavy
        finally:
            stage.mill.close()


def _drawn_placement(scene: Scene, task: Task, graph: QueryGraph, subtasks: int, **_: object) -> Placement:
    possible = placements_of(task, graph, subtasks)
    by_key = [placement for placement in possible if placement.kind is PlacementKind.KEY]
    return Random(f"{scene.placing} {task.id}").choice(by_key if scene.eager and by_key else possible)


def _play(stage: _Stage, whole: FinishedInput) -> None:
    scene = stage.scene
    fed = 0
    for place in range(len(scene.rows) + 1):
        lives = [(number, life) for number, life in enumerate(scene.lives)]
        begins = [number for number, life in lives if life.begin == place]
        ends = [number for number, life in lives if life.end == place and number in stage.live]
        actions = [action for at, action in scene.actions if at == place]
        if scene.eager and place % _OFTEN == 0:
            actions.append(("run", 0))
        if begins or ends or actions:
            stage.feed(scene.rows[fed:place])
            fed = place
        for number in begins:
            stage.create(number)
        for action in actions:
            stage.act(action)
        for number in ends:
            given, join = Counter(stage.drop(number)), scene.joins[number]
            if (isinstance(join, DrawnJoin) and join.slide is None) or scene.lives[number].begin == 0:
                # What a query has given until it goes is part of what it would have given.
                assert not given - whole.rows(join)
    stage.feed(scene.rows[fed:])


def _check_newcomer(stage: _Stage, number: int, given: GivenRows, whole: FinishedInput) -> None:
    """One that came later has at least what came after it, and all from when it says that it has (S23)."""
    join, begin = stage.scene.joins[number], stage.scene.lives[number].begin
    always, later = whole.rows(join), FinishedInput(stage.scene.rows[begin:]).rows(join)
    found = Counter(given)
    if join.slide is None and isinstance(join, DrawnJoin):
        # Chains tell rows without a partner, which may have come before the query.
        assert not later - found and not found - always, stage.live[number]
    assert [ts for ts, _ in given] == sorted(ts for ts, _ in given)
    since = stage.mill.queries[f"q{number}"].complete_from()
    if since is not None:
        wanted = {row: count for row, count in always.items() if since == BEGINNING or row[0] > since}
        assert {row: n for row, n in found.items() if since == BEGINNING or row[0] > since} == wanted


def _undisturbed(scene: Scene) -> dict[int, GivenRows]:
    """Return the results of joins that exist from the start, in one subtask and one run."""
    with TemporaryDirectory() as folder:
        stage = _Stage(scene, Path(folder), 1)
        try:
            for number, life in enumerate(scene.lives):
                if life.begin == 0:
                    stage.create(number)
            stage.feed(scene.rows)
            finish(stage.mill)
            return {number: stage.given(number) for number in stage.live}
        finally:
            stage.mill.close()


@st.composite
def scenes(draw: st.DrawFn, *, subtasks: st.SearchStrategy[int]) -> Scene:
    kind = draw(st.sampled_from(["any", "overlapping", "keyed"]))
    counting = kind != "overlapping" and draw(st.booleans())
    if kind == "any":
        drawn = draw(join_sets(counting=counting))
    else:
        drawn = draw(overlapping_sets() if kind == "overlapping" else keyed_sets())
    rows = draw(arrivals(drawn, ties=not counting))
    return draw(_played(drawn, rows, subtasks, eager=kind == "keyed"))


@st.composite
def chain_scenes(draw: st.DrawFn, *, subtasks: st.SearchStrategy[int]) -> Scene:
    """Outer, semi and anti joins of several streams, beside each other."""
    drawn = draw(chain_sets())
    return draw(_played(drawn, draw(arrivals(drawn, ties=True)), subtasks, eager=False))


@st.composite
def _played(
    draw: st.DrawFn,
    drawn: Sequence[DrawnJoin | DrawnChain],
    rows: list[Arrival],
    subtasks: st.SearchStrategy[int],
    *,
    eager: bool,
) -> Scene:
    """Joins with these rows, with lives, and what happens in between."""
    finished = FinishedInput(rows)
    assume(all(finished.count(join) <= MOST_RESULTS for join in drawn))
    places = st.integers(0, len(rows))
    lives = [Life()]
    for _ in drawn[1:]:
        begin = draw(st.one_of(st.just(0), places))
        end = draw(st.one_of(st.none(), st.none(), places))
        lives.append(Life(begin, end if end is not None and end > begin else None))
    words = st.sampled_from(
        ["run", "run", "run", "lose", "move", "workers", "place", "place", "restart", "crash"]
    )
    actions = draw(st.lists(st.tuples(places, st.tuples(words, st.integers(0, WORKERS - 1))), max_size=6))
    # Where tasks run after each row, or after a few, some streams are silent while others are not.
    every = draw(st.sampled_from([None, None, 1, 3]))
    if every is not None:
        actions += [(place, ("run", 0)) for place in range(0, len(rows), every)]
    return Scene(drawn, lives, rows, actions, draw(subtasks), draw(st.integers(0, 99)), eager=eager)
