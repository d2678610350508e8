"""Plans travel node by node: a query that comes to many others costs what its own nodes do."""

from __future__ import annotations

from pathlib import Path

from slicemill.runtime import pipeline
from slicemill.runtime.pipeline import pack_plan, unpack_plan
from slicemill.testing import Clock, inline_pool
from support.engine import fed_mill, feed_rows, finish

STREAM = "CREATE STREAM s (k int, v int, ts timestamp) ORDER BY ts;"


def test_only_the_nodes_of_a_new_query_are_packed(tmp_path: Path) -> None:
    with fed_mill(tmp_path, Clock(), inline_pool()) as mill:
        mill.execute(STREAM)
        mill.execute(";".join(f"CREATE QUERY q{n} AS SELECT v FROM s WHERE k = {n}" for n in range(30)))
        mill.open()
        before = pipeline._pack_node.cache_info().misses
        mill.execute("CREATE QUERY other AS SELECT k FROM s WHERE v = 5")
        (task,) = mill.dispatcher.running.tasks
        own = mill.running.plan.graph.ancestors("other") - mill.running.plan.graph.ancestors("q0")
        assert pipeline._pack_node.cache_info().misses - before == len(own)
        assert unpack_plan(task.packed) == task.plan and pack_plan(task.plan) == task.packed
        feed_rows(mill, "s", [(3, 5, 0), (4, 6, 1)])
        finish(mill)
        assert [timed.row for timed in mill.queries["other"].timed_rows()] == [(3,)]
        assert [timed.row for timed in mill.queries["q4"].timed_rows()] == [(6,)]
