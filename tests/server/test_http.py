"""HTTP interface of the service, used by a real client over a socket."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
from prometheus_client.parser import text_string_to_metric_families

from server.conftest import bid
from slicemill.server.encoding import ARROW, CSV
from slicemill.server.service import MillService
from slicemill.server.user_session import UserSession


def events(response: httpx.Response) -> Iterator[dict[str, str]]:
    """Return the server-sent events of a response as dictionaries of their fields."""
    fields: dict[str, str] = {}
    for line in response.iter_lines():
        if not line and fields:
            yield fields
            fields = {}
        elif ": " in line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value


def test_statements_return_rows_or_messages(client: httpx.Client) -> None:
    text = "CREATE QUERY cheap AS SELECT item FROM bid WHERE price < 3; DESCRIBE cheap; DROP QUERY cheap"
    answers = client.post("/v1/statements", json={"text": text}).json()["answers"]
    assert [answer["tag"] for answer in answers] == ["CREATE QUERY", "DESCRIBE", "DROP QUERY"]
    assert answers[1]["rows"] == [{"column": "item", "type": "INT"}]


def test_all_errors_of_a_text_have_a_line_and_column(client: httpx.Client) -> None:
    text = "CREATE QUERY a AS SELECT itm FROM bid;\nCREATE QUERY b AS SELECT item FROM bits"
    response = client.post("/v1/statements", json={"text": text})
    assert response.status_code == 400
    found = response.json()["errors"]
    assert [(one["line"], one["column"], one["end_column"]) for one in found] == [(1, 26, 29), (2, 36, 40)]
    assert "did you mean item" in found[0]["hint"]
    assert client.post("/v1/check", json={"text": text}).json() == response.json()
    assert len(client.get("/v1/queries").json()) == 1


def test_results_have_three_formats_and_the_next_epoch_to_read(
    client: httpx.Client, service: MillService
) -> None:
    bid(service, (1, 20, 1), (2, 30, 2))
    body = client.get("/v1/queries/dear/results").json()
    assert [row["price"] for row in body["rows"]] == [20, 30]
    assert body["rows"][0]["_ts"] == "1970-01-01T00:00:00.000001Z"
    arrow = client.get("/v1/queries/dear/results", headers={"accept": ARROW})
    assert pa.ipc.open_stream(arrow.content).read_all().column("price").to_pylist() == [20, 30]
    text = client.get("/v1/queries/dear/results", headers={"accept": CSV})
    assert [row["price"] for row in csv.DictReader(io.StringIO(text.text))] == ["20", "30"]
    assert {r.headers["slicemill-next-epoch"] for r in (arrow, text)} == {str(body["next"])}
    assert client.get("/v1/queries/dear/results", params={"since": body["next"]}).json()["rows"] == []


def test_live_results_resume_after_the_last_received_event(
    client: httpx.Client, service: MillService
) -> None:
    def prices(event: dict[str, str]) -> list[Any]:
        return [row["price"] for row in json.loads(event["data"])["rows"]]

    bid(service, (1, 20, 1))
    with client.stream("GET", "/v1/queries/dear/live", params={"since": 0}) as response:
        following = events(response)
        first = next(following)
        assert prices(first) == [20]
        bid(service, (1, 21, 2))
        assert prices(next(following)) == [21]
        bid(service, (1, 22, 3))
    with client.stream("GET", "/v1/queries/dear/live", headers={"last-event-id": first["id"]}) as response:
        following = events(response)
        assert [prices(next(following)), prices(next(following))] == [[21], [22]]


def test_live_results_start_with_the_newest_retained_rows(client: httpx.Client, service: MillService) -> None:
    for index in range(5):
        bid(service, (1, 20 + index, 1 + index))

    def begun(recent: int, price: int) -> list[Any]:
        """Return prices of live results, up to the price of a bid that arrives after the request."""
        found: list[Any] = []
        with client.stream("GET", "/v1/queries/dear/live", params={"recent": recent}) as response:
            bid(service, (1, price, price))
            for event in events(response):
                found += [row["price"] for row in json.loads(event["data"])["rows"]]
                if found[-1] == price:
                    return found
        return found

    assert begun(0, 90) == [90]
    assert begun(3, 91) == [23, 24, 90, 91]
    assert begun(1000, 92) == [20, 21, 22, 23, 24, 90, 91, 92]


def test_live_results_end_when_their_query_is_dropped(client: httpx.Client, service: MillService) -> None:
    with client.stream("GET", "/v1/queries/dear/live") as response:
        UserSession(service).execute("DROP QUERY dear")
        service.mill.dispatcher.notify()
        assert [event["event"] for event in events(response)] == ["end"]


def test_an_unknown_query_or_route_is_not_found(client: httpx.Client) -> None:
    response = client.get("/v1/queries/deer/results")
    assert (response.status_code, "did you mean dear" in response.text) == (404, True)
    assert client.get("/nothing").status_code == 404


def test_plans_are_available_as_text_json_and_drawings(client: httpx.Client) -> None:
    assert "price > 10" in client.get("/v1/queries/dear/explain").text
    assert client.get("/v1/explain", params={"format": "json"}).json()["nodes"]
    assert client.get("/v1/explain", params={"format": "svg"}).text.startswith("<svg")
    for form, kind, first in (
        ("mermaid", "text/vnd.mermaid", "flowchart LR"),
        ("dot", "text/vnd.graphviz", "digraph slicemill {"),
    ):
        for path in ("/v1/explain", "/v1/queries/dear/explain"):
            plan = client.get(path, params={"format": form})
            assert plan.headers["content-type"] == f"{kind}; charset=utf-8"
            assert plan.text.splitlines()[0] == first and "Query dear" in plan.text
    assert client.get("/v1/explain", params={"format": "pdf"}).status_code == 422


def test_health_metrics_and_catalog_report_the_state_of_the_server(client: httpx.Client) -> None:
    assert client.get("/health").json()["ready"] is True
    assert {query["query"] for query in client.get("/v1/metrics").json()["queries"]} == {"dear"}
    assert [entry["name"] for entry in client.get("/v1/catalog").json()] == ["bid", "dear"]


def test_metrics_are_valid_prometheus_text(client: httpx.Client, service: MillService) -> None:
    bid(service, (1, 20, 1), (2, 5, 2))
    text = client.get("/metrics").text
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["slicemill_query_rows_total", "dear"] == 1
    assert found["slicemill_stream_rows_total", "bid"] == 2
    promtool = shutil.which("promtool")
    if promtool is not None:
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_support_bundle_has_statements_plans_and_metrics_but_no_rows(
    client: httpx.Client, service: MillService
) -> None:
    bid(service, (1, 98765, 1))
    with zipfile.ZipFile(io.BytesIO(client.get("/v1/support-bundle").content)) as bundle:
        texts = {name: bundle.read(name).decode() for name in bundle.namelist()}
    assert "CREATE QUERY dear" in texts["slicemill/statements.esl"]
    assert json.loads(texts["slicemill/metrics.json"])["queries"]
    assert all("98765" not in text for text in texts.values())
