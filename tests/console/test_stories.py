"""User stories of the console, in a real browser against a real server with real queries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from connectors.sender import eventually
from console.browser import HIDE
from console.demo import auction, console_server
from slicemill.server.auth import Access
from support.webhooks import listening_webhook

# A retained stream, and a slow aggregate: GROUP BY inside a body is interpreted.
PAST = """
CREATE STREAM past (auction bigint, bidder bigint, price bigint, channel varchar, ts timestamp)
  ORDER BY ts RETAIN 1 DAY SOURCE 'nexmark://bid?rate=4000&events=4000';
CREATE AGGREGATE grouped(next bigint) : bigint {
  TABLE state(total bigint);
  INITIALIZE: { INSERT INTO state VALUES (next); INSERT INTO RETURN VALUES (next); }
  ITERATE: {
    UPDATE state SET total = total + next;
    INSERT INTO RETURN SELECT sum(total) FROM state GROUP BY total; } };
"""
LEVEL = " WITH (slo = 'p99 < 1 ms')"


@contextmanager
def shown(page: Page) -> Iterator[None]:
    """Leave the server's page before the server stops, so that no request fails."""
    yield
    page.goto("about:blank")


def write(page: Page, text: str) -> None:
    """Replace the text of the editor."""
    page.get_by_role("textbox", name="Statements in ESL").fill(text)


def run(page: Page, tag: str) -> None:
    """Run the text of the editor, and wait for the answer to one of its statements."""
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("region", name=f"Answer to {tag}")).to_be_visible()


@pytest.mark.slow_cpu
def test_a_user_declares_queries_sees_the_graph_changes_the_policy_and_drops_them(
    page: Page, tmp_path: Path
) -> None:
    with console_server(tmp_path) as url, shown(page):
        page.goto(url)
        expect(page.get_by_text("Nothing is declared yet")).to_be_visible()
        page.keyboard.press("g")
        page.keyboard.press("e")
        page.get_by_label("Examples").select_option(label="A stream of bids, and the dear ones")
        expect(page.get_by_role("heading", name="Plan of dear_bids")).to_be_visible()
        run(page, "CREATE QUERY")

        page.get_by_role("link", name="see its results").click()
        results = page.get_by_role("region", name="Newest results first")
        expect(results.locator("tbody tr").first).to_be_visible()
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_text("stopped", exact=True)).to_be_visible()
        assert results.locator("tbody tr").count() > 0
        page.get_by_label("Filter results").fill("no such value")
        expect(page.get_by_text("No row matches.")).to_be_visible()

        page.get_by_role("link", name="Graph", exact=True).last.click()
        expect(page.get_by_role("button", name=re.compile("^Stream bid"))).to_be_visible()
        expect(page.get_by_text("CPU cost")).to_be_visible()

        replace_filter(page, url)

        page.goto(f"{url}/#/editor")
        write(page, f"CREATE QUERY strict{LEVEL} AS SELECT auction, price FROM bid")
        run(page, "CREATE QUERY")
        page.goto(f"{url}/#/overview")
        first = page.get_by_role("region", name="Queries").locator("tbody tr").first
        expect(first).to_contain_text("strict")
        expect(first).to_contain_text(re.compile("misses its service level|wait|pending"))

        page.goto(f"{url}/#/scheduling")
        page.get_by_label("Policy").select_option("hnr")
        page.get_by_role("button", name="Switch").click()
        expect(page.locator(".badge.good")).to_have_text("hnr")
        expect(
            page.get_by_role("region", name="Before and after").get_by_role("cell", name="hnr")
        ).to_be_visible()

        page.goto(f"{url}/#/query/strict")
        page.get_by_role("button", name="Drop", exact=True).click()
        page.get_by_role("button", name="Drop strict").click()
        expect(page.get_by_text("query strict was dropped")).to_be_visible()
        expect(page.get_by_role("link", name="strict")).to_have_count(0)


