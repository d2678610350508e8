"""HTTP routes of the console, requested by a real client over a socket."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from connectors.sender import eventually
from server.conftest import bid
from slicemill.api.mill import Mill
from slicemill.operators.join.statistics import Cuts
from slicemill.server.auth import Access
from slicemill.server.network import ServerSockets, serving
from slicemill.server.pages import stored_slices
from slicemill.server.pages.stored_slices import SliceWatch
from slicemill.server.service import MillService
from slicemill.server.user_session import UserSession
from slicemill.storage.home import Home
from support.engine import feed_rows

_WEB = Path(__file__).resolve().parents[2] / "web"
TASK = "joins of bid and sale on item = item"
JOINS = """
CREATE STREAM sale (item int, sum int, ts timestamp micros) ORDER BY ts;
CREATE QUERY near AS SELECT B.item, S.sum FROM bid AS B, sale AS S WHERE B.item = S.item WINDOW 10 SECONDS;
CREATE QUERY far AS SELECT B.item, S.sum FROM bid AS B, sale AS S WHERE B.item = S.item WINDOW 60 SECONDS;
"""


def get(client: httpx.Client, path: str, **parameters: Any) -> Any:
    response = client.get(path, params=parameters)
    assert response.status_code == 200, response.text
    return response.json()


def declare(service: MillService, text: str) -> None:
    UserSession(service).execute(text)


def test_the_overview_is_paged_sorted_and_searched(
    client: httpx.Client, service: MillService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing_for_overview.py").write_text("def fail(x):\n    raise ValueError('it is down')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    texts = (f"CREATE QUERY q{n} AS SELECT item FROM bid WHERE price > {n}" for n in range(7))
    declare(service, "; ".join(texts))
    declare(
        service,
        "CREATE FUNCTION fail(x int) RETURNS int LANGUAGE PYTHON AS 'failing_for_overview:fail';"
        "CREATE QUERY q7 AS SELECT fail(price) AS x FROM bid; CREATE QUERY q8 AS SELECT item FROM bid",
    )
    bid(service, (1, 20, 1))
    page = get(client, "/v1/overview", limit=4)
    assert (page["total"], page["needing_attention"], page["queries"][0]["name"]) == (10, 1, "q7")
    assert page["queries"][0]["state"] == "restarting"
    assert "it is down" in page["queries"][0]["cause"]["text"]
    assert (len(page["queries"]), page["matching"]) == (4, 10)
    named = get(client, "/v1/overview", sort="name", limit=3, offset=2)
    assert [line["name"] for line in named["queries"]] == ["q1", "q2", "q3"]
    found = get(client, "/v1/overview", search="Q3")
    assert ([line["name"] for line in found["queries"]], found["matching"]) == (["q3"], 1)
    assert client.get("/v1/overview", params={"sort": "luck"}).status_code == 422


def test_a_query_has_a_metrics_history_and_a_list_of_its_versions(
    client: httpx.Client, service: MillService
) -> None:
    declare(service, "DROP QUERY dear; CREATE QUERY dear AS SELECT item FROM bid WHERE price > 11")
    declare(service, "CREATE OR REPLACE QUERY dear AS SELECT item FROM bid WHERE price > 12")
    declare(service, "ALTER QUERY dear SET (weight = 2)")
    found = get(client, "/v1/queries/dear/versions")
    assert [(one["version"], "> 11" in one["text"], "> 12" in one["text"]) for one in found] == [
        (1, True, False),
        (2, False, True),
    ]
    assert "weight" in found[1]["text"].lower()
    assert "rate" in get(client, "/v1/history/dear")["columns"]
    assert get(client, "/v1/history")["policies"][0]["policy"] == "fcfs"
    assert client.get("/v1/history/nobody").status_code == 404


def test_the_graph_can_be_read_whole_for_one_query_or_folded(
    client: httpx.Client, service: MillService
) -> None:
    declare(service, JOINS)
    whole = get(client, "/v1/graph", fold="nothing")
    assert {"bid", "sale", "near", "far", "dear"} <= {node["id"] for node in whole["nodes"]}
    join = next(node for node in whole["nodes"] if node["operator"] == "shared_join")
    assert join["queries"] == 2
    own = get(client, "/v1/graph", query="dear")
    assert {arc["source"] for arc in own["arcs"]} | {"dear"} == {node["id"] for node in own["nodes"]}
    assert "sale" not in {node["id"] for node in own["nodes"]}
    tails = get(client, "/v1/graph", fold="tails")
    assert sorted(node["id"] for node in tails["nodes"] if node["role"] == "sink") == ["dear", "far", "near"]
    groups = get(client, "/v1/graph", fold="groups")
    folded = {tuple(node["folded"]) for node in groups["nodes"] if node["operator"] == "folded"}
    assert folded == {("dear",), ("near", "far")}
    (component,) = get(client, "/v1/graph/components")
    assert (component["queries"], component["streams"]) == (3, ["bid", "sale"])
    assert client.get("/v1/graph", params={"query": "nobody"}).status_code == 404


def test_a_folded_query_has_no_operators_after_its_node(client: httpx.Client, service: MillService) -> None:
    declare(
        service,
        "CREATE QUERY top3 AS SELECT item, sum(price) AS total FROM bid [RANGE 4 SECONDS SLIDE 2 SECONDS] "
        "GROUP BY item ORDER BY total DESC LIMIT 3",
    )
    graph = get(client, "/v1/graph", fold="tails")
    assert not any(arc["source"] == "top3" for arc in graph["arcs"])
    assert sum(arc["target"] == "top3" for arc in graph["arcs"]) == 1


def test_graph_and_overview_of_a_thousand_queries_are_read_in_parts(
    client: httpx.Client, service: MillService
) -> None:
    texts = (f"CREATE QUERY many{n} AS SELECT item FROM bid WHERE price > {n}" for n in range(1000))
    declare(service, "; ".join(texts))
    graph = get(client, "/v1/graph")
    assert len(graph["nodes"]) <= 150
    assert max(node["queries"] for node in graph["nodes"]) == 1001
    assert len(get(client, "/v1/graph", query="many500")["nodes"]) < 6
    page = get(client, "/v1/overview", limit=50)
    assert (page["total"], len(page["queries"])) == (1001, 50)


def test_join_state_slices_report_the_rows_that_each_query_needs(
    client: httpx.Client, service: MillService
) -> None:
    declare(service, JOINS)
    for second in (1, 30, 50):
        at = second * 1_000_000
        feed_rows(service.mill, "sale", [(1, 5, at)])
        bid(service, (1, 20, at + 1))
    service.mill.dispatcher.checkpoint_all()
    (chain,) = get(client, "/v1/slices/far")
    assert sorted(chain["queries"]) == ["far", "near"]
    assert chain["reaches"] == {"far": 60, "near": 10}
    assert {one["part"].split(",")[0] for one in chain["slices"]} == {"bid", "sale"}
    assert sum(found["wanted"].get("far", 0) for found in chain["slices"]) >= 5
    assert get(client, "/v1/slices")[0]["task"] == chain["task"]
    assert get(client, "/v1/slices/dear") == []


def test_slice_border_changes_are_recorded_without_console_requests(
    service: MillService, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[tuple[str, object]] = []

    def cut_at(home: Home, task: str) -> list[tuple[int, Cuts]]:
        """Return different slice borders for each checkpoint."""
        mark = home.tasks[task].get("checkpoint")
        looked.append((task, mark))
        return [(0, Cuts("input 0", 1.0, 1.0, 1.0, (), (), (float(len(looked)),), 1.0))] if mark else []

    monkeypatch.setattr(stored_slices, "cuts_of_task", cut_at)
    monkeypatch.setattr(stored_slices, "_READ_EVERY_S", 0.01)
    monkeypatch.setattr(stored_slices, "_READING_SHARE", 1)
    UserSession(service).execute(JOINS)
    watch, marks = SliceWatch(service.mill), list[object]()
    watch.start()
    try:
        for second in (1, 2, 3):
            feed_rows(service.mill, "sale", [(1, 5, second * 1_000_000)])
            bid(service, (1, 20, second * 1_000_000 + 1))
            service.mill.dispatcher.checkpoint_all()
            marks.append(service.mill.home.tasks[TASK]["checkpoint"])
            eventually(lambda: looked[-1:] == [(TASK, marks[-1])])
    finally:
        watch.stop()
    reads = len(looked)
    (chain,) = watch.chains([TASK])
    assert len({str(mark) for mark in marks}) == 3
    assert len(chain.moves) == sum(mark is not None for _, mark in looked) >= 3
    assert len(looked) == reads  # The console request reads no further checkpoint.
    assert {task for task, _ in looked} == {TASK}  # Tasks without joins are not read.


def test_the_policies_route_reports_the_priorities_of_tasks(
    client: httpx.Client, service: MillService
) -> None:
    feed_rows(service.mill, "bid", [(1, 20, 1)])
    found = get(client, "/v1/policies")
    assert found["policy"] == "fcfs"
    assert {"hnr", "edf"} <= {policy["name"] for policy in found["policies"]}
    assert all(policy["rule"] for policy in found["policies"])
    (task,) = found["tasks"]
    assert (task["queries"], task["why"]) == (["dear"], "no pending rows")


def test_a_simulation_of_load_uses_measured_costs(client: httpx.Client, service: MillService) -> None:
    wish = {"rates": {"bid": 500}, "policies": ["fcfs", "hnr"], "seconds": 5}
    refused = client.post("/v1/simulate", json=wish)
    assert (refused.status_code, "no task has run yet" in refused.text) == (400, True)
    for ts in range(1, 4):
        bid(service, (1, 20, ts))
    answer = client.post("/v1/simulate", json=wish).json()
    assert [outcome["policy"] for outcome in answer["outcomes"]] == ["fcfs", "hnr"]
    assert "of the CPU time of 2 cores" in answer["verdict"][0]
    unknown = client.post("/v1/simulate", json={**wish, "rates": {"bit": 1}})
    assert "queries read bid" in unknown.text


def test_a_simulation_of_a_new_query_measures_it_in_a_trial_over_recent_rows(
    client: httpx.Client, service: MillService
) -> None:
    for ts in range(1, 4):
        bid(service, *((item, 20, ts * 1000 + item) for item in range(50)))
    wish = {"rates": {"bid": 500}, "policies": ["fcfs"], "seconds": 5}
    text = "CREATE QUERY heavy AS SELECT item, max(price) OVER (ROWS 9 PRECEDING) AS m FROM bid"
    before = client.post("/v1/simulate", json=wish).json()
    after = client.post("/v1/simulate", json={**wish, "text": text})
    assert after.status_code == 200, after.text
    assert "of that work is new" in after.json()["verdict"][-1]
    assert "heavy" in {query["query"] for query in after.json()["outcomes"][0]["queries"]}
    assert "heavy" not in {query["query"] for query in before["outcomes"][0]["queries"]}
    assert "heavy" not in service.mill.queries
    wrong = client.post("/v1/simulate", json={**wish, "text": "CREATE QUERY a AS SELECT itm FROM bid"})
    assert wrong.json()["errors"][0]["column"] == 26
    none = client.post("/v1/simulate", json={**wish, "text": "CREATE VIEW v AS SELECT item FROM bid"})
    assert none.status_code == 400


def test_completion_words_cover_the_language_and_declared_names(
    client: httpx.Client, service: MillService
) -> None:
    declare(service, "CREATE MODEL spread(x REAL) AS sum(x^2)/n - (sum(x)/n)^2")
    words = get(client, "/v1/words")
    assert {"SELECT", "SLIDE", "PAUSE"} <= set(words["keywords"])
    assert {"count", "upper", "spread"} <= {one["name"] for one in words["functions"]}
    relations = {one["name"]: one for one in words["relations"]}
    assert (relations["bid"]["kind"], relations["dear"]["kind"]) == ("stream", "query")
    assert {"name": "price", "type": "INT"} in relations["bid"]["columns"]


def test_a_preview_reports_the_queries_that_the_new_query_would_share_with(
    client: httpx.Client, service: MillService
) -> None:
    same = "CREATE QUERY also AS SELECT item, price FROM bid WHERE price > 10"
    found = client.post("/v1/preview", json={"text": same}).json()
    assert (found["queries"], found["shares_with"]) == (["also"], ["dear"])
    assert found["running_already"] > 0
    assert "Query also" in found["plan"]
    assert "also" not in service.mill.queries
    wrong = client.post("/v1/preview", json={"text": "CREATE QUERY a AS SELECT itm FROM bid"})
    assert (wrong.status_code, wrong.json()["errors"][0]["column"]) == (400, 26)


def test_the_models_route_returns_a_drawing_of_each_model(client: httpx.Client, service: MillService) -> None:
    declare(
        service,
        "CREATE MODEL spread(x REAL) AS sum(x^2)/n - (sum(x)/n)^2;"
        "CREATE QUERY s AS SELECT spread(price) OVER (ROWS 9 PRECEDING) AS v FROM bid",
    )
    (model,) = get(client, "/v1/models")
    assert (model["name"], model["svg"][:4]) == ("spread", "<svg")


def test_only_admins_create_and_drop_tokens(mill: Mill, service: MillService, tmp_path: Path) -> None:
    with serving(service, ServerSockets(), Access(tmp_path)) as url, httpx.Client(base_url=url) as client:
        reader = {"name": "bob", "role": "reader"}
        assert "first token must have role admin" in client.post("/v1/tokens", json=reader).text
        admin = client.post("/v1/tokens", json={"name": "ann", "role": "admin"}).json()["token"]
        assert client.get("/v1/tokens").status_code == 401
        ann = {"authorization": f"Bearer {admin}"}
        bob = client.post("/v1/tokens", json=reader, headers=ann).json()["token"]
        held = {"authorization": f"Bearer {bob}"}
        assert client.get("/v1/tokens", headers=held).status_code == 403
        assert client.get("/v1/overview", headers=held).json()["role"] == "reader"
        assert client.delete("/v1/tokens/ann", headers=ann).status_code == 400
        assert client.delete("/v1/tokens/bob", headers=ann).status_code == 204
        assert [one["name"] for one in client.get("/v1/tokens", headers=ann).json()] == ["ann"]


def test_a_principal_with_limited_names_sees_only_queries_of_these_names(
    service: MillService, tmp_path: Path
) -> None:
    declare(service, "CREATE QUERY sales_now AS SELECT item FROM bid")
    access = Access(tmp_path)
    token = access.add("sue", "reader", ["sales_*"], 0)
    headers = {"authorization": f"Bearer {token}"}
    with (
        serving(service, ServerSockets(), access) as url,
        httpx.Client(base_url=url, headers=headers) as client,
    ):
        found = get(client, "/v1/overview")
        assert ([line["name"] for line in found["queries"]], found["streams"]) == (["sales_now"], [])
        for path in ("/v1/graph", "/v1/graph/components", "/v1/policies", "/v1/history", "/v1/slices"):
            assert client.get(path).status_code == 403
        assert client.get("/v1/queries/dear/line").status_code == 403
        assert client.get("/v1/queries/dear/versions").status_code == 403
        assert client.get("/v1/graph", params={"query": "sales_now"}).status_code == 200


def test_the_openapi_file_of_the_console_describes_the_current_routes(client: httpx.Client) -> None:
    typed = json.loads((_WEB / "openapi.json").read_text(encoding="utf-8"))
    now = get(client, "/openapi.json")
    changed = [path for path, routes in typed["paths"].items() if now["paths"].get(path) != routes]
    changed += [
        name
        for name, schema in typed["components"]["schemas"].items()
        if now["components"]["schemas"].get(name) != schema
    ]
    assert changed == [], "the API has changed: make openapi, then look whether web/ still fits it"


@pytest.mark.parametrize("path", ["/v1/overview", "/v1/graph", "/v1/policies"])
def test_console_routes_answer_before_the_first_declaration(mill: Mill, path: str) -> None:
    mill.open()
    with serving(MillService(mill), ServerSockets()) as url, httpx.Client(base_url=url) as client:
        assert client.get(path).status_code == 200
