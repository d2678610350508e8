"""Random chains of joins of three and four streams, as ESL and as nested loops over the finished input.

The loops know nothing of engines: rows of two streams can meet if each is in the other's window, by their own
timestamps. What is joined so far comes at a time of its own, and what has no partner when that is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from hypothesis import strategies as st

SECOND = 1_000_000
STREAMS = "abcd"
DECLARED = "".join(
    f"CREATE STREAM {name} (k int, v int, n int, ts timestamp) ORDER BY ts;\n" for name in STREAMS
)
# A row of a stream: (k, v, n, ts), where n is its number among all rows.
Row: TypeAlias = "tuple[int | None, int | None, int, int]"
Streams: TypeAlias = "dict[str, list[tuple[int, Row]]]"
Rows: TypeAlias = "Counter[tuple[int, tuple[object, ...]]]"
Members: TypeAlias = "Mapping[str, Row | None]"

KINDS = ("INNER", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI")
_LEFT_ONLY = ("SEMI", "ANTI")
_K, _V, _N, _TS = range(4)


def _value(members: Members, alias: str, column: int) -> int | None:
    row = members[alias]
    return None if row is None else row[column]


def _compared(left: int | None, right: int | None, test: Callable[[int, int], bool]) -> bool:
    return left is not None and right is not None and test(left, right)


def _same_k(members: Members, x: str, y: str) -> bool:
    return _compared(_value(members, x, _K), _value(members, y, _K), lambda a, b: a == b)


Condition: TypeAlias = Callable[[Members, str, str], bool]
# ON, of a stream that is there and the one that is joined.
ON: dict[str, Condition] = {
    "{x}.k = {y}.k": _same_k,
    "{x}.k = {y}.k AND {x}.v > 1": lambda m, x, y: _same_k(m, x, y) and (_value(m, x, _V) or 0) > 1,
    "{x}.k = {y}.k AND {y}.v < 3": lambda m, x, y: (
        _same_k(m, x, y) and _compared(_value(m, y, _V), 3, lambda a, b: a < b)
    ),
    "{x}.v = {y}.k": lambda m, x, y: _compared(_value(m, x, _V), _value(m, y, _K), lambda a, b: a == b),
    "{x}.v <= {y}.v": lambda m, x, y: _compared(_value(m, x, _V), _value(m, y, _V), lambda a, b: a <= b),
    "{x}.k = {y}.k AND {x}.v <> {y}.v": lambda m, x, y: (
        _same_k(m, x, y) and _compared(_value(m, x, _V), _value(m, y, _V), lambda a, b: a != b)
    ),
    "coalesce({x}.k, 7) = coalesce({y}.k, 7)": lambda m, x, y: (
        (7 if (a := _value(m, x, _K)) is None else a) == (7 if (b := _value(m, y, _K)) is None else b)
    ),
}
WHERE: dict[str, Condition] = {
    "{x}.v > 1": lambda m, x, _: (_value(m, x, _V) or 0) > 1,
    "{x}.k IS NULL": lambda m, x, _: _value(m, x, _K) is None,
    "{x}.n IS NOT NULL": lambda m, x, _: m[x] is not None,
    "coalesce({x}.v, 0) + coalesce({y}.v, 0) < 5": lambda m, x, y: (
        (_value(m, x, _V) or 0) + (_value(m, y, _V) or 0) < 5
    ),
}


@dataclass(frozen=True)
class DrawnStep:
    """One more stream: how it is joined, and with which of those before it."""

    relation: str
    alias: str
    window_us: int
    kind: str = "INNER"
    on: str = ""
    other: str = ""


@dataclass(frozen=True)
class DrawnChain:
    steps: tuple[DrawnStep, ...]
    where: tuple[tuple[str, str, str], ...] = ()

    slide: None = None

    @property
    def inputs(self) -> tuple[DrawnStep, ...]:
        return self.steps

    @property
    def members(self) -> list[str]:
        return [step.alias for step in self.steps if step.kind not in _LEFT_ONLY]

    def esl(self) -> str:
        text = ""
        for step in self.steps:
            window = f"RANGE {step.window_us // SECOND} SECONDS" if step.window_us > 1 else "NOW"
            joins = f" {step.kind} JOIN " if text else ""
            on = f" ON {step.on.format(x=step.other, y=step.alias)}" if text else ""
            text += f"{joins}{step.relation} [{window}] AS {step.alias}{on}"
        where = " AND ".join(form.format(x=x, y=y) for form, x, y in self.where)
        items = ", ".join(f"{alias}.n AS n{alias}" for alias in self.members)
        return f"SELECT {items} FROM {text}{f' WHERE {where}' if where else ''}"

    def rows(self, streams: Streams) -> Rows:
        """Results over the finished input, with their timestamps."""
        first = self.steps[0]
        windows = {step.alias: step.window_us for step in self.steps}
        joined: list[tuple[int, Members]] = [(ts, {first.alias: row}) for ts, row in streams[first.relation]]
        for number, step in enumerate(self.steps[1:], start=1):
            found: list[tuple[int, Members]] = []
            met: set[int] = set()
            others = streams[step.relation]
            for t, members in joined:
                partners = {
                    place: {**members, step.alias: row}
                    for place, (_, row) in enumerate(others)
                    if all(_near(own, windows[a], row, step.window_us) for a, own in members.items())
                    and ON[step.on]({**members, step.alias: row}, step.other, step.alias)
                }
                met |= partners.keys()
                times = [max(t, others[place][0]) for place in partners]
                if step.kind == "SEMI":
                    found += [(min(times), members)] if times else []
                elif step.kind != "ANTI":
                    found += zip(times, partners.values(), strict=True)
                if not partners and step.kind in ("LEFT", "FULL", "ANTI"):
                    end = min(own[_TS] + windows[a] for a, own in members.items() if own is not None)
                    alone = members if step.kind == "ANTI" else {**members, step.alias: None}
                    found.append((max(end, t + 1), alone))
            if step.kind in ("RIGHT", "FULL"):
                known = step.window_us + _late_us(self.steps[:number])
                nothing = dict.fromkeys(
                    one.alias for one in self.steps[:number] if one.kind not in _LEFT_ONLY
                )
                found += [
                    (ts + known, {**nothing, step.alias: row})
                    for place, (ts, row) in enumerate(others)
                    if place not in met
                ]
            joined = found
        kept = [(t, m) for t, m in joined if all(WHERE[form](m, x, y) for form, x, y in self.where)]
        return Counter((t, tuple(_value(m, alias, _N) for alias in self.members)) for t, m in kept)


def _near(own: Row | None, window_us: int, other: Row, other_window_us: int) -> bool:
    return own is None or (other[_TS] - own[_TS] < window_us and own[_TS] - other[_TS] < other_window_us)


def _late_us(steps: Sequence[DrawnStep]) -> int:
    """How long after its newest member what is joined of these comes at most, without looking at rows."""
    late = 0
    for number, step in enumerate(steps[1:], start=1):
        before = [one for one in steps[:number] if one.kind not in _LEFT_ONLY]
        rights = [n for n, one in enumerate(steps[:number]) if one.kind in ("RIGHT", "FULL")]
        last = rights[-1] if rights else 0
        sure = [one for one in steps[last:number] if one.kind in ("INNER", "RIGHT")]
        waits = min(one.window_us for one in sure) if sure else max(one.window_us for one in before)
        by_kind = {"INNER": late, "RIGHT": late + step.window_us, "FULL": late + step.window_us}
        late = (
            by_kind.get(step.kind, 0)
            if step.kind in ("INNER", "RIGHT")
            else max(late + 1, waits, by_kind.get(step.kind, 0))
        )
    return late


@st.composite
def chains(draw: st.DrawFn) -> DrawnChain:
    """Three or four streams, at least two of them not by an inner join or one that is not the first join."""
    width = draw(st.sampled_from([3, 3, 3, 4]))
    relations = draw(st.lists(st.sampled_from(STREAMS), min_size=width, max_size=width))
    windows = st.sampled_from([1, SECOND, 2 * SECOND, 3 * SECOND, 5 * SECOND, 5 * SECOND])
    same = draw(st.booleans())
    window = draw(windows)
    keyed = draw(st.booleans())
    steps: list[DrawnStep] = []
    for place, relation in enumerate(relations):
        own = window if same else draw(windows)
        alias = f"{relation}{place}"
        if not place:
            steps.append(DrawnStep(relation, alias, own))
            continue
        there = [step.alias for step in steps if step.kind not in _LEFT_ONLY]
        kind = draw(st.sampled_from(KINDS))
        on = "{x}.k = {y}.k" if keyed else draw(st.sampled_from(list(ON)))
        steps.append(DrawnStep(relation, alias, own, kind, on, draw(st.sampled_from(there))))
    if all(step.kind == "INNER" for step in steps):
        steps[-1] = replace(steps[-1], kind=draw(st.sampled_from([k for k in KINDS if k != "INNER"])))
    chain = DrawnChain(tuple(steps))
    seen = st.sampled_from(chain.members)
    where = st.lists(st.tuples(st.sampled_from(list(WHERE)), seen, seen), max_size=2)
    return replace(chain, where=tuple(draw(where)))


@st.composite
def chain_sets(draw: st.DrawFn) -> list[DrawnChain]:
    """Up to three chains, of which some begin alike, or differ in windows and in what comes behind alone."""
    found = [draw(chains())]
    for _ in range(draw(st.integers(0, 2))):
        fresh, base = draw(chains()), draw(st.sampled_from(found))
        change = draw(st.sampled_from(["fresh", "last", "last", "windows", "none"]))
        if change == "last":
            steps = (*base.steps[:-1], replace(base.steps[-1], kind=draw(st.sampled_from(KINDS[1:]))))
            fresh = DrawnChain(steps)
        elif change == "windows":
            fresh = DrawnChain(tuple(replace(step, window_us=3 * SECOND) for step in base.steps))
        found.append(base if change == "none" else fresh)
    return found


@st.composite
def streams(draw: st.DrawFn, drawn: Sequence[DrawnChain]) -> Streams:
    """Rows of the streams that chains read, by time, with ties and NULLs; few keys, so that many meet."""
    keys = st.sampled_from([0, 0, 0, 1, 1, None])
    values = st.sampled_from([0, 1, 2, 3, 4, None])
    gaps = st.sampled_from([0, 0, 0, 1, 1, 2, 4])
    found: Streams = {name: [] for name in STREAMS}
    now = 0
    read = sorted({step.relation for chain in drawn for step in chain.steps})
    rows = st.lists(
        st.tuples(st.sampled_from(read), gaps, keys, values),
        min_size=draw(st.sampled_from([0, 14])),
        max_size=24,
    )
    for number, (name, gap, key, value) in enumerate(draw(rows)):
        now += gap
        found[name].append((now * SECOND, (key, value, number, now * SECOND)))
    return found