def replace_filter(page: Page, url: str) -> None:
    """Replace dear_bids by a query with another filter, and check the reported changes."""
    page.goto(f"{url}/#/query/dear_bids")
    page.get_by_role("link", name="Replace").click()
    editor = page.get_by_role("textbox", name="Statements in ESL")
    expect(editor).to_contain_text("CREATE OR REPLACE QUERY")
    write(page, editor.inner_text().replace("900000", "800000"))
    expect(page.get_by_role("region", name="Effects of the replacement")).to_be_visible()
    run(page, "CREATE QUERY")
    page.goto(f"{url}/#/query/dear_bids?tab=statement")
    expect(page.locator("pre .removed", has_text="900000")).to_be_visible()
    expect(page.locator("pre .added", has_text="800000")).to_be_visible()


def test_an_error_is_underlined_with_a_hint_and_no_statement_runs(page: Page, busy: str) -> None:
    page.goto(f"{busy}/#/editor")
    write(page, "CREATE QUERY typo AS SELECT prise FROM bid")
    expect(page.locator(".cm-lintRange-error")).to_have_text("prise")
    expect(page.get_by_text("did you mean price")).to_be_visible()
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("button", name="Run")).to_be_enabled()
    expect(page.locator(".problem")).to_have_count(1)
    page.goto(f"{busy}/#/overview")
    expect(page.get_by_role("link", name="bids_in_euro")).to_be_visible()
    expect(page.get_by_role("link", name="typo")).to_have_count(0)


def test_an_error_found_only_by_execution_is_shown_below_the_editor(
    page: Page, busy: str, provoked: list[str]
) -> None:
    provoked.append("400 (Bad Request)")
    page.goto(f"{busy}/#/editor")
    # Run requests a check, and so does the editor after a pause in typing. The later check finds no error,
    # and must not remove the error of the run.
    checks = count(1)
    with page.expect_response(lambda one: one.url.endswith("/v1/check") and next(checks) == 2):
        write(page, "SELECT nobody FROM bid")
        page.get_by_role("button", name="Run").click()
    expect(page.locator(".problem")).to_contain_text("nobody")
    write(page, "SELECT price FROM bid")
    expect(page.locator(".problem")).to_have_count(0)


def test_a_query_has_a_plan_and_charts(page: Page, busy: str) -> None:
    page.goto(f"{busy}/#/query/hot_items")
    expect(page.get_by_role("img", name=re.compile("^Response time: p50"))).to_be_visible()
    page.get_by_role("tab", name="Plan").click()
    expect(page.get_by_role("region", name="Plan")).to_contain_text("Query hot_items")


def test_a_query_can_be_paused_and_resumed(page: Page, busy: str) -> None:
    page.goto(f"{busy}/#/query/price_level")
    expect(page.get_by_role("region", name="Newest results first").locator("tbody tr").first).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("status")).to_contain_text("no rows are lost")
    expect(page.locator(".head .badge")).to_have_text("paused")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".head .badge")).to_have_text("running")
    page.goto(f"{busy}/#/overview")
    expect(page.get_by_text("price_level was paused")).to_be_visible()
    expect(page.get_by_text("price_level was resumed")).to_be_visible()


def test_the_editor_completes_names_of_the_catalog(page: Page, busy: str) -> None:
    page.goto(f"{busy}/#/editor")
    write(page, "SELECT A.ini FROM auction AS A")
    page.get_by_role("textbox", name="Statements in ESL").press("Home")
    for _ in range(len("SELECT A.ini")):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Control+Space")
    page.get_by_role("option", name=re.compile("initial_bid")).click()
    expect(page.get_by_role("textbox", name="Statements in ESL")).to_contain_text("A.initial_bid FROM")


def test_the_answer_of_an_ad_hoc_query_is_a_table_and_a_chart(page: Page, busy: str) -> None:
    page.goto(f"{busy}/#/editor")
    write(page, "SELECT channel, count(*) AS bids, max(price) AS highest FROM bid GROUP BY channel")
    run(page, "SELECT")
    expect(page.get_by_role("region", name="Rows of SELECT").locator("tbody tr").first).to_be_visible()
    page.get_by_role("button", name="Chart").click()
    expect(page.get_by_role("figure", name="bids by channel")).to_be_visible()


