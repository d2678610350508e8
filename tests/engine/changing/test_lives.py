"""Queries and streams that are paused, resumed, fail and are tried again: others see nothing of it."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from engine.changing.catalogue import KINDS
from engine.changing.come_and_go import Step, play

_PLAIN = sorted(name for name, kind in KINDS.items() if not kind.ad_hoc)


@pytest.mark.slow_cpu
def test_every_kind_of_query_is_paused_through_a_crash_and_a_restart_and_misses_nothing() -> None:
    steps: list[Step] = [("create", f"q_{kind}", kind) for kind in _PLAIN[::2]]
    steps += [("feed", 9), ("run",)]
    steps += [("pause", f"q_{kind}") for kind in _PLAIN[::2]]
    steps += [("feed", 4), ("run",), ("restart", False), ("feed", 4), ("run",)]
    steps += [("pause_stream", "big"), ("pause_stream", "s"), ("feed", 3), ("run",), ("restart", True)]
    steps += [("feed", 3), ("run",), ("resume_streams",)]
    steps += [("resume", f"q_{kind}") for kind in _PLAIN[::4]]
    steps += [("drop", f"q_{kind}") for kind in _PLAIN[::5]]
    steps += [("feed", 3), ("run",), ("restart", False)]
    play(steps, seed=1, subtasks=3)


@st.composite
def lives(draw: st.DrawFn) -> tuple[list[Step], int, int]:
    """Steps with a few kinds of queries, so that many share something; a seed, and a number of subtasks."""
    pool = draw(st.lists(st.sampled_from(_PLAIN), min_size=2, max_size=5, unique=True))
    names, kinds = st.sampled_from("abcd"), st.sampled_from(pool)
    step: st.SearchStrategy[Step] = st.one_of(
        st.tuples(st.just("create"), names, kinds),
        st.tuples(st.just("pause"), names),
        st.tuples(st.just("pause"), names),
        st.tuples(st.just("resume"), names),
        st.tuples(st.just("pause_stream"), st.sampled_from(["s", "r", "big", "totals"])),
        st.tuples(st.just("resume_streams")),
        st.tuples(st.just("drop"), names),
        st.tuples(st.just("or_replace"), names, kinds),
        st.tuples(st.just("or_replace"), names, kinds),
        st.tuples(st.just("feed"), st.integers(1, 6)),
        st.tuples(st.just("feed"), st.integers(1, 6)),
        st.tuples(st.just("run")),
        st.tuples(st.just("restart"), st.booleans()),
    )
    first: list[Step] = [("create", name, draw(kinds)) for name in "abc"]
    return (
        [*first, *draw(st.lists(step, min_size=4, max_size=16))],
        draw(st.integers(0, 2)),
        draw(st.sampled_from([1, 3])),
    )


# To shrink an example takes longer than to read one.
@pytest.mark.slow_cpu
@settings(
    max_examples=15,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(lives())
def test_queries_are_paused_resumed_and_replaced_and_give_what_they_give_alone(
    given_: tuple[list[Step], int, int],
) -> None:
    play(*given_)
