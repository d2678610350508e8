"""Operators with Python objects by key continue from checkpoints of this version and of earlier versions."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from slicemill.runtime.pipeline import TaskProgram
from slicemill.storage.checkpoints import encode_states, read_checkpoint, write, write_checkpoint
from slicemill.time import END
from storage.golden_states import (
    BY_ROWS,
    FIRST_ROWS,
    GOLDEN,
    LATER_ROWS,
    by_rows_programs,
    read_golden,
    run_programs,
)


@pytest.mark.parametrize("query", BY_ROWS)
@pytest.mark.parametrize("stored", ["by-rows", "objects-by-key", "now", "handed over"])
def test_an_operator_continues_from_states_of_each_version(query: str, stored: str, tmp_path: Path) -> None:
    programs = by_rows_programs(query)
    run_programs(programs, {"s": FIRST_ROWS}, {"s": 3_000_000})
    states = programs[-1].states
    if stored == "now":
        states = read_checkpoint(tmp_path, write_checkpoint(tmp_path, states))
    elif stored != "handed over":
        states = read_golden(GOLDEN / f"{stored}-{query}")
    expected = by_rows_programs(query)
    run_programs(expected, {"s": FIRST_ROWS}, {"s": 3_000_000})
    restored = [*programs[:-1], by_rows_programs(query, states)[-1]]
    for rows, until in ((LATER_ROWS, 9_000_000), (LATER_ROWS.slice(0, 0), END)):
        given = run_programs(expected, {"s": rows}, {"s": until})
        assert repr(run_programs(restored, {"s": rows}, {"s": until})) == repr(given)
        assert given or until == END


@pytest.mark.parametrize("query", BY_ROWS)
def test_each_snapshot_continues_like_the_query_even_if_written_later(query: str, tmp_path: Path) -> None:
    table = pa.concat_tables([FIRST_ROWS, LATER_ROWS])
    runs = [(table.slice(row, 1), table.column("_ts")[row].as_py()) for row in range(table.num_rows)]
    runs.append((table.slice(0, 0), END))
    programs, given, taken = by_rows_programs(query), [], []
    for rows, until in runs:
        given.append(run_programs(programs, {"s": rows}, {"s": until}))
        taken.append([encode_states(program.states) for program in programs])
    for number, snapshots in reversed(list(enumerate(taken))):
        states = [read_checkpoint(tmp_path, write(tmp_path, snapshot)) for snapshot in snapshots]
        restored = [TaskProgram(program.plan, kept) for program, kept in zip(programs, states, strict=True)]
        for (rows, until), expected in list(zip(runs, given, strict=True))[number + 1 :]:
            assert repr(run_programs(restored, {"s": rows}, {"s": until})) == repr(expected)