def test_a_selected_graph_node_highlights_its_path_and_shows_its_cost(page: Page, busy: str) -> None:
    page.goto(f"{busy}/#/graph")
    expect(page.locator(".node").first).to_be_visible()
    expect(page.locator(".arc text").filter(has_text="/s").first).to_be_visible()
    page.get_by_role("button", name=re.compile("^Join")).first.click()
    expect(page.locator(".arc.lit").first).to_be_visible()
    expect(page.locator(".node.dim").first).to_be_visible()
    expect(page.get_by_text("of a core").last).to_be_visible()
    shown = page.locator(".node").count()
    page.get_by_role("button", name="Collapse downstream nodes").click()
    expect(page.get_by_text("hidden")).to_be_visible()
    assert page.locator(".node").count() < shown
    page.get_by_role("button", name="Expand").click()
    expect(page.locator(".node")).to_have_count(shown)
    page.get_by_role("button", name=re.compile("early_big_bids")).click()
    expect(page.get_by_role("complementary")).to_contain_text("shared")
    page.get_by_label("Find a query").fill("hot_it")
    page.get_by_label("Find a query").press("Enter")
    expect(page.get_by_role("heading", name="Graph of hot_items")).to_be_visible()


def test_state_slices_of_a_join_are_shown_by_age(page: Page, busy: str) -> None:
    page.goto(f"{busy}/#/slices/first_minute_bids")
    expect(page.get_by_role("heading", name=re.compile("joins of auction and bid"))).to_be_visible()
    expect(page.locator("rect.slice").first).to_be_visible()
    expect(page.locator("line.reach").first).to_be_attached()


def test_a_load_and_a_new_query_can_be_simulated(page: Page, busy: str) -> None:
    page.goto(f"{busy}/#/scheduling")
    page.get_by_label("bid, rows/s").fill("5000")
    page.get_by_role("button", name="Simulate").click()
    expect(page.get_by_text(re.compile("of the CPU time of|times the CPU time of"))).to_be_visible()
    page.get_by_label("A new query").fill("CREATE QUERY more AS SELECT auction, price * 2 AS twice FROM bid")
    page.get_by_role("button", name="Simulate").click()
    expect(page.get_by_text("of that work is new")).to_be_visible()


@pytest.mark.slow_cpu
def test_a_backfilling_query_shows_its_progress(page: Page, busy: str) -> None:
    page.goto(f"{busy}/#/editor")
    write(page, PAST)
    run(page, "CREATE STREAM")
    page.goto(f"{busy}/#/overview")
    read = page.get_by_role("region", name="Streams").get_by_role("row", name=re.compile("^past "))
    expect(read).to_contain_text("3,680")  # number of bids among the events
    page.goto(f"{busy}/#/editor")
    write(page, "CREATE QUERY totals FROM BEGINNING AS SELECT grouped(price) AS total FROM past")
    run(page, "CREATE QUERY")
    page.get_by_role("link", name="see its results").click()
    expect(page.get_by_role("status")).to_contain_text(re.compile("Backfill of past rows: .* rows left"))
    expect(page.get_by_role("img", name=re.compile("of the past rows are read"))).to_be_visible()
    expect(page.locator(".head .badge")).to_have_text("running")
    expect(page.get_by_text("Backfill of past rows")).to_have_count(0)
    expect(page.locator(".figures > div").first).to_have_text("Results3,680")


