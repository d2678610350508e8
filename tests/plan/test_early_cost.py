"""When two phases are chosen: by what was counted, buckets and cores."""

from __future__ import annotations

from slicemill.plan.early_cost import Counted, PaneStatistics, choose, costs


def counted(rows: int, entries: int, early: int = 0) -> PaneStatistics:
    known = PaneStatistics()
    known.observe(Counted(rows, entries, early))
    return known


def test_without_keys_two_phases_need_a_second_core_and_many_rows() -> None:
    many = counted(1_000_000, 100)
    assert choose(many, keyed=False, buckets=1, cores=2).early
    assert not choose(many, keyed=False, buckets=1, cores=1).early
    assert not choose(counted(1_000, 10), keyed=False, buckets=1, cores=8).early


def test_without_keys_much_is_assumed_before_anything_is_counted() -> None:
    assert choose(PaneStatistics(), keyed=False, buckets=1, cores=2).early
    unknown = choose(PaneStatistics(), keyed=True, buckets=2, cores=2)
    assert not unknown.early and "not counted yet" in unknown.why


def test_with_keys_rows_must_become_few_entries() -> None:
    assert choose(counted(1_000_000, 50_000), keyed=True, buckets=2, cores=2).early
    assert not choose(counted(1_000_000, 1_000_000), keyed=True, buckets=2, cores=2).early


def test_more_buckets_look_at_the_same_rows_again() -> None:
    """Their cores do not make one phase much quicker, and cost it more."""
    one_2, two_2 = costs(1_000_000, 20, buckets=2, cores=2)
    one_8, two_8 = costs(1_000_000, 20, buckets=8, cores=8)
    assert one_8 / two_8 > one_2 / two_2 > 1


def test_chunks_that_share_panes_make_more_entries() -> None:
    """Once entries were read it is known how many of them become one, and that stays so."""
    known = counted(1_000_000, 50_000)
    assert known.reduction == 20
    known.observe(Counted(1_000_000, 50_000, early=400_000))
    assert known.reduction == 2.5
    known.observe(Counted(1_000_000, 50_000))
    assert known.reduction == 2.5
    assert not choose(known, keyed=True, buckets=2, cores=2).early


def test_what_is_long_ago_fades_and_empty_runs_do_not_count() -> None:
    known = counted(1_000_000, 1_000_000)
    known.observe(Counted())
    assert known.rows_a_run == 1_000_000
    for _ in range(60):
        known.observe(Counted(100, 10))
    assert known.reduction > 9
    assert known.rows_a_run < 2_000
