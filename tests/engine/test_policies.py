"""The same rows come out under every policy, also while it changes; priorities follow what was measured."""

from __future__ import annotations

import json
import random
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slicemill.api.mill import Mill
from slicemill.api.status import RowRates, queries_table
from slicemill.binder import bind
from slicemill.errors import SlicemillError
from slicemill.scheduling.policies import POLICIES
from slicemill.scheduling.portions import Aim
from slicemill.sql.errors import EslError
from slicemill.testing import inline_pool, open_mill
from slicemill.time import wall_clock_us
from slicemill_oracle.runner import run_script
from support.engine import fed_mill, feed_rows, finish

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
    mill = fed_mill(folder / "home", wall_clock_us, inline_pool(), subtasks=2)
    mill.dispatcher.chooser.set_policy(policy)
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
        assert {n: sorted(query.timed_rows(), key=repr) for n, query in mill.queries.items()} == expected


def test_a_component_changes_between_memory_and_latency_while_it_runs(tmp_path: Path) -> None:
    """M4, M19: no row is lost or put out of order; the other component does not notice."""
    script = """
        CREATE STREAM other (x int, ts timestamp) ORDER BY ts;
        CREATE QUERY apart AS SELECT x, sum(x) OVER (ROWS 3 PRECEDING) AS s FROM other;
    """
    plain = run_with(tmp_path / "plain", script, [])
    switches = [("cheap", goal) for goal in ("chain", "hr", "ml", "bsd", "default", "rb", "chain")]
    assert run_with(tmp_path / "step by step", script, switches) == plain
    assert run_with(tmp_path / "live", script, switches, live=True) == plain
    assert len(plain["apart"]) == len(ROWS)


