"""The same rows come out under every policy, also while it changes; priorities follow what was measured."""

from __future__ import annotations

import json
import random
from itertools import cycle
from pathlib import Path

import pytest

from slicemill.engine.live import RowRates, queries_table
from slicemill.engine.mill import Mill
from slicemill.errors import SlicemillError
from slicemill.esl import EslError, bind
from slicemill.reference.runner import run_script
from slicemill.scheduling.policies.policy_registry import POLICIES
from slicemill.time import wall_clock_us
from support.engine import fed_mill, feed_rows, finish, inline_pool

BID = "CREATE STREAM bid (item int, price double, ts timestamp micros) ORDER BY ts"
QUERIES = """
CREATE QUERY dear WITH (weight = 3, slo = 'p99 < 1 h') AS SELECT item, price FROM bid WHERE price > 50;
CREATE QUERY mean AS SELECT item, avg(price) OVER (PARTITION BY item ROWS 2 PRECEDING) AS mean FROM bid;
CREATE STREAM cheap AS SELECT item, sum(price) OVER (PARTITION BY item ROWS 5 PRECEDING) AS s FROM bid;
CREATE QUERY hurried WITH (slo = 'max < 1 us') AS
  SELECT item, max(s) OVER (PARTITION BY item ROWS 3 PRECEDING) AS top FROM cheap;
CREATE QUERY never AS SELECT item FROM cheap WHERE s < 0;
"""
ROWS = [(n * 7 % 4, float(n * 37 % 101), 1_000_000 * n) for n in range(60)]
BATCH = 5


def mill_in(folder: Path, policy: str = "fcfs") -> Mill:
    mill = fed_mill(folder / "home", wall_clock_us, inline_pool(), cells=2)
    mill.policy = policy
    mill.execute(f"{BID}; {QUERIES}")
    mill.open()
    return mill


def feed(mill: Mill, number: int) -> None:
    """Let a few rows arrive."""
    feed_rows(mill, "bid", ROWS[number * BATCH : (number + 1) * BATCH])


def test_rows_are_those_of_the_reference_under_every_policy_and_while_it_changes(
    tmp_path: Path,
) -> None:
    (tmp_path / "bids.json").write_text(
        "\n".join(json.dumps(dict(zip(("item", "price", "ts"), row, strict=True))) for row in ROWS)
    )
    reference = run_script(bind(f"{BID} USING json OPTIONS (path 'bids.json'); {QUERIES}").catalog, tmp_path)
    expected = {query.name: sorted(query.rows, key=repr) for query in reference.queries}
    policies, draw = cycle([*POLICIES, "fas(0.5)"]), random.Random(1)
    with mill_in(tmp_path) as mill:
        for number in range(len(ROWS) // BATCH):
            feed(mill, number)
            for _ in range(draw.randrange(4)):
                mill.execute(f"SET policy = '{next(policies)}'")
                mill.dispatcher.run_some()
        finish(mill)
        assert mill.dispatcher.decisions.count > len(POLICIES)
        assert {n: sorted(query.rows(), key=repr) for n, query in mill.queries.items()} == expected


def test_a_mill_tells_how_its_queries_are_doing(tmp_path: Path) -> None:
    with mill_in(tmp_path, policy="hnr") as mill:
        assert mill.queries["dear"].metrics().met is None
        feed(mill, 0)
        mill.dispatcher.run_all()  # the warm-up
        for number in range(1, len(ROWS) // BATCH):
            feed(mill, number)
        finish(mill)
        dear, hurried, never = (mill.queries[name].metrics() for name in ("dear", "hurried", "never"))
        assert dear.rows == len(mill.queries["dear"].rows())
        assert dear.rows == dear.figures.response.count + dear.warm_up.count
        assert dear.figures.response.count and dear.warm_up.count
        assert dear.figures.response.mean <= dear.figures.response.largest
        assert dear.response_ms(1.0) == pytest.approx(1000 * dear.figures.response.largest, rel=0.02)
        assert dear.figures.slowdown.mean == pytest.approx(dear.figures.response.mean / dear.ideal_s)
        assert 0 < dear.staleness < 1
        assert (dear.met, hurried.met, never.met) == (True, False, None)
        assert dear.figures.tardiness.largest == 0 < hurried.figures.tardiness.mean
        assert (dear.memory.rows, dear.memory.most_rows) == (0, len(ROWS) - BATCH)
        assert mill.queries["mean"].metrics().memory.state_bytes > 0
        # Through a derived stream, one row takes as long as through both units.
        writers = mill.dispatcher.running.writers
        alone = [writers[name].statistics.cost.ideal_time for name in ("hurried", "cheap")]
        assert hurried.ideal_s == pytest.approx(sum(alone))
        plain = json.loads(json.dumps(mill.metrics().plain(), allow_nan=False))
        assert plain["policy"] == "hnr"
        warm = sum(query.metrics().warm_up.count for query in mill.queries.values())
        assert plain["slowdown"]["count"] + warm == sum(len(query.rows()) for query in mill.queries.values())
        assert plain["queries"][0]["slo"]["met"] is True
        in_buckets = sum(bucket["response_s"]["count"] for bucket in plain["buckets"])
        assert in_buckets == plain["response_s"]["count"]
        levels = [str(level) for level in queries_table(mill, RowRates(), 0.0).columns[8].cells]
        assert levels == ["met", "", "missed", ""]


def test_what_was_measured_is_known_after_a_restart_and_goes_into_priorities(
    tmp_path: Path,
) -> None:
    with mill_in(tmp_path) as mill:
        for number in range(4):
            feed(mill, number)
            mill.dispatcher.run_all()
        learned = {name: unit.statistics.plain() for name, unit in mill.dispatcher.units.items()}
    with mill_in(tmp_path) as mill:
        # All of it: what a run teaches is committed with the run.
        assert {name: unit.statistics.plain() for name, unit in mill.dispatcher.units.items()} == learned
        running, units = mill.dispatcher.running, mill.dispatcher.units
        select = units["select from bid"]
        assert 0 < select.statistics.selectivity("dear") < 1
        path = running.path(select)
        assert path.value == pytest.approx(3 * path.results)
        assert path.within_s == 3600
        # What feeds `hurried` and `never` counts with them: their results, deadline and cost.
        feeding, behind = running.writers["cheap"], running.writers["hurried"].statistics.cost
        whole = running.path(feeding)
        assert (whole.queries, whole.within_s) == (3, 1e-6), "`mean` is of the same unit"
        assert whole.overhead_s > feeding.statistics.cost.overhead + behind.overhead


def test_an_unknown_policy_is_a_mistake_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(SlicemillError, match="did you mean"):
        Mill(home=tmp_path, pool=inline_pool(), policy="hrn")
    with Mill(home=tmp_path, pool=inline_pool()) as mill:
        with pytest.raises(EslError, match="did you mean hr or hnr"):
            mill.execute("SET policy = 'hrn'")
        assert mill.policy == "fcfs"
