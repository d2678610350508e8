"""INSERT, UPDATE, DELETE and TRUNCATE leave what DuckDB leaves, before and after a restart."""

from __future__ import annotations

import tempfile
from pathlib import Path

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slicemill.api.mill import Mill
from slicemill.errors import SlicemillError
from slicemill.sql.errors import EslError
from slicemill.storage import table_files
from slicemill.storage.check import check_home
from slicemill.testing import inline_pool, open_mill

_DECLARED = "CREATE TABLE t (k bigint PRIMARY KEY, v bigint NOT NULL, w varchar)"
_KEYS, _VALUES = st.integers(0, 6), st.integers(-3, 3)
_TEXTS = st.sampled_from(["'a'", "'b'", "NULL", "''"])


@st.composite
def _rows(draw: st.DrawFn, nulls: bool = True) -> str:
    # PostgreSQL refuses a NULL also in a row that does nothing, and a key twice, DuckDB does not.
    value = st.one_of(_VALUES.map(str), st.just("NULL")) if nulls else _VALUES.map(str)
    values = st.tuples(_KEYS, value, _TEXTS)
    once = None if nulls else (lambda row: row[0])
    rows = draw(st.lists(values, min_size=1, max_size=4, unique_by=once))
    return ", ".join(f"({k}, {v}, {w})" for k, v, w in rows)


@st.composite
def _changes(draw: st.DrawFn) -> str:
    where = draw(
        st.sampled_from(
            [
                "",
                "WHERE k = 3",
                "WHERE v > 0",
                "WHERE w IS NULL",
                "WHERE k = 2 AND v < 2",
                "WHERE w = 'a' OR k > 4",
                "WHERE v = (SELECT max(v) FROM t)",
                "WHERE 5 = k",
            ]
        )
    )
    kind = draw(
        st.sampled_from(["insert", "insert", "conflict", "replace", "update", "delete", "query", "truncate"])
    )
    if kind == "insert":
        return f"INSERT INTO t VALUES {draw(_rows())}"
    if kind == "conflict":
        what = draw(
            st.sampled_from(
                [
                    "NOTHING",
                    "UPDATE SET v = excluded.v",
                    "UPDATE SET v = t.v + excluded.v, w = 'c' WHERE t.v < 2",
                ]
            )
        )
        return f"INSERT INTO t VALUES {draw(_rows(nulls=False))} ON CONFLICT (k) DO {what}"
    if kind == "replace":
        return f"INSERT OR REPLACE INTO t (k, v) VALUES ({draw(_KEYS)}, {draw(_VALUES)})"
    if kind == "update":
        what = draw(
            st.sampled_from(["v = v + 1", "w = 'd', v = k", "v = CASE WHEN v > 1 THEN NULL ELSE 0 END"])
        )
        return f"UPDATE t SET {what} {where}"
    if kind == "query":
        return f"INSERT INTO t SELECT k + 7, v, w FROM t {where} ON CONFLICT DO NOTHING"
    return "TRUNCATE TABLE t" if kind == "truncate" else f"DELETE FROM t {where}"


def _opened(home: Path) -> Mill:
    mill = open_mill(home=home, pool=inline_pool(1))
    mill.statements.restore()
    mill.open()
    return mill


def _model() -> duckdb.DuckDBPyConnection:
    model = duckdb.connect()
    model.execute(_DECLARED)
    return model


def _changed_in_model(model: duckdb.DuckDBPyConnection, change: str) -> int | None:
    """How many rows; None if it is refused."""
    try:
        if change.startswith("TRUNCATE"):
            (counted,) = model.execute("SELECT count(*) FROM t").fetchall()[0]
            model.execute(change)
            return int(counted)
        return int(model.execute(change).fetchall()[0][0])
    except duckdb.ConstraintException:
        return None
    except duckdb.InvalidInputException as problem:  # one row twice in one command
        assert "same row" in str(problem) or "twice" in str(problem), problem
        return None


def _changed_in_mill(mill: Mill, change: str) -> int | None:
    try:
        return mill.statements.change_rows(change)[0]
    except EslError:
        return None


def _rows_of(mill: Mill) -> list[tuple[object, ...]]:
    return sorted(mill.tables.rows("t"), key=repr)


