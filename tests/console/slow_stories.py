"""What people do with the console, in a real browser against a real server with real queries."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

from playwright.sync_api import Page, expect

from console.demo import auction, console_server
from slicemill.server.access import Access

LEVEL = " WITH (slo = 'p99 < 1 ms')"


def write(page: Page, text: str) -> None:
    """Write into the editor, in place of what is there."""
    page.get_by_role("textbox", name="Statements in ESL").fill(text)


def test_from_nothing_to_results_a_graph_another_policy_and_back(page: Page, tmp_path: Path) -> None:
    with console_server(tmp_path) as url:
        page.goto(url)
        expect(page.get_by_text("Nothing is declared yet")).to_be_visible()
        page.keyboard.press("g")
        page.keyboard.press("e")
        page.get_by_label("Examples").select_option(label="A stream of bids, and the dear ones")
        expect(page.get_by_role("heading", name="Plan of dear_bids")).to_be_visible()
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_role("heading", name=re.compile("CREATE QUERY"))).to_be_visible()

        page.get_by_role("link", name="see its results").click()
        results = page.get_by_role("region", name="Newest results first")
        expect(results.locator("tbody tr").first).to_be_visible()
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_text("stopped; rows stay")).to_be_visible()
        kept = results.locator("tbody tr").count()
        assert kept > 0
        page.get_by_label("Filter results").fill("no such value")
        expect(page.get_by_text("No row matches.")).to_be_visible()

        page.get_by_role("link", name="Graph", exact=True).last.click()
        expect(page.get_by_role("button", name=re.compile("^Stream bid"))).to_be_visible()
        expect(page.get_by_text("What it costs")).to_be_visible()

        page.goto(f"{url}/#/editor")
        write(page, f"CREATE QUERY strict{LEVEL} AS SELECT auction, price FROM bid")
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_role("heading", name=re.compile("CREATE QUERY"))).to_be_visible()
        page.goto(f"{url}/#/overview")
        first = page.get_by_role("region", name="Queries").locator("tbody tr").first
        expect(first).to_contain_text("strict")
        expect(first).to_contain_text(re.compile("misses its level|wait"))

        page.goto(f"{url}/#/scheduling")
        page.get_by_label("Policy").select_option("hnr")
        page.get_by_role("button", name="Switch").click()
        expect(page.locator(".badge.good")).to_have_text("hnr")

        page.goto(f"{url}/#/query/strict")
        page.get_by_role("button", name="Drop", exact=True).click()
        page.get_by_role("button", name="Drop strict").click()
        expect(page.get_by_text("query strict was dropped")).to_be_visible()
        expect(page.get_by_role("link", name="strict")).to_have_count(0)


def test_a_query_is_replaced_and_its_versions_are_compared(page: Page, busy: str) -> None:
    page.goto(f"{busy}/#/editor?replace=bids_on_few_items")
    editor = page.get_by_role("textbox", name="Statements in ESL")
    expect(editor).to_contain_text("DROP QUERY")
    page.get_by_text("123", exact=True).dblclick()
    page.keyboard.type("7")
    expect(editor).to_contain_text("auction % 7")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("heading", name=re.compile("CREATE QUERY"))).to_be_visible()
    page.goto(f"{busy}/#/query/bids_on_few_items")
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("pre .removed").first).to_contain_text("123")
    expect(page.locator("pre .added").first).to_contain_text("7")


def test_a_mistake_is_underlined_with_a_hint_and_nothing_is_run(page: Page, busy: str) -> None:
    page.goto(f"{busy}/#/editor")
    write(page, "CREATE QUERY typo AS SELECT prise FROM bid")
    expect(page.locator(".cm-lintRange-error")).to_have_text("prise")
    expect(page.get_by_text("did you mean price")).to_be_visible()
    page.get_by_role("button", name="Run").click()
    expect(page.locator(".problem")).to_have_count(1)
    page.goto(f"{busy}/#/overview")
    expect(page.get_by_role("link", name="bids_in_euro")).to_be_visible()
    expect(page.get_by_role("link", name="typo")).to_have_count(0)


def test_the_editor_completes_names_of_the_catalog(page: Page, busy: str) -> None:
    page.goto(f"{busy}/#/editor")
    write(page, "")
    page.get_by_role("textbox", name="Statements in ESL").press_sequentially("initial")
    expect(page.locator(".cm-tooltip-autocomplete")).to_contain_text("initial_bid")


def test_a_question_is_answered_as_table_and_chart(page: Page, busy: str) -> None:
    page.goto(f"{busy}/#/editor")
    write(page, "SELECT channel, count(*) AS bids, max(price) AS highest FROM bid GROUP BY channel")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("region", name="Rows of SELECT").locator("tbody tr").first).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("By row"))).to_be_visible()


def test_a_node_of_the_graph_lights_its_way_and_tells_what_it_costs(page: Page, busy: str) -> None:
    page.goto(f"{busy}/#/graph")
    expect(page.locator(".node").first).to_be_visible()
    expect(page.locator(".arc text").filter(has_text="/s").first).to_be_visible()
    page.get_by_role("button", name=re.compile("^Join")).first.click()
    expect(page.locator(".arc.lit").first).to_be_visible()
    expect(page.locator(".node.dim").first).to_be_visible()
    expect(page.get_by_text("of a core").last).to_be_visible()
    page.get_by_label("Find a query").fill("hot_it")
    page.get_by_label("Find a query").press("Enter")
    expect(page.get_by_role("heading", name="Graph of hot_items")).to_be_visible()


def test_slices_of_a_join_by_age(page: Page, busy: str) -> None:
    page.goto(f"{busy}/#/slices/first_minute_bids")
    expect(page.get_by_role("heading", name=re.compile("joins of auction and bid"))).to_be_visible()
    expect(page.locator("rect.slice").first).to_be_visible()
    expect(page.locator("line.reach").first).to_be_attached()


def test_a_load_is_rehearsed(page: Page, busy: str) -> None:
    page.goto(f"{busy}/#/scheduling")
    page.get_by_label("bid, rows/s").fill("5000")
    page.get_by_role("button", name="Rehearse").click()
    expect(page.get_by_text(re.compile("of the work that|times the work that"))).to_be_visible()


def test_the_server_stops_and_comes_back(page: Page, tmp_path: Path) -> None:
    with ExitStack() as first:
        url = first.enter_context(console_server(tmp_path, auction()))
        page.goto(url)
        expect(page.get_by_role("link", name="hot_items")).to_be_visible()
        first.close()
        expect(page.get_by_role("alert")).to_contain_text("does not answer")
        expect(page.get_by_role("link", name="hot_items")).to_be_visible()
    with console_server(tmp_path, port=int(url.rpartition(":")[2])):
        expect(page.get_by_role("alert")).to_have_count(0)
        expect(page.get_by_role("link", name="hot_items")).to_be_visible()


def test_a_token_is_asked_for_and_kept_for_the_tab(page: Page, tmp_path: Path) -> None:
    token = Access(tmp_path).add("ann", "admin", [], 0)
    with console_server(tmp_path, auction(), tokens=True) as url:
        page.goto(url)
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("asks for a token")
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
        page.get_by_role("button", name="Make a token").click()
        expect(page.get_by_text("shown once")).to_be_visible()
        expect(page.get_by_role("cell", name="bob", exact=True)).to_be_visible()


def test_a_thousand_queries_stay_usable(page: Page, tmp_path: Path) -> None:
    bids = auction().split(";\n")[2]
    queries = (f"CREATE QUERY many{n:04} AS SELECT auction FROM bid WHERE price > {n}" for n in range(1000))
    with console_server(tmp_path, ";\n".join((bids, *queries))) as url:
        page.goto(url)
        expect(page.get_by_role("region", name="Queries").locator("tbody tr")).to_have_count(50)
        expect(page.get_by_text("1–50 of 1,000")).to_be_visible()
        page.keyboard.press("/")
        page.keyboard.type("many0777")
        expect(page.get_by_role("region", name="Queries").locator("tbody tr")).to_have_count(1)
        page.goto(f"{url}/#/graph")
        expect(page.locator(".node").first).to_be_visible()
        assert page.locator(".node").count() <= 150
        page.goto(f"{url}/#/graph/many0777")
        expect(page.get_by_role("button", name=re.compile("many0777"))).to_be_visible()


def test_a_hidden_page_asks_nothing(page: Page, busy: str) -> None:
    asked: list[str] = []
    page.goto(f"{busy}/#/query/bids_in_euro")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    page.evaluate(
        """() => {
          Object.defineProperty(document, "visibilityState", { value: "hidden", configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }"""
    )
    expect(page.get_by_text("connecting")).to_be_visible()
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(2500)
    assert asked == []
    page.evaluate(
        """() => {
          Object.defineProperty(document, "visibilityState", { value: "visible", configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }"""
    )
    expect(page.get_by_text("live", exact=True)).to_be_visible()
