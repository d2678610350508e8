"""Values that cost: a function sees what a classifier looks at, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from slicemill.binder import bind
from slicemill.extensions.classify import step as observing
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize
from slicemill.testing import Clock, inline_pool, open_mill
from slicemill.types import Timed
from slicemill_oracle.engine import Engine
from slicemill_oracle.sources import Arrival
from slicemill_oracle.translate import translate
from support.engine import fed_mill, feed_rows, finish

SECOND = 1_000_000
# A recording is a text that has to be worked through; the log tells who has been.
MODULE = """
import pyarrow as pa
LOOKED = []

def loudness(feature, keys, recordings):
    LOOKED.extend((feature, key, text) for key, text in zip(keys.to_pylist(), recordings.to_pylist()))
    return pa.array([sum(map(int, text.split("-"))) / 3 if text != "broken" else None
                     for text in recordings.to_pylist()])

def fails(feature, keys, recordings):
    raise OSError("no microphone")
"""
ESL = """
CREATE STREAM sound (at timestamp, pump int, low varchar, high varchar) ORDER BY at;
CREATE TABLE history (pump int, low double, high double, failing boolean);
CREATE CLASSIFIER state ON sound(low, high) PARTITION BY pump LEARN failing FROM history EVERY 10 SECONDS
  WITH (capacity = 3, observe = 'observed_pumps:loudness');
CREATE QUERY q AS SELECT pump, time, class, risk, observed FROM state;
"""


def recording(random: Random, level: float) -> str:
    return "-".join(str(max(0, round(random.gauss(level, 2)))) for _ in range(3))


def history() -> list[tuple[Any, ...]]:
    random, rows = Random(1), []
    for task in range(60):
        for pump in range(4):
            failing = (task // 10 + pump) % 3 == 0
            rows.append((pump, random.gauss(30 if failing else 10, 3), random.gauss(20, 2), failing))
    return rows


def sounds() -> list[tuple[Any, ...]]:
    random, rows = Random(2), []
    for task in range(30):
        for pump in range(4):
            level = 30 if (task // 10 + pump) % 3 == 0 else 10
            low = "broken" if random.random() < 0.05 else recording(random, level)
            rows.append(((task * 10 + pump) * SECOND, pump, low, recording(random, 20)))
    return rows


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "observed_pumps.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    observing._import_function.cache_clear()
    yield
    sys.modules.pop("observed_pumps", None)


def on_engine(home: Path, esl: str, cuts: list[int]) -> tuple[list[Timed], str]:
    """The rows of the query, and why a task has failed."""
    rows = sounds()
    with fed_mill(home, Clock(), inline_pool()) as mill:
        mill.tables.set_rows("history", history())
        mill.execute(esl)
        mill.open()
        for begin, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
            feed_rows(mill, "sound", rows[begin:end])
            mill.dispatcher.run_all()
        finish(mill)
        failures = [why for task in mill.dispatcher.tasks.values() for why in task.failed.values()]
        return list(mill.queries["q"].timed_rows()), " ".join(failures)


def test_what_is_not_looked_at_is_not_worked_through(tmp_path: Path) -> None:
    found, error = on_engine(tmp_path / "home", ESL, [7, 8, 50])
    assert not error
    looked = sys.modules["observed_pumps"].LOOKED
    brought = {(name, row[1], row[index]) for row in sounds() for name, index in (("low", 2), ("high", 3))}
    assert set(looked) <= brought
    assert len(looked) == 3 * 30, "the capacity of each of thirty time units, of eight values that came"
    assert len(found) == 120
    failing = [((row.ts // SECOND // 10 - 1) // 10 + row.row[0]) % 3 == 0 for row in found]
    assert sum(row.row[2] is truth for row, truth in zip(found, failing, strict=True)) > 100

    bound = bind(ESL).catalog
    engine = Engine(translate(optimize(build_graph(bound)), bound, {"history": history()}))
    for row in sounds():
        engine.feed("sound", [Arrival(row[0], row, row[0])])
        engine.run_until_idle()
    engine.run()
    assert sorted(found) == sorted(Timed(*row[:2]) for row in engine.results("q"))


def test_what_fails_to_look_stops_the_classifier_with_its_words(tmp_path: Path) -> None:
    _, error = on_engine(tmp_path / "home", ESL.replace(":loudness", ":fails"), [])
    assert "observed_pumps:fails failed to observe" in error and "no microphone" in error


def test_the_example_of_pumps_looks_at_a_quarter_and_errs_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(__file__).parents[3] / "examples" / "pumps"
    monkeypatch.syspath_prepend(str(folder))
    with open_mill(home=tmp_path / "home", folder=folder.parents[1], pool=inline_pool(1)) as mill:
        mill.execute((folder / "pumps.esl").read_text())
        mill.drain()
        rows = [timed.row for timed in mill.queries["decisions"].timed_rows()]
    recordings = sys.modules.pop("recordings")
    assert len(rows) == 8 * 60 and sum(int(str(row[4])) for row in rows) == 6 * 60
    wrong = 0
    for pump, at, failing, _, _ in rows:
        task = round((int(str(at)) / SECOND - recordings.BEGIN.timestamp()) / 10) - 1
        wrong += failing is not (recordings.wear_of(int(str(pump)), task) > recordings.FAILING)
    assert wrong < 0.06 * len(rows)
