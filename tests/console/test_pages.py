"""First view of each page, and late or missing answers of the server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from console.demo import console_server
from console.test_stories import write

IN_SIGHT = """() => {
  const right = (what) => document.querySelector(what).getBoundingClientRect().right;
  return right(".node.chosen") <= right(".canvas");
}"""
STATEMENT = "CREATE QUERY {} AS SELECT price FROM bid WHERE price > 1"


def saved(page: Page, button: str) -> Path:
    """Return the file that the browser saves on a click of a button."""
    with page.expect_download() as download:
        page.get_by_role("button", name=button).click()
    return Path(download.value.path())


def test_received_rows_stay_and_can_be_saved(page: Page, busy: str) -> None:
    page.goto(f"{busy}/#/query/bids_in_euro")
    rows = page.get_by_role("region", name="Newest results first").locator("tbody tr")
    expect(rows.first).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    assert '"euro"' in saved(page, "Save shown rows").read_text(encoding="utf-8").splitlines()[0]
    assert "euro" in saved(page, "Save all stored (CSV)").read_text(encoding="utf-8").splitlines()[0]
    expect(rows.first).to_be_visible()
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_text("live", exact=True)).to_be_visible()


def test_rows_emitted_before_the_page_was_opened_are_shown(page: Page, tmp_path: Path) -> None:
    source = "CREATE STREAM bid (price bigint, ts timestamp) ORDER BY ts SOURCE 'nexmark://bid?events=400'"
    with console_server(tmp_path, f"{source}; CREATE QUERY prices AS SELECT price FROM bid") as url:
        page.goto(f"{url}/#/overview")
        line = page.get_by_role("region", name="Queries").get_by_role("row", name=re.compile("^prices"))
        expect(line).to_contain_text("its streams have ended, and all its results have been emitted")
        stream = page.get_by_role("region", name="Streams").get_by_role("row", name=re.compile("^bid"))
        expect(stream).to_contain_text("ended")
        expect(page.get_by_text("stream bid has ended")).to_be_visible()
        page.goto(f"{url}/#/query/prices")
        rows = page.get_by_role("region", name="Newest results first").locator("tbody tr")
        expect(rows).to_have_count(200)
        # Whole epochs are fetched, which may be more rows than are shown.
        count = page.get_by_text(re.compile(r"^\d+ rows so far$")).inner_text()
        assert 200 <= int(count.split()[0]) <= 368
        page.get_by_role("button", name="Stop").click()
        # Rows on the page are not fetched again.
        with page.expect_request(re.compile(r"/live\?recent=0$")):
            page.get_by_role("button", name="Continue").click()
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        expect(page.get_by_text(count)).to_be_visible()
        page.goto("about:blank")


def test_empty_pages_explain_the_first_step_and_an_unknown_query_has_no_buttons(
    page: Page, tmp_path: Path, provoked: list[str]
) -> None:
    provoked.append("404 (Not Found)")
    with console_server(tmp_path) as url:
        for place in ("graph", "query", "scheduling"):
            page.goto(f"{url}/#/{place}")
            expect(page.get_by_text("No query runs yet. Write one in the editor")).to_be_visible()
        page.goto(f"{url}/#/query/nobody")
        expect(page.get_by_role("alert")).to_contain_text("there is no stream, query, table or view nobody")
        expect(page.get_by_role("button", name="Drop")).to_have_count(0)
        expect(page.get_by_role("button", name="Stop")).to_have_count(0)
        page.goto("about:blank")


def test_each_task_has_a_priority_and_a_reason(page: Page, busy: str) -> None:
    page.goto(f"{busy}/#/scheduling")
    expect(page.get_by_text("the task with the oldest pending row runs first").first).to_be_visible()
    tasks = page.get_by_role("region", name="Priorities")
    expect(tasks).to_contain_text(re.compile(r"for \d+\.\d\d s; a run takes .* and emits .* results"))


@pytest.mark.slow_cpu
def test_state_slices_have_names_bytes_and_reaches(page: Page, busy: str) -> None:
    page.goto(f"{busy}/#/slices/first_minute_bids")
    picture = page.get_by_role("img", name=re.compile("^Slices of joins of auction and bid"))
    for text in ("auction · subtask", "bid · subtask", "kB", "60 s"):
        expect(picture).to_contain_text(text)
    expect(page.get_by_role("heading", name="Subtasks per worker").first).to_be_visible()


def test_a_model_has_both_graphs_and_a_budget_has_its_accuracy(page: Page, busy: str) -> None:
    page.goto(f"{busy}/#/models")
    expect(page.get_by_role("img", name="Graphs of the model volatility")).to_be_visible()
    line = page.get_by_role("region", name="Queries with a load budget").get_by_role("row")
    expect(line.filter(has_text="runs_of_channels")).to_contain_text("memory 60 tuples")
    expect(page.get_by_role("img", name=re.compile("^Accuracy: "))).to_be_visible()


def test_late_and_bad_rows_have_separate_views(page: Page, busy: str) -> None:
    page.goto(f"{busy}/#/errors/bid")
    expect(page.get_by_text("Every row of bid could be read.")).to_be_visible()
    page.get_by_role("button", name="Late").click()
    expect(page.get_by_text(re.compile("No row of bid was late"))).to_be_visible()


def test_settings_offer_a_support_bundle(page: Page, busy: str) -> None:
    page.goto(f"{busy}/#/settings")
    expect(page.get_by_text("the user of this machine")).to_be_visible()
    assert saved(page, "Support bundle").read_bytes().startswith(b"PK")


def test_a_late_answer_to_an_earlier_request_is_not_shown(page: Page, busy: str) -> None:
    held: list[Route] = []

    def late_for_the_first(route: Route) -> None:
        if "first" in (route.request.post_data or ""):
            held.append(route)
        else:
            route.continue_()

    page.route("**/v1/preview", late_for_the_first)
    page.goto(f"{busy}/#/editor")
    with page.expect_request("**/v1/preview"):
        write(page, STATEMENT.format("first"))
    write(page, STATEMENT.format("second"))
    expect(page.get_by_role("heading", name="Plan of second")).to_be_visible()
    with page.expect_response("**/v1/preview"):
        held[0].continue_()
    page.evaluate(
        "() => new Promise(done => setTimeout(done))"
    )  # Any handler that waited for the answer has run.
    expect(page.get_by_role("heading", name="Plan of second")).to_be_visible()


def test_a_page_that_cannot_be_loaded_shows_an_error_with_a_retry(
    page: Page, busy: str, provoked: list[str]
) -> None:
    provoked.append("net::ERR_FAILED")
    page.route("**/console/graph-*.js", lambda route: route.abort())
    page.goto(busy)
    page.get_by_role("link", name=re.compile("^Graph")).click()
    expect(page.get_by_role("button", name="Reload the console")).to_be_visible()
    page.unroute("**/console/graph-*.js")
    page.get_by_role("button", name="Reload the console").click()
    expect(page.locator(".node").first).to_be_visible()


def test_the_end_of_a_drag_selects_no_node(page: Page, busy: str) -> None:
    page.goto(f"{busy}/#/graph")
    node = page.locator(".node").first
    expect(node).to_be_visible()
    box = node.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 40, y + 30, steps=4)
    page.mouse.up()
    expect(page.locator(".node.chosen")).to_have_count(0)
    page.mouse.click(x + 40, y + 30)
    expect(page.locator(".node.chosen")).to_have_count(1)


def test_a_selected_node_stays_visible_beside_its_panel(page: Page, busy: str) -> None:
    page.goto(f"{busy}/#/graph")
    page.get_by_role("button", name=re.compile("early_big_bids")).click()
    expect(page.get_by_role("complementary")).to_contain_text("CPU cost")
    page.wait_for_function(IN_SIGHT)
