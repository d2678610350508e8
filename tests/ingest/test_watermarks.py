"""Watermarks by data, by silence and by the clock (M21-M26, golden G12)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.streams import Kept, external, internal, rows
from slicemill.catalog.catalog import TimestampKind
from slicemill.ingest.watermarks import PARTITIONS, PartitionProgress, time_of_watermark, watermark
from slicemill.time import BEGINNING, END
from slicemill_oracle.ets import ets_now, moment_of_ets


def progress(*partitions: PartitionProgress) -> dict[str, object]:
    return {PARTITIONS: {str(index): list(part) for index, part in enumerate(partitions)}}


def test_g12_silence_advances_the_watermark_of_an_external_stream_by_its_length_less_the_skew() -> None:
    known = progress(PartitionProgress(100, 100, 112, True))
    assert watermark(external(skew=5), known, 200) == 107
    assert time_of_watermark(external(skew=5), known, 107) == 112


@pytest.mark.parametrize("kind", [TimestampKind.INTERNAL, TimestampKind.LATENT])
def test_g12_the_clock_advances_the_watermark_of_a_stream_stamped_on_entry(kind: TimestampKind) -> None:
    assert watermark(internal(kind), {}, 250) == 250 == time_of_watermark(internal(kind), {}, 250)


def test_a_pending_read_holds_the_watermark_at_its_start() -> None:
    assert watermark(internal(), {}, 250, sent_us=240) == 240
    assert watermark(internal(), {"stamp": 245}, 250, sent_us=240) == 245


def test_the_watermark_of_an_ended_stream_is_the_end_of_time() -> None:
    assert watermark(external(), {"ended": True}, 1) == watermark(internal(), {"ended": True}, 1) == END


def test_only_data_advances_the_watermark_of_an_external_stream_without_skew() -> None:
    known = {**progress(PartitionProgress(100, 100, 112, True)), "watermark": 100}
    assert watermark(external(), known, 999) == 100 and time_of_watermark(external(), known, 101) is None


def test_a_stream_without_reads_has_no_watermark() -> None:
    assert watermark(external(skew=5), {}, 999) == BEGINNING
    assert watermark(external(skew=5), progress(PartitionProgress()), 999) == BEGINNING
    assert watermark(external(skew=5), progress(PartitionProgress(silent=True, seen_us=9)), 99) == BEGINNING


def test_the_duration_of_a_read_is_no_silence() -> None:
    kept = Kept(external(skew=1))
    intake = kept.open()
    kept.keep(intake.admit("", rows([100]), 50, BEGINNING, 50))
    assert watermark(kept.stream, kept.progress, 90) == 100
    kept.keep(intake.admit("", None, 60, BEGINNING, 60))
    assert watermark(kept.stream, kept.progress, 90, sent_us=61) == 109


def test_a_reader_that_notifies_counts_as_silent_without_polls() -> None:
    known = progress(PartitionProgress(100, 50, 50, False))
    assert watermark(external(skew=5), known, 90, seen_us=80) == 125
    assert watermark(external(skew=5), known, 90, sent_us=70, seen_us=80) == 115


def test_silence_does_not_advance_the_watermark_past_held_rows() -> None:
    known = {**progress(PartitionProgress(100, 50, 90, True)), "held_from": 98, "watermark": 95}
    assert watermark(external(slack=5, skew=5), known, 90) == 98


def test_silence_admits_held_rows() -> None:
    kept = Kept(external(slack=5, skew=2))
    intake = kept.open()
    kept.keep(intake.admit("", rows([98, 100]), 50, BEGINNING, 50))
    assert kept.admitted == []
    assert time_of_watermark(kept.stream, kept.progress, 98) == 53
    kept.keep(intake.admit("", None, 53, BEGINNING, 53))
    assert [ts for ts, *_ in kept.admitted] == [98] and kept.progress["held_from"] == 100


def test_a_late_row_ends_a_silence() -> None:
    kept = Kept(external(skew=0))
    intake = kept.open()
    kept.keep(intake.admit("", rows([100]), 50, BEGINNING, 50))
    kept.keep(intake.admit("", rows([90]), 60, BEGINNING, 60))
    assert watermark(kept.stream, kept.progress, 60) == 100


def test_the_watermark_after_silence_is_computed_over_partitions() -> None:
    stream = external(skew=10)
    quick, slow = PartitionProgress(200, 100, 150, False), PartitionProgress(120, 100, 160, False)
    assert watermark(stream, progress(quick, slow), 500) == 120 + 50 - 10
    assert watermark(stream, progress(quick, slow._replace(silent=True)), 500) == 200 + 50 - 10
    both = progress(quick._replace(silent=True), slow._replace(silent=True))
    assert watermark(stream, both, 500) == 240
    assert watermark(stream, progress(quick, PartitionProgress()), 500) == BEGINNING
    assert (
        time_of_watermark(stream, progress(quick, slow), 250) == 240
        and time_of_watermark(stream, both, 250) == 160
    )


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.integers(0, 9), st.integers(0, 9))
def test_the_reference_engine_computes_the_same_watermark(
    ts: int, arrival: int, wait: int, skew: int, slack: int
) -> None:
    kept = Kept(external(slack, skew))
    kept.keep(kept.open().admit("", rows([ts]), arrival, BEGINNING, arrival))
    offered = ets_now("external", arrival + wait, ts, arrival, max(skew, slack))
    assert offered is not None
    kept.held.clear()
    kept.progress.pop("held_from", None)
    found = watermark(kept.stream, kept.progress, arrival + wait, seen_us=arrival + wait)
    assert found == max(offered, ts - slack)
    assert time_of_watermark(kept.stream, kept.progress, 60) == moment_of_ets(
        60, "external", ts, arrival, max(skew, slack)
    )