@settings(max_examples=25)
@given(st.lists(st.one_of(_changes(), st.just("restart")), min_size=1, max_size=10), st.booleans())
@example(["INSERT INTO t VALUES (1, 1, 'a'), (1, 2, 'b') ON CONFLICT (k) DO NOTHING", "restart"], False)
@example(
    ["INSERT INTO t VALUES (1, 1, 'a')", "TRUNCATE TABLE t", "restart", "INSERT INTO t VALUES (1, 1, 'a')"],
    True,
)
def test_changes_leave_what_duckdb_leaves(changes: list[str], often_whole: bool) -> None:
    """Tables of a few rows are nearly always written whole, unless that is put off."""
    limit = table_files._MOST_CHANGED
    table_files._MOST_CHANGED = limit if often_whole else 1e9
    model = _model()
    try:
        with tempfile.TemporaryDirectory() as folder:
            mill = _opened(Path(folder) / "home")
            mill.execute(_DECLARED)
            for change in changes:
                if change == "restart":
                    mill.close()
                    mill = _opened(Path(folder) / "home")
                else:
                    assert _changed_in_mill(mill, change) == _changed_in_model(model, change), change
                assert _rows_of(mill) == sorted(model.execute("SELECT * FROM t").fetchall(), key=repr), change
            columns = mill.tables.to_arrow("t")
            found = sorted((tuple(row.values()) for row in columns.to_pylist()), key=repr)
            assert found == _rows_of(mill)
            mill.home.free()
            mill.close()
            assert not check_home(Path(folder) / "home").errors
    finally:
        table_files._MOST_CHANGED = limit
        model.close()


def test_a_key_may_be_changed_while_others_have_it(tmp_path: Path) -> None:
    """DuckDB refuses this one, and PostgreSQL unless the constraint is deferred; here it is one step."""
    with _opened(tmp_path) as mill:
        mill.execute(f"{_DECLARED}; INSERT INTO t VALUES (1, 1, 'a'), (2, 2, 'b')")
        assert mill.statements.change_rows("UPDATE t SET k = 3 - k") == [2]
        assert _rows_of(mill) == [(1, 2, "b"), (2, 1, "a")]
        with pytest.raises(EslError, match="k = 5 already"):
            mill.statements.change_rows("UPDATE t SET k = 5")


def test_changes_of_one_text_are_made_all_or_none(tmp_path: Path) -> None:
    with _opened(tmp_path) as mill:
        with pytest.raises(EslError, match="k = 1 already") as refused:
            mill.execute(
                f"{_DECLARED};\nINSERT INTO t VALUES (1, 1, 'a');\nINSERT INTO t VALUES (1, 2, 'b');"
            )
        (diagnostic,) = refused.value.diagnostics
        assert "INSERT INTO t VALUES (1, 2" in str(refused.value)
        assert "OR REPLACE" in diagnostic.hint
        assert mill.catalog.relation("t") is None
        mill.execute(f"{_DECLARED}; INSERT INTO t VALUES (1, 1, 'a')")
        with pytest.raises(EslError):
            mill.execute(
                "DELETE FROM t; INSERT INTO t VALUES (2, 1, 'a'); INSERT INTO t VALUES (3, NULL, 'a')"
            )
        assert _rows_of(mill) == [(1, 1, "a")]


def test_a_table_that_is_dropped_and_declared_again_is_empty(tmp_path: Path) -> None:
    with _opened(tmp_path) as mill:
        mill.execute(f"{_DECLARED}; INSERT INTO t VALUES (1, 1, 'a')")
        mill.execute("DROP TABLE t; CREATE TABLE t (a varchar); INSERT INTO t VALUES ('x')")
        assert _rows_of(mill) == [("x",)]
    with _opened(tmp_path) as mill:
        assert _rows_of(mill) == [("x",)]
        mill.execute("DROP TABLE t")
        mill.execute("CREATE TABLE t (a varchar)")
        assert _rows_of(mill) == []


def test_a_script_that_is_run_again_keeps_the_rows_of_its_tables(tmp_path: Path) -> None:
    script = f"{_DECLARED}; INSERT INTO t VALUES (1, 1, 'a') ON CONFLICT DO NOTHING"
    for _ in range(3):
        with open_mill(home=tmp_path, pool=inline_pool(1)) as mill:
            mill.execute(script)
            assert _rows_of(mill) == [(1, 1, "a")]


