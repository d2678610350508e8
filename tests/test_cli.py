"""Commands check and explain, and run on the reference engine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

AUCTION = Path(__file__).parents[1] / "examples" / "auction.esl"

FIVE_MISTAKES = """\
CREATE STREAM Bid (item int, price rael, ts timestamp) ORDER BY ts;
CREATE STREAM Sale (item int, price real, ts timestamp) ORDER BY ts;
SELECT item, prise FROM Sale WHERE price > 1000;
SELECT item FROM Sale ORDER BY price;
SELECT S.item FROM Sale AS S, Sale AS T WHERE S.item = T.item;
SELECT item FORM Sale;
SELECT item FROM Bid;
"""


def slicemill(
    *arguments: str, text: str = "", folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from slicemill.cli import main; main()", *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, cwd=folder)


def test_check_lists_the_statements_of_a_valid_script() -> None:
    done = slicemill("check", str(AUCTION))
    assert done.returncode == 0
    assert "hot_items" in done.stdout
    assert not done.stderr


def test_check_shows_each_of_five_different_errors_with_position_and_hint() -> None:
    done = slicemill("check", "-", text=FIVE_MISTAKES)
    assert done.returncode == 1
    shown = re.findall(r"^<stdin>:(\d+):(\d+): error: (.*)$", done.stderr, re.MULTILINE)
    assert [(int(line), int(column)) for line, column, _ in shown] == [
        (1, 36),
        (3, 14),
        (4, 32),
        (5, 20),
        (6, 18),
    ]
    hints = re.findall(r"= hint: (.*)$", done.stderr, re.MULTILINE)
    assert len(hints) == 5
    assert hints[0] == "did you mean REAL?"
    assert hints[1] == "did you mean price?"
    assert "add LIMIT" in hints[2]
    assert "[RANGE 10 MINUTES]" in hints[3]
    assert "did you mean FROM?" in hints[4]
    assert "5 errors in <stdin>" in done.stderr
    assert "Traceback" not in done.stderr


def test_check_as_json_has_statements_and_errors() -> None:
    done = slicemill("check", "-", "--json", text=FIVE_MISTAKES)
    report = json.loads(done.stdout)
    assert done.returncode == 1
    assert [statement["name"] for statement in report["statements"]] == ["Sale"]
    assert len(report["mistakes"]) == 5


@pytest.mark.parametrize("form", ["text", "json", "svg", "mermaid", "dot"])
def test_explain_shows_every_query_in_each_format(form: str) -> None:
    done = slicemill("explain", str(AUCTION), "--format", form)
    assert done.returncode == 0, done.stderr
    for query in ("hot_items", "local_offers", "steady_bidders"):
        assert query in done.stdout
    if form == "json":
        assert json.loads(done.stdout)["nodes"]
    if form == "svg":
        assert ElementTree.fromstring(done.stdout).tag.endswith("svg")
    if form in ("mermaid", "dot"):
        assert done.stdout.startswith("flowchart LR\n" if form == "mermaid" else "digraph slicemill {\n")


def test_explain_can_show_a_single_query() -> None:
    for form in ("text", "mermaid", "dot"):
        done = slicemill("explain", str(AUCTION), "--query", "HOT_ITEMS", "--format", form)
        assert "hot_items" in done.stdout
        assert "local_offers" not in done.stdout


@pytest.mark.parametrize("form", ["mermaid", "dot"])
def test_explain_of_a_model_rejects_formats_of_query_graphs(form: str) -> None:
    models = AUCTION.with_name("models.esl")
    done = slicemill("explain", str(models), "--model", "spread", "--format", form)
    assert done.returncode != 0 and done.stdout == ""
    assert f"a model cannot be drawn as {form}; use text, json or svg" in done.stderr


def test_check_notes_calls_that_run_row_by_row() -> None:
    script = (
        "CREATE STREAM s (d decimal(12, 2), t varchar, ts timestamp) ORDER BY ts;\n"
        "CREATE QUERY q AS SELECT d / 3 AS third FROM s WHERE d > 100.00 AND regexp_like(t, 'a+b');\n"
    )
    done = slicemill("check", "-", text=script)
    assert done.returncode == 0
    (note,) = [line for line in done.stderr.splitlines() if line.startswith("note: ")]
    assert ":2: regexp_like(t, 'a+b') is evaluated row by row in Python" in note and "write LIKE" in note
    (told,) = json.loads(slicemill("check", "-", "--json", text=script).stdout)["notes"]
    assert told["line"] == 2 and told["message"] in note


def test_check_runs_no_code_named_in_a_script(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import pathlib\npathlib.Path('ran').touch()\n"
        "class Mean:\n    def initialize(self, x): ...\n    def iterate(self, x): ...\n"
    )
    script = "CREATE AGGREGATE f(x real) : real LANGUAGE PYTHON AS 'mine:Mean';"
    script += " CREATE FUNCTION g(x real) RETURNS real LANGUAGE PYTHON AS 'mine:Mean';"
    script += " CREATE STREAM s (x real, ts timestamp millis); SELECT f(x) FROM s;"
    done = slicemill("check", "-", text=script, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "not imported: mine:Mean" in done.stderr and not (tmp_path / "ran").exists()
    told = json.loads(slicemill("check", "-", "--json", text=script, folder=tmp_path).stdout)
    assert told["unverified"] == ["mine:Mean"] and not told["mistakes"]
    assert told["statements"][2]["what"].startswith("x, ts (millis); latent timestamps")
    done = slicemill("check", "-", "--import", text=script, folder=tmp_path)
    assert done.returncode == 0 and done.stderr == "" and (tmp_path / "ran").exists()
    done = slicemill("check", "-", "--import", text=script.replace("Mean", "Median"), folder=tmp_path)
    assert done.returncode == 1 and "cannot import mine:Median" in done.stderr


def test_a_missing_file_is_a_message_without_a_traceback() -> None:
    done = slicemill("check", "nowhere.esl")
    assert done.returncode == 1
    assert done.stderr.strip() == "cannot read nowhere.esl: No such file or directory"


def test_run_on_the_reference_engine_reads_files_and_prints_the_last_rows(tmp_path: Path) -> None:
    (tmp_path / "bids.csv").write_text(
        "item,price,ts\n1,10,1000000\n2,abc,2000000\n1,30,3000000\n2,5,2500000\n"
    )
    script = """
      CREATE STREAM Bid (item int, price real, ts timestamp micros) ORDER BY ts
        USING csv OPTIONS (path 'bids.csv', header true);
      CREATE QUERY mean AS SELECT item, avg(price) OVER (PARTITION BY item ROWS 9 PRECEDING) AS mean FROM Bid;
      CREATE QUERY bad AS SELECT reason FROM Bid_errors;
      CREATE QUERY late AS SELECT item, price FROM Bid_late;
    """
    done = slicemill("run", "-", "--engine", "reference", "--json", text=script, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(r["item"], r["mean"]) for r in rows if r["query"] == "mean"] == [(1, 10.0), (1, 20.0)]
    assert rows[0]["_ts"] == "1970-01-01T00:00:01Z"
    assert [r["reason"] for r in rows if r["query"] == "bad"] == ["column price: 'abc' is no DOUBLE"]
    assert [r["price"] for r in rows if r["query"] == "late"] == [5.0]
    table = slicemill("run", "-", "--engine", "reference", text=script, folder=tmp_path).stdout
    assert "mean: 2 rows" in table
    assert "Bid: read 4 rows, of which 1 came late, 1 could not be read" in table