def run_with(
    folder: Path, script: str, switches: list[tuple[str, str]], *, live: bool = False
) -> dict[str, list[Any]]:
    """The rows of all queries, in order, where policies of components change in the middle of the run."""
    with mill_in(folder) as mill:
        mill.execute(script)
        if live:
            mill.dispatcher.start()
        for number in range(len(ROWS) // BATCH):
            feed(mill, number)
            batch = ROWS[number * BATCH : (number + 1) * BATCH]
            feed_rows(mill, "other", [(x, ts) for x, _, ts in batch])
            if number < len(switches):
                component, goal = switches[number]
                mill.execute(f"SET policy = '{goal}' FOR \"{component}\"")
                if not live:
                    mill.dispatcher.run_some()
        mill.dispatcher.stop()
        finish(mill)
        return {name: query.timed_rows() for name, query in mill.queries.items()}


def test_metrics_tell_by_which_policy_a_query_s_component_runs(tmp_path: Path) -> None:
    def shown() -> dict[str, str]:
        found = mill.metrics()
        return {"": found["policy"]} | {query["query"]: query["policy"] for query in found["queries"]}

    with mill_in(tmp_path) as mill:
        mill.execute(
            "CREATE STREAM other (x int, ts timestamp) ORDER BY ts; CREATE QUERY apart AS SELECT x FROM other"
        )
        names = [name for name in mill.queries if name != "apart"]
        mill.dispatcher.chooser.set_policy("hnr")
        assert shown() == dict.fromkeys(["", "apart", *names], "hnr")
        mill.execute("SET policy = 'chain' FOR dear")
        assert shown() == {"": "hnr", "apart": "hnr", **dict.fromkeys(names, "chain")}
        assert mill.queries["apart"].measured().policy == "hnr"
        mill.execute("SET policy = 'lsf' FOR bid; SET policy = 'fas'")
        assert shown() == {"": "fas", "apart": "fas", **dict.fromkeys(names, "lsf")}
        mill.execute("SET policy = 'default' FOR bid; SET policy = 'default' FOR dear")
        assert set(shown().values()) == {"fas"}


def test_a_policy_of_a_component_decides_within_it_and_not_when_it_is_its_turn(tmp_path: Path) -> None:
    with mill_in(tmp_path) as mill:
        mill.execute(
            "CREATE STREAM other (x int, ts timestamp) ORDER BY ts; CREATE QUERY apart AS SELECT x FROM other"
        )
        running, chooser = mill.dispatcher.running, mill.dispatcher.chooser
        bid = {running.position[running.writers[log].id] for log in ("dear", "mean", "hurried", "never")}
        apart = running.position[running.writers["apart"].id]
        everyone = np.arange(len(running.tasks))
        mill.execute("SET policy = 'chain' FOR dear")
        ((policy, members),) = running.within_components(chooser.components, everyone)
        assert (policy.name, set(members.tolist())) == ("chain", bid)
        mill.execute("SET policy = 'hr' FOR apart; SET policy = 'rb' FOR Bid")
        found = {p.name: set(m.tolist()) for p, m in running.within_components(chooser.components, everyone)}
        assert found == {"rb": bid, "hr": {apart}}, "the last one that was set counts"
        mill.execute("SET policy = 'default' FOR bid; SET policy = 'default' FOR dear; SET policy = 'lsf'")
        assert list(chooser.components) == ["apart"]
        assert mill.dispatcher.chooser.policy.name == "lsf"
        with pytest.raises(EslError, match="no stream or continuous query deer"):
            mill.execute("SET policy = 'hr' FOR deer")


def test_a_mill_tells_how_its_queries_are_doing(tmp_path: Path) -> None:
    with mill_in(tmp_path, policy="hnr") as mill:
        assert mill.queries["dear"].measured().met is None
        feed(mill, 0)
        mill.dispatcher.run_all()  # the warm-up
        for number in range(1, len(ROWS) // BATCH):
            feed(mill, number)
        finish(mill)
        dear, hurried, never = (mill.queries[name].measured() for name in ("dear", "hurried", "never"))
        assert dear.rows == len(mill.queries["dear"].timed_rows())
        assert dear.rows == dear.figures.response.count + dear.warm_up.count
        assert dear.figures.response.count and dear.warm_up.count
        assert dear.figures.response.mean <= dear.figures.response.largest
        assert dear.response_ms(1.0) == pytest.approx(1000 * dear.figures.response.largest, rel=0.02)
        assert dear.figures.slowdown.mean == pytest.approx(dear.figures.response.mean / dear.ideal_s)
        assert 0 < dear.staleness < 1
        assert (dear.met, hurried.met, never.met) == (True, False, None)
        assert dear.figures.tardiness.largest == 0 < hurried.figures.tardiness.mean
        assert (dear.memory.rows, dear.memory.most_rows) == (0, len(ROWS) - BATCH)
        assert mill.queries["mean"].measured().memory.state_bytes > 0
        # Through a derived stream, one row takes as long as through both tasks.
        writers = mill.dispatcher.running.writers
        alone = [writers[name].statistics.cost.ideal_time for name in ("hurried", "cheap")]
        assert hurried.ideal_s == pytest.approx(sum(alone))
        plain = json.loads(json.dumps(mill.metrics(), allow_nan=False))
        assert plain["policy"] == "hnr"
        warm = sum(query.measured().warm_up.count for query in mill.queries.values())
        assert plain["slowdown"]["count"] + warm == sum(
            len(query.timed_rows()) for query in mill.queries.values()
        )
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
        learned = {name: task.statistics.plain() for name, task in mill.dispatcher.tasks.items()}
    with mill_in(tmp_path) as mill:
        # All of it: what a run teaches is committed with the run.
        assert {name: task.statistics.plain() for name, task in mill.dispatcher.tasks.items()} == learned
        running, tasks = mill.dispatcher.running, mill.dispatcher.tasks
        select = tasks["select from bid"]
        assert 0 < select.statistics.selectivity("dear") < 1
        figures, position = running.figures, running.position
        here = position[select.id]
        assert (figures.weight[here], figures.within[here]) == (pytest.approx(3), 3600)
        # What feeds `hurried` and `never` counts with them: their results, deadline and cost.
        feeding, behind = running.writers["cheap"], running.writers["hurried"]
        fed = position[feeding.id]
        assert (figures.queries[fed], figures.within[fed]) == (3, 1e-6), "`mean` is of the same unit"
        runs = feeding.statistics.cost
        assert figures.portions[Aim.ALL, 1, fed] >= runs.overhead + behind.statistics.cost.overhead
        # Each query has an ideal time of its own: that of `mean` ends with the task that serves it.
        assert figures.ideal_time[fed] == running.ideal_time("mean").whole_s == runs.ideal_time
        assert running.ideal_time("hurried").whole_s > runs.ideal_time
        for aim, power in ((Aim.SLOWDOWN, 1), (Aim.BALANCE, 2)):
            least = feeding.statistics.selectivity("mean") / runs.ideal_time**power
            assert figures.portions[aim, 0, fed] >= least * (1 - 1e-9)


def test_an_unknown_policy_is_a_mistake_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(SlicemillError, match="did you mean"):
        open_mill(home=tmp_path, pool=inline_pool(), policy="hrn")
    with open_mill(home=tmp_path, pool=inline_pool()) as mill:
        with pytest.raises(EslError, match="did you mean hr or hnr"):
            mill.execute("SET policy = 'hrn'")
        assert mill.dispatcher.chooser.policy.name == "fcfs"
