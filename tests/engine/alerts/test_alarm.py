"""When an alarm fires, is told again, and is over."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slicemill.lifecycle.alerts import Alarm, AlarmState


def told(looks: list[tuple[int, bool | None]], for_us: int = 0, repeat_us: int | None = None) -> list[object]:
    alarm, found = Alarm(), list[object]()
    for now, holds in looks:
        alarm, word = alarm.apply_condition(holds, now, for_us, repeat_us)
        if word is not None:
            found.append((now, word, alarm.times))
    return found


def test_it_fires_at_once_and_is_resolved() -> None:
    assert told([(0, False), (1, True), (2, True), (3, False)]) == [(1, "firing", 1), (3, "resolved", 0)]


def test_a_condition_has_to_hold_for_as_long_as_is_said() -> None:
    looks = [(0, True), (5, True), (6, False), (7, True), (16, True), (17, True), (30, True)]
    assert told(looks, for_us=10) == [(17, "firing", 1)]


def test_it_is_told_again_and_again() -> None:
    looks: list[tuple[int, bool | None]] = [(now, True) for now in range(0, 100, 10)]
    assert told(looks, repeat_us=30) == [
        (0, "firing", 1),
        (30, "firing", 2),
        (60, "firing", 3),
        (90, "firing", 4),
    ]


def test_what_is_not_known_changes_nothing() -> None:
    assert told([(0, True), (1, None), (2, True), (3, None), (4, False)]) == [
        (0, "firing", 1),
        (4, "resolved", 0),
    ]


@given(
    st.lists(st.tuples(st.integers(1, 20), st.sampled_from([True, False, None])), max_size=40),
    st.integers(0, 30),
    st.none() | st.integers(1, 30),
)
def test_firing_and_resolved_alternate_and_a_restart_changes_nothing(
    steps: list[tuple[int, bool | None]], for_us: int, repeat_us: int | None
) -> None:
    alarm, now, firing = Alarm(), 0, False
    for step, holds in steps:
        now += step
        alarm, word = alarm.apply_condition(holds, now, for_us, repeat_us)
        if word == "firing":
            assert not firing or repeat_us is not None
            firing = True
        elif word == "resolved":
            assert firing and holds is False
            firing = False
        assert (alarm.state is AlarmState.FIRING) == firing
        if firing:
            assert Alarm.of(alarm.plain()) == alarm