@pytest.mark.slow_cpu
def test_an_alert_can_be_created_fires_and_can_be_dropped(page: Page, busy: str) -> None:
    with listening_webhook() as hook:
        page.goto(f"{busy}/#/query/bids_in_euro")
        page.get_by_role("link", name="Alert", exact=True).click()
        editor = page.get_by_role("textbox", name="Statements in ESL")
        expect(editor).to_contain_text('CREATE ALERT "bids_in_euro_slow"')
        write(page, f"CREATE ALERT bids_come ON bids_in_euro WHEN rate > 1 WEBHOOK '{hook.url}'")
        run(page, "CREATE ALERT")
        page.goto(f"{busy}/#/overview")
        expect(page.get_by_text("An alert is firing: bids_come")).to_be_visible()
        page.get_by_role("link", name="See alerts").click()
        line = page.get_by_role("region", name="Alerts").get_by_role("row", name=re.compile("^bids_come"))
        expect(line).to_contain_text("firing")
        (message,) = hook.received(1)
        assert (message["alert"], message["status"]) == ("bids_come", "firing")
        line.get_by_role("button", name="Drop").click()
        expect(line).to_have_count(0)


@pytest.mark.slow_cpu
def test_bad_rows_are_listed_and_replayed_after_a_fix(page: Page, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "rows.csv").write_text("1,1000000\nmany,2000000\n3,3000000\n")
    stream = f"CREATE STREAM s (v int, ts timestamp) ORDER BY ts USING csv OPTIONS (path '{folder}')"
    declared = f"{stream}; CREATE QUERY q AS SELECT v FROM s"
    lost = page.get_by_role("region", name="errors rows of s")
    with console_server(tmp_path / "home", declared) as url, shown(page):
        page.goto(f"{url}/#/errors/s")
        expect(lost).to_contain_text("a number needs its unit")
        page.get_by_role("button", name="Replay them").click()
        expect(page.get_by_role("status")).to_contain_text("3 rows replayed: 0 read, 3 failed again")
    fixed = declared.replace("ts timestamp", "ts timestamp micros")
    with console_server(tmp_path / "home", fixed) as url, shown(page):
        page.goto(f"{url}/#/errors/s")
        expect(lost).to_contain_text("a number needs its unit")
        page.get_by_role("button", name="Replay them").click()
        expect(page.get_by_role("status")).to_contain_text("3 rows replayed: 2 read, 1 failed again")
        page.goto(f"{url}/#/query/q")
        expect(page.locator(".figures > div").first).to_have_text("Results2")


@pytest.mark.slow_cpu
def test_late_rows_are_listed_and_replayed_in_a_query(page: Page, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "first.csv").write_text("1,1000000\nmany,2000000\n3,3000000\n")
    source = f"ORDER BY ts RETAIN 1 DAY USING csv OPTIONS (path '{folder}')"
    declared = f"CREATE STREAM s (v int, ts timestamp) {source}; CREATE QUERY q AS SELECT v FROM s"
    with console_server(tmp_path / "home", declared) as url, shown(page):
        page.goto(f"{url}/#/errors/s")
        expect(page.get_by_role("region", name="errors rows of s")).to_contain_text("a number needs its unit")
    # Meanwhile further rows arrive and advance the watermark.
    (folder / "second.csv").write_text("4,9000000\n2,4000000\n")
    fixed = declared.replace("ts timestamp", "ts timestamp micros")
    with console_server(tmp_path / "home", fixed) as url, shown(page):
        page.goto(f"{url}/#/errors/s")
        streams = page.get_by_role("region", name="Rows that no query receives")
        expect(streams.get_by_role("row", name="s 2 0 1 0 ok")).to_be_visible()
        page.get_by_role("button", name="Replay them").click()
        told = "3 rows replayed: 2 read, 2 of them too late for their order, 1 failed again"
        expect(page.get_by_role("status")).to_contain_text(told)
        page.get_by_role("button", name="Late").click()
        late = page.get_by_role("region", name="late rows of s").locator("tbody tr")
        expect(late).to_have_count(3)
        expect(late.filter(has_text="1970-01-01T00:00:04")).to_have_count(1)
        page.goto(f"{url}/#/overview")
        page.get_by_role("region", name="Streams").get_by_role("link", name="3", exact=True).click()
        expect(late).to_have_count(3)
        page.get_by_role("link", name="Replay them in a query").click()
        expect(page.get_by_role("textbox", name="Statements in ESL")).to_contain_text("FROM BEGINNING")
        expect(page.get_by_role("heading", name="Plan of s_too_late")).to_be_visible()
        run(page, "CREATE QUERY")
        page.get_by_role("link", name="see its results").click()
        rows = page.get_by_role("region", name="Newest results first").locator("tbody tr")
        expect(rows).to_have_count(3)
        expect(page.locator(".figures > div").first).to_have_text("Results3")


