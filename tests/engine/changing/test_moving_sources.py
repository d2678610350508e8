"""CREATE OR REPLACE STREAM with another source: it is read from its beginning, and queries go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.sender import Sender, eventually
from slicemill.api.mill import Mill
from slicemill.errors import SlicemillError
from slicemill.sql.errors import EslError
from slicemill.testing import inline_pool, open_mill
from support.engine import rows_as_table

SECOND = 1_000_000
COLUMNS = "(n int, ts timestamp seconds) ORDER BY ts SLACK 2 SECONDS"
TOTAL = "CREATE QUERY total AS SELECT n, sum(n) OVER (ROWS UNBOUNDED PRECEDING) AS so_far FROM s;"
ALL = [(1, 1), (2, 3), (3, 6), (4, 10), (5, 15)]


def mill_in(folder: Path) -> Mill:
    return open_mill(home=folder / "home", folder=folder, pool=inline_pool(1))


def write(folder: Path, name: str, *numbers: int) -> str:
    """Numbers as rows of a folder, each at its second: its declaration."""
    (folder / name).mkdir(exist_ok=True)
    content = "".join(f"{number},{number}\n" for number in numbers)
    (folder / name / f"{numbers[0]}.csv").write_text(content)
    return f"USING csv OPTIONS (path '{name}')"


def read(mill: Mill) -> None:
    mill.open()
    mill.dispatcher.read_all()
    mill.dispatcher.run_all()


def rows(mill: Mill) -> list[tuple[object, ...]]:
    return [timed.row for timed in mill.queries["total"].timed_rows()]


def text_of(mill: Mill) -> str:
    return next(str(entry["text"]) for entry in reversed(mill.home.statements) if entry["name"] == "s")


@pytest.mark.parametrize("reopened", ["", "checkpoint", "crash", "in the script"])
def test_queries_keep_their_state_and_rows_that_wait_stay(tmp_path: Path, reopened: str) -> None:
    old, new = write(tmp_path, "old", 1, 2, 3), write(tmp_path, "new", 4, 5)
    moved = f"CREATE OR REPLACE STREAM s {COLUMNS} {new};"
    mill = mill_in(tmp_path)
    mill.execute(f"CREATE STREAM s {COLUMNS} {old}; {TOTAL}")
    read(mill)
    assert rows(mill) == [(1, 1)]  # 2 and 3 wait for what may come late
    if reopened == "in the script":
        mill.close()
        mill = mill_in(tmp_path)
        mill.execute(f"{moved} {TOTAL}")
    else:
        effects = [(one.name, one.effect) for one in mill.statements.explain_replace(moved)]
        assert effects == [("s", "reads on")]
        mill.execute(moved)
    if reopened in ("checkpoint", "crash"):
        mill.close(checkpoint=reopened == "checkpoint")
        mill = mill_in(tmp_path)
        mill.statements.restore()
    write(tmp_path, "old", 9)  # nobody looks there any more
    mill.drain()
    assert rows(mill) == ALL
    assert mill.queries["total"].version == 1
    assert "'new'" in text_of(mill)
    mill.close()


def test_each_source_is_read_from_its_beginning_also_one_of_before(tmp_path: Path) -> None:
    old, new = write(tmp_path, "old", 1, 2), write(tmp_path, "new", 3)
    with mill_in(tmp_path) as mill:
        mill.execute(f"CREATE STREAM s (n int, ts timestamp seconds) {old}; {TOTAL}")
        for using in (new, old):
            read(mill)
            mill.execute(f"CREATE OR REPLACE STREAM s (n int, ts timestamp seconds) {using}")
        mill.drain()
        assert [row[0] for row in rows(mill)] == [1, 2, 3, 1, 2]


def test_a_stream_that_was_fed_gets_a_source_and_can_be_fed_again(tmp_path: Path) -> None:
    with mill_in(tmp_path) as mill:
        mill.execute(f"CREATE STREAM s {COLUMNS}; {TOTAL}")
        mill.open()
        mill.feed("s", rows_as_table(mill, "s", [(1, SECOND), (2, 2 * SECOND)]))
        mill.execute(f"CREATE OR REPLACE STREAM s {COLUMNS} {write(tmp_path, 'new', 3)}")
        read(mill)
        mill.execute(f"CREATE OR REPLACE STREAM s {COLUMNS}")
        mill.feed("s", rows_as_table(mill, "s", [(4, 4 * SECOND), (5, 5 * SECOND)]))
        mill.drain()
        assert rows(mill) == ALL


def test_the_other_address_of_a_socket_goes_on_with_what_was_received(tmp_path: Path) -> None:
    one, other = Sender(), Sender()
    declared = "STREAM s (n int, ts timestamp seconds) SOURCE 'tcp://127.0.0.1:{}'"
    try:
        with mill_in(tmp_path) as mill:
            mill.execute(f"CREATE {declared.format(one.port)}; {TOTAL}")
            one.send(b"1,1\n2,2\n")

            def has(count: int) -> bool:
                read(mill)
                return len(rows(mill)) >= count

            eventually(lambda: has(2))
            with pytest.raises(SlicemillError, match="may wait in its spool"):
                mill.execute(
                    f"CREATE OR REPLACE STREAM s (n int, ts timestamp seconds) {write(tmp_path, 'new', 7)}"
                )
            mill.execute(f"CREATE OR REPLACE {declared.format(other.port)}")
            other.send(b"3,3\n4,4\n5,5\n")
            eventually(lambda: has(5))
            assert rows(mill) == ALL
    finally:
        one.close()
        other.close()


def test_what_cannot_be_read_is_refused_and_the_old_source_goes_on(tmp_path: Path) -> None:
    old = write(tmp_path, "old", 1, 2)
    with mill_in(tmp_path) as mill:
        mill.execute(f"CREATE STREAM s {COLUMNS} {old}; {TOTAL}")
        read(mill)
        for using, why in (
            ("USING csv OPTIONS (path 'old', maxFilesPerTrigger 'many')", "a number of files"),
            ("SOURCE 'nowhere'", "no file or folder"),
        ):
            with pytest.raises(SlicemillError, match=why):
                mill.execute(f"CREATE OR REPLACE STREAM s {COLUMNS} {using}")
        assert "'old'" in text_of(mill)
        write(tmp_path, "old", 3, 4, 5)
        mill.drain()
        assert rows(mill) == ALL


def test_a_stream_that_has_ended_is_over(tmp_path: Path) -> None:
    with mill_in(tmp_path) as mill:
        mill.execute(f"CREATE STREAM s {COLUMNS} {write(tmp_path, 'old', 1)}; {TOTAL}")
        mill.drain()
        with pytest.raises(SlicemillError, match="s has ended, and its queries have given their last"):
            mill.execute(f"CREATE OR REPLACE STREAM s {COLUMNS} {write(tmp_path, 'new', 2)}")


def test_the_hint_of_a_changed_script_works_when_followed(tmp_path: Path) -> None:
    old, new = write(tmp_path, "old", 1, 2, 3), write(tmp_path, "new", 4, 5)
    with mill_in(tmp_path) as mill:
        mill.execute(f"CREATE STREAM s {COLUMNS} {old}; {TOTAL}")
        read(mill)
    with mill_in(tmp_path) as mill:
        with pytest.raises(EslError, match="write CREATE OR REPLACE STREAM s, which reads on"):
            mill.execute(f"CREATE STREAM s {COLUMNS} {new}; {TOTAL}")
        mill.execute(f"CREATE OR REPLACE STREAM s {COLUMNS} {new}; {TOTAL}")
        mill.drain()
        assert rows(mill) == ALL