def test_rows_outlive_a_mill_that_was_never_opened(tmp_path: Path) -> None:
    with open_mill(home=tmp_path, pool=inline_pool(1)) as mill:
        mill.execute(f"{_DECLARED}; INSERT INTO t VALUES (1, 1, 'a')")
    with _opened(tmp_path) as mill:
        assert _rows_of(mill) == [(1, 1, "a")]


def test_one_row_into_a_large_table_writes_a_small_file(tmp_path: Path) -> None:
    count = 2 * table_files.MOST_FILES + 20
    with _opened(tmp_path) as mill:
        mill.execute(_DECLARED)
        mill.tables.set_rows("t", [(k, k, "a" * 20) for k in range(20_000)])
        whole = max(file.stat().st_size for file in (tmp_path / "tables").iterdir())
        before = {file.name for file in (tmp_path / "tables").iterdir()}
        for k in range(count):
            mill.statements.change_rows(f"INSERT INTO t VALUES ({20_000 + k}, 1, 'b')")
        mill.home.free()
        left = list((tmp_path / "tables").iterdir())
        new = [file for file in left if file.name not in before]
        assert len(left) <= table_files.MOST_FILES + 1
        assert sorted(file.stat().st_size for file in new)[len(new) // 2] < whole / 50
    with _opened(tmp_path) as mill:
        assert len(mill.tables.rows("t")) == 20_000 + count


@pytest.mark.parametrize(
    ("change", "message", "hint"),
    [
        ("INSERT INTO t VALUES (1, 2)", "2 values for 3 columns", "k, v, w"),
        ("INSERT INTO t (k, w) VALUES (1, 'a')", "v must not be NULL, and is not given", "add v"),
        ("INSERT INTO t (k, k) VALUES (1, 1)", "k is given twice", "once"),
        ("INSERT INTO t VALUES (1, NULL, 'a')", "v is NOT NULL, and this is NULL", "value"),
        ("INSERT INTO t VALUES (NULL, 1, 'a')", "k is in the key, and this is NULL", "value"),
        ("INSERT INTO t VALUES (1, 1, 2)", "w is VARCHAR, this is INT", "CAST(… AS VARCHAR)"),
        ("INSERT INTO t VALUES (1, 1, 'a') ON CONFLICT (v) DO NOTHING", "names the key", "ON CONFLICT (k)"),
        ("INSERT INTO u VALUES (1) ON CONFLICT DO NOTHING", "u has no key", "PRIMARY KEY"),
        ("UPDATE t SET x = 1", "there is no column x", ""),
        ("UPDATE t SET v = 1, v = 2", "v is set twice", "once"),
        ("DELETE FROM s", "s is no table", "rows are changed in t or u"),
        ("INSERT INTO t SELECT a, a, 'x' FROM s", "reads a stream", ""),
        ("INSERT INTO f VALUES (1)", "come from its source", "without SOURCE"),
        ("INSERT INTO t VALUES (1, 1, 'a') WHERE 1 = 1", "has no condition", "SELECT"),
        ("UPDATE t SET v = count(*)", "an aggregate cannot stand", ""),
    ],
)
def test_mistakes_are_told_with_their_place_and_what_to_do(
    tmp_path: Path, change: str, message: str, hint: str
) -> None:
    (tmp_path / "f.csv").write_text("1\n")
    with open_mill(home=tmp_path / "home", folder=tmp_path, pool=inline_pool(1)) as mill:
        mill.execute(f"{_DECLARED}; CREATE TABLE u (a bigint); CREATE STREAM s (a bigint)")
        mill.execute("CREATE TABLE f (a bigint) SOURCE 'f.csv'")
        with pytest.raises(EslError) as refused:
            mill.statements.change_rows(change)
        (diagnostic,) = refused.value.diagnostics
        assert message in diagnostic.message
        assert hint in (diagnostic.hint or "")


def test_rows_that_a_program_gives_are_checked(tmp_path: Path) -> None:
    with _opened(tmp_path) as mill:
        mill.execute(_DECLARED)
        mill.tables.set_rows("t", [(1, 1, "a")])
        for rows in ([(1, 1, "a"), (1, 2, "b")], [(1, None, "a")]):
            with pytest.raises(SlicemillError, match=r"already|NULL"):
                mill.tables.set_rows("t", rows)
        assert _rows_of(mill) == [(1, 1, "a")]
        mill.statements.change_rows("INSERT INTO t VALUES (2, 2, 'b')")
        mill.tables.refresh("t")
        assert _rows_of(mill) == [(1, 1, "a"), (2, 2, "b")]
