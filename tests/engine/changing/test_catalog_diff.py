"""A change of the catalog is planned and compared before it is applied, and the difference can be printed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slicemill.api.mill import Mill
from slicemill.cli import app
from slicemill.lifecycle.catalog_diff import TaskEffect, predict_changes
from slicemill.sql.errors import SourceText
from slicemill.storage.home_reader import HomeReader
from slicemill.testing import Clock, inline_pool
from support.engine import fed_mill, feed_rows

STREAM = "CREATE STREAM s (k bigint, v bigint, ts timestamp) ORDER BY ts"
SUMS = "CREATE QUERY sums AS SELECT k, sum(v) AS n FROM s [RANGE 10 SECONDS SLIDE 2 SECONDS] GROUP BY k"
COUNTS = "CREATE QUERY counts AS SELECT k, count(*) AS n FROM s [RANGE 20 SECONDS SLIDE 2 SECONDS] GROUP BY k"
ALONE = "CREATE QUERY alone AS SELECT k FROM s WHERE v > 3"


@pytest.fixture
def mill(tmp_path: Path) -> Iterator[Mill]:
    clock = Clock(1)
    with fed_mill(tmp_path / "home", clock, inline_pool(1)) as mill:
        mill.execute(f"{STREAM}; {SUMS}; {ALONE}")
        mill.open()
        feed_rows(mill, "s", [(1, 2, 1_000_000)])
        mill.dispatcher.run_all()
        yield mill


def effects(mill: Mill, script: str) -> dict[TaskEffect, list[list[str]]]:
    diff = predict_changes(SourceText(script), HomeReader(mill.home.folder))
    found: dict[TaskEffect, list[list[str]]] = {}
    for task in diff.tasks:
        found.setdefault(task.effect, []).append(list(task.after or task.before))
    return found


def test_a_query_joins_the_task_that_has_its_panes(mill: Mill) -> None:
    expected = {TaskEffect.CHANGES: [["counts", "sums"]], TaskEffect.CONTINUES: [["alone"]]}
    assert effects(mill, COUNTS) == expected


def test_a_query_by_another_key_starts_a_task(mill: Mill) -> None:
    found = effects(
        mill,
        "CREATE QUERY other AS SELECT v, count(*) AS n FROM s [RANGE 9 SECONDS SLIDE 3 SECONDS] GROUP BY v",
    )
    assert found[TaskEffect.STARTS] == [["other"]]


def test_a_dropped_query_ends_its_task(mill: Mill) -> None:
    found = effects(mill, "DROP QUERY alone")
    assert found == {TaskEffect.CONTINUES: [["sums"]], TaskEffect.ENDS: [["alone"]]}


def test_the_difference_changes_nothing_and_is_what_is_applied(mill: Mill) -> None:
    before = mill.home.epoch
    diff = predict_changes(SourceText(COUNTS), HomeReader(mill.home.folder))
    assert mill.home.epoch == before
    mill.execute(COUNTS)
    running = {task.id: [log for _, log in task.plan.task.outputs] for task in mill.dispatcher.running.tasks}
    assert {task.task: sorted(task.after) for task in diff.tasks if task.after} == {
        task: sorted(logs) for task, logs in running.items()
    }


def test_explain_prints_the_changes_of_a_script(mill: Mill, tmp_path: Path) -> None:
    script = tmp_path / "more.esl"
    script.write_text(f"{COUNTS}; DROP QUERY alone")
    home = str(mill.home.folder)
    printed = CliRunner().invoke(app, ["explain", str(script), "--home", home, "--changes"])
    (sums,) = (
        task.id for task in mill.dispatcher.running.tasks if "sums" in dict(task.plan.task.outputs).values()
    )
    assert printed.output.splitlines() == [
        f"task {sums} changes: adds counts",
        "task select from s ends: wrote alone",
        "log counts is created",
        "log alone is dropped",
    ]
    refused = CliRunner().invoke(app, ["explain", str(script), "--changes"])
    assert refused.exit_code == 1