def test_the_page_reconnects_after_a_restart_of_the_server(
    page: Page, tmp_path: Path, provoked: list[str]
) -> None:
    provoked.append("net::ERR_")
    with ExitStack() as first:
        url = first.enter_context(console_server(tmp_path, auction()))
        page.goto(url)
        expect(page.get_by_role("link", name="hot_items")).to_be_visible()
        first.close()
        expect(page.get_by_role("alert")).to_contain_text("does not answer")
        expect(page.get_by_role("link", name="hot_items")).to_be_visible()
    with console_server(tmp_path, port=int(url.rpartition(":")[2])), shown(page):
        expect(page.get_by_role("alert")).to_have_count(0)
        expect(page.get_by_role("link", name="hot_items")).to_be_visible()


def test_a_token_is_requested_and_stored_for_the_tab(page: Page, tmp_path: Path, provoked: list[str]) -> None:
    provoked.append("401 (Unauthorized)")
    token = Access(tmp_path).add("ann", "admin", [], 0)
    with console_server(tmp_path, auction(), tokens=True) as url, shown(page):
        page.goto(url)
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("requires a token")
        dialog.get_by_label("Token").fill("wrong")
        dialog.get_by_role("button").click()
        expect(dialog).to_be_visible()
        dialog.get_by_label("Token").fill(token)
        dialog.get_by_role("button").click()
        expect(page.get_by_role("link", name="hot_items")).to_be_visible()
        page.goto(f"{url}/#/settings")
        page.reload()
        expect(page.get_by_role("cell", name="ann")).to_be_visible()
        page.get_by_label("Name", exact=True).fill("bob")
        page.get_by_label("Role").select_option("reader")
        page.get_by_role("button", name="Create a token").click()
        expect(page.get_by_text("shown once")).to_be_visible()
        expect(page.get_by_role("cell", name="bob", exact=True)).to_be_visible()


@pytest.mark.slow_cpu
def test_a_thousand_queries_stay_usable(page: Page, thousand: str) -> None:
    page.goto(thousand)
    expect(page.get_by_role("region", name="Queries").locator("tbody tr")).to_have_count(50)
    expect(page.get_by_text("1–50 of 1,000")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("many0777")
    expect(page.get_by_role("region", name="Queries").locator("tbody tr")).to_have_count(1)
    page.goto(f"{thousand}/#/graph")
    expect(page.locator(".node").first).to_be_visible()
    assert page.locator(".node").count() <= 150
    page.goto(f"{thousand}/#/graph/many0777")
    expect(page.get_by_role("button", name=re.compile("many0777"))).to_be_visible()


def expect_followers(url: str, number: int) -> None:
    """Wait until the server has this number of open streams of live results."""

    def followers() -> int:
        text = httpx.get(f"{url}/metrics").text
        (found,) = re.findall(r"^slicemill_live_clients (\S+)", text, re.MULTILINE)
        return int(float(found))

    eventually(lambda: followers() == number)


@pytest.mark.slow_cpu
def test_a_hidden_page_sends_no_requests_and_closes_its_stream(page: Page, tmp_path: Path) -> None:
    asked: list[str] = []
    with console_server(tmp_path, auction()) as url, shown(page):
        page.goto(f"{url}/#/query/bids_in_euro")
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        expect_followers(url, 1)
        page.evaluate(HIDE, True)
        expect(page.get_by_text("connecting")).to_be_visible()
        expect_followers(url, 0)
        page.on("request", lambda request: asked.append(request.url))
        page.wait_for_timeout(2500)  # Two polls would have happened, one each second.
        assert asked == []
        page.evaluate(HIDE, False)
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        expect_followers(url, 1)
