"""Virtual and real time behind one protocol."""

from __future__ import annotations

from slicemill_oracle.clock import RealClock, VirtualClock


def test_virtual_time_advances_by_costs_and_waits_and_never_decreases() -> None:
    clock = VirtualClock()
    clock.spend(5)
    clock.wait_until(20)
    clock.wait_until(10)
    assert clock.now() == 20


def test_real_time_is_read_from_the_machine_and_waits_by_sleep() -> None:
    time_ns = [1_000_000]
    naps: list[float] = []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        time_ns[0] += int(seconds * 1_000_000_000)

    clock = RealClock(lambda: time_ns[0], sleep)
    assert clock.now() == 0
    clock.spend(1_000_000)
    assert clock.now() == 0
    clock.wait_until(3_000)
    assert clock.now() == 3_000
    assert naps == [0.003]
