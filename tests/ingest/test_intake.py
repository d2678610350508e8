"""The intake: late rows, rows held back, and the order in which rows enter a log."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from ingest.streams import SCHEMA, Kept, external, internal, rows, run, tuples
from slicemill.catalog.catalog import TimestampKind
from slicemill.columns.arrow_schema import to_arrow, with_system_columns
from slicemill.errors import SlicemillError
from slicemill.ingest.intake import BatchTimestamps, Intake
from slicemill.time import BEGINNING


def test_one_file_of_eight_rows_and_eight_files_of_one_row_have_the_same_late_rows() -> None:
    times = [5, 3, 9, 8, 9, 2, 11, 10]
    whole, single = run(external(), times, []), run(external(), times, range(8))
    assert [n for _, _, n in whole.late] == [1, 3, 5, 7]
    assert whole.late == single.late and whole.admitted == single.admitted


def test_rows_within_the_slack_are_sorted_and_the_newest_rows_are_held_back() -> None:
    kept = run(external(slack=5), [9, 5, 12, 6, 11], [])
    assert [(ts, n) for ts, _, _, n in kept.admitted] == [(5, 1)]
    assert [seq for seq, _, _ in kept.late] == [3]
    assert kept.progress["watermark"] == 7 and kept.progress["held_from"] == 9
    assert [ts for ts, *_ in tuples(kept.held[0], "_ts")] == [9, 11, 12]


def test_the_end_of_a_stream_admits_all_held_rows() -> None:
    kept = run(external(slack=5), [9, 5, 12, 6, 11], [])
    kept.keep(kept.open().flush(0))
    assert [ts for ts, *_ in kept.admitted] == [5, 9, 11, 12]
    assert kept.progress["ended"] and "held_from" not in kept.progress


def test_rows_with_equal_timestamps_keep_their_order_of_arrival() -> None:
    kept = run(external(slack=2), [3, 1, 3, 2, 3, 9], [2, 3])
    assert [(ts, n) for ts, _, _, n in kept.admitted] == [(1, 1), (2, 3), (3, 0), (3, 2), (3, 4)]
    assert [seq for _, seq, _, _ in kept.admitted] == [0, 1, 2, 3, 4]


def test_admitted_rows_have_the_columns_of_the_log_and_their_arrival_times() -> None:
    found = Intake(external(), {}).admit("", rows([1, 2]), np.array([70, 80]), BEGINNING, 90)
    assert found.rows.schema.equals(with_system_columns(to_arrow(SCHEMA)))
    assert tuples(found.rows, "_ts", "_seq", "_arr") == [(1, 0, 70), (2, 1, 80)]
    assert found.late.num_rows == found.held.num_rows == found.errors.num_rows == 0


def test_a_row_below_the_announced_watermark_is_late() -> None:
    found = Intake(external(), {}).admit("", rows([4, 6]), 1, 5, 1)
    assert tuples(found.rows, "_ts", "n") == [(6, 1)] and tuples(found.late, "_ts", "n") == [(1, 0)]


def test_an_announced_watermark_admits_held_rows_below_it() -> None:
    intake = Intake(external(slack=100), {})
    assert intake.admit("", rows([10, 20, 30]), 1, BEGINNING, 1).rows.num_rows == 0
    assert tuples(intake.admit("", None, 2, 20, 2).rows, "_ts") == [(10,), (20,)]


def test_rows_that_no_query_needs_advance_the_watermark() -> None:
    times = np.array([1, 9, 5, 9])
    found = Intake(external(), {}).admit(
        "",
        rows([1, 5, 9], [0, 2, 3]),
        7,
        BEGINNING,
        7,
        passed=BatchTimestamps(times, np.array([1, 0, 1, 1], bool)),
    )
    assert tuples(found.rows, "_ts", "_seq", "n") == [(1, 0, 0), (9, 1, 3)]
    assert tuples(found.late, "_seq", "n") == [(2, 2)]


def test_a_batch_that_no_query_needs_advances_the_watermark() -> None:
    intake = Intake(external(), {})
    passed = BatchTimestamps(np.array([9]), np.array([False]))
    assert intake.admit("", rows([]), 7, BEGINNING, 7, passed=passed).progress["watermark"] == 9
    assert tuples(intake.admit("", rows([8]), 8, BEGINNING, 8).late, "_seq") == [(1,)]


@pytest.mark.parametrize("kind", [TimestampKind.INTERNAL, TimestampKind.LATENT])
def test_rows_without_timestamps_are_stamped_with_their_arrival_times(kind: TimestampKind) -> None:
    kept = Kept(internal(kind))
    for arrivals, promised in (((50, 55), BEGINNING), ((60, 75), 70), ((40, 80), 0)):
        # The clock may run backwards, also while the engine is stopped.
        kept.keep(kept.open().admit("", rows([0, 0]), np.array(arrivals), promised, 90))
    assert [(ts, seq) for ts, seq, _, _ in kept.admitted] == [
        (50, 0), (55, 1), (70, 2), (75, 3), (75, 4), (80, 5),
    ]  # fmt: skip


def test_only_wanted_rows_of_an_internal_stream_are_numbered() -> None:
    passed = BatchTimestamps(np.zeros(3, np.int64), np.array([False, True, True]))
    found = Intake(internal(), {}).admit("", rows([0, 0]), 30, BEGINNING, 50, passed=passed)
    assert tuples(found.rows, "_ts", "_seq") == [(30, 0), (30, 1)]


def test_bad_and_late_rows_are_streams_stamped_on_entry() -> None:
    kept = Kept(external())
    bad = pa.table({"raw": ["x"], "reason": ["no number"]})
    intake = kept.open()
    intake.admit("", rows([9]), 1, BEGINNING, 50)
    found = intake.admit("", rows([1]), 1, BEGINNING, 60, errors=bad, side_watermark=65)
    assert tuples(found.late, "_ts", "_seq") == [(65, 1)] and tuples(found.errors, "_ts", "_seq") == [(65, 0)]
    kept.keep(found)
    found = kept.open().admit("", None, 1, BEGINNING, 55, errors=bad)
    assert tuples(found.errors, "_ts", "_seq", "raw") == [(65, 1, "x")]


def test_an_intake_rejects_rows_before_its_held_rows_are_restored() -> None:
    kept = run(external(slack=5), [1], [])
    with pytest.raises(SlicemillError, match="restore them"):
        Intake(kept.stream, kept.progress).admit("", None, 0, BEGINNING, 0)


def test_held_rows_without_a_column_are_admitted_with_null() -> None:
    intake = Intake(external(slack=5), {})
    intake.admit("", rows([1]).select(["at"]), 1, BEGINNING, 1)
    intake.admit("", rows([2]), 1, BEGINNING, 1)
    assert tuples(intake.flush(0).rows, "_ts", "n") == [(1, None), (2, 0)]


def test_progress_of_an_intake_is_small_plain_json() -> None:
    kept = run(external(slack=3, skew=9), list(range(100)), range(0, 100, 7))
    text = json.dumps(kept.progress)
    assert json.loads(text) == kept.progress and len(text) < 200


class TestPartitions:
    """Two partitions, a and b, of one stream."""

    def test_the_watermark_is_the_minimum_over_the_partitions(self) -> None:
        kept = Kept(external(), ("a", "b"))
        intake = kept.open()
        kept.keep(intake.admit("a", rows([5, 9], [1, 2]), 1, BEGINNING, 1))
        assert kept.admitted == []
        kept.keep(intake.admit("b", rows([4, 7], [3, 4]), 2, BEGINNING, 2))
        assert [(ts, n) for ts, _, _, n in kept.admitted] == [(4, 3), (5, 1), (7, 4)]
        assert kept.progress["watermark"] == 7 and kept.progress["held_from"] == 9

    def test_a_silent_partition_does_not_hold_the_watermark(self) -> None:
        intake = Intake(external(), {}, ("a", "b"))
        intake.admit("b", rows([1]), 1, BEGINNING, 1)
        assert tuples(intake.admit("a", rows([5, 9]), 1, BEGINNING, 1).rows, "_ts") == [(1,)]
        assert tuples(intake.admit("b", None, 2, BEGINNING, 2).rows, "_ts") == [(5,), (9,)]

    def test_rows_of_a_partition_after_its_silence_are_compared_with_the_watermark_of_the_stream(
        self,
    ) -> None:
        intake = Intake(external(), {}, ("a", "b"))
        intake.admit("a", None, 1, BEGINNING, 1)
        intake.admit("b", rows([8]), 1, BEGINNING, 1)
        found = intake.admit("a", rows([7, 8, 9]), 2, BEGINNING, 2)
        assert tuples(found.late, "n") == [(0,)] and tuples(found.rows, "_ts") == [(8,)]
        assert tuples(found.held, "_ts") == [(9,)]

    def test_a_read_that_left_rows_behind_is_no_silence(self) -> None:
        intake = Intake(external(), {}, ("a", "b"))
        intake.admit("b", rows([1]), 1, BEGINNING, 1)
        intake.admit("a", rows([9]), 1, BEGINNING, 1)
        assert intake.admit("b", None, 2, BEGINNING, 2, more=True).rows.num_rows == 0

    def test_the_watermark_is_the_maximum_when_all_partitions_are_silent(self) -> None:
        intake = Intake(external(), {}, ("a", "b"))
        intake.admit("a", rows([9]), 1, BEGINNING, 1)
        intake.admit("a", None, 2, BEGINNING, 2)
        assert tuples(intake.admit("b", None, 2, BEGINNING, 2).rows, "_ts") == [(9,)]

    def test_an_ended_partition_does_not_hold_the_watermark(self) -> None:
        intake = Intake(external(), {}, ("a", "b"))
        intake.admit("a", rows([9]), 1, BEGINNING, 1)
        found = intake.admit("b", rows([2]), 1, BEGINNING, 1, ended=True)
        assert tuples(found.rows, "_ts") == [(2,), (9,)]
