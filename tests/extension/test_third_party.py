"""Extension in a separate distribution: `acme_sampling`, beside this file, installed in a folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SCRIPT = """
CREATE STREAM trade(ts TIMESTAMP, price DOUBLE) ORDER BY ts SOURCE '{source}';
CREATE SAMPLER thinned ON trade EVERY 2;
CREATE QUERY wide AS SELECT ts, price, spread(price) OVER (ROWS 1 PRECEDING) AS s FROM thinned;
CREATE QUERY per_slot AS SELECT spread(price) AS s FROM trade [RANGE 4 SECONDS SLIDE 4 SECONDS];
"""
PRICES = [1.0, 5.0, 2.0, 9.0, 4.0, 3.0, 8.0, 7.0]
WIDE = [(5.0, 0.0), (9.0, 4.0), (3.0, 6.0), (7.0, 4.0)]
PER_SLOT = [(8.0,), (5.0,)]

ON_WORKERS = """
import sys
from pathlib import Path
from slicemill.testing import Clock, inline_pool
from support.engine import fed_mill, feed_rows, finish

clock = Clock()
mill = fed_mill(Path(sys.argv[1]), clock, inline_pool(), 2)
mill.execute(Path(sys.argv[2]).read_text())
mill.open()
feed_rows(mill, "trade", [(n * 1_000_000, price) for n, price in enumerate({prices})])
finish(mill)
for query in mill.queries.values():
    assert query.error is None, query.error
    print(query.name, [timed.row[-2:] for timed in query.timed_rows()])
assert "thinned" in mill.home.logs
mill.execute("DROP SAMPLER thinned CASCADE")
assert "thinned" not in mill.home.logs
mill.close()
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Create a folder with the installed distribution."""
    folder = tmp_path / "site"
    shutil.copytree(HERE / "acme_sampling", folder / "acme_sampling")
    info = folder / "acme_sampling-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-sampling\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[slicemill.extensions]\nsampling = acme_sampling:EXTENSION\n")
    return folder


@pytest.fixture
def script(tmp_path: Path) -> Path:
    source = tmp_path / "trade.csv"
    lines = [f"2026-01-01 00:00:0{n},{price}" for n, price in enumerate(PRICES)]
    source.write_text("\n".join(lines) + "\n")
    path = tmp_path / "trade.esl"
    path.write_text(SCRIPT.format(source=source))
    return path


def python(site: Path | None, code: str, *arguments: object) -> str:
    paths = [*([] if site is None else [str(site)]), *filter(None, sys.path)]
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        check=False,
    )
    return done.stdout if done.returncode == 0 else done.stdout + done.stderr


def slicemill(site: Path | None, *arguments: object) -> str:
    return python(site, "from slicemill.cli import main; main()", *arguments)


def test_check_accepts_the_statement_and_the_aggregate_of_the_extension(site: Path, script: Path) -> None:
    found = json.loads(slicemill(site, "check", "--json", script))
    assert [(one["kind"], one["name"]) for one in found["statements"]] == [
        ("stream", "trade"),
        ("sampler", "thinned"),
        ("query", "wide"),
        ("query", "per_slot"),
    ]
    assert found["statements"][1]["what"] == "each 2th row of trade"


def test_without_the_distribution_the_statement_is_an_error(script: Path) -> None:
    assert "did not expect SAMPLER" in slicemill(None, "check", script)


def test_explain_shows_the_operator_and_the_section_of_the_extension(site: Path, script: Path) -> None:
    text = slicemill(site, "explain", script)
    assert "Sample" in text
    assert "samplers\n  thinned: each 2th row of trade\n" in text
    data = json.loads(slicemill(site, "explain", script, "--format", "json"))
    assert data["sections"] == {"samplers": ["thinned: each 2th row of trade"]}


def test_the_reference_engine_runs_the_extension(site: Path, script: Path) -> None:
    lines = map(json.loads, slicemill(site, "run", script, "--engine", "reference", "--json").splitlines())
    rows = [(row["query"], row.get("price"), row["s"]) for row in lines]
    assert rows == [("wide", *row) for row in WIDE] + [("per_slot", None, *row) for row in PER_SLOT]


def test_workers_run_the_extension(site: Path, script: Path, tmp_path: Path) -> None:
    code = ON_WORKERS.replace("{prices}", repr(PRICES))
    assert python(site, code, tmp_path / "home", script) == f"wide {WIDE}\nper_slot {PER_SLOT}\n"


def test_an_extension_is_not_imported_until_it_is_used(site: Path, tmp_path: Path) -> None:
    (tmp_path / "plain.esl").write_text("CREATE STREAM a(ts TIMESTAMP, x INT) ORDER BY ts; SELECT x FROM a;")
    code = (
        "import sys\nfrom slicemill.binder import bind\nfrom slicemill.extension import extensions\n"
        "bind(open(sys.argv[1]).read())\nassert 'sampling' in extensions()\n"
        "print([name for name in sys.modules if name.startswith('acme_sampling.')])"
    )
    assert python(site, code, tmp_path / "plain.esl") == "[]\n"
