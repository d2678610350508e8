"""Pictures of every page, in both themes and on a phone, into docs/pictures/console (`make screenshots`)."""

from __future__ import annotations

import io
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from console.browser import LAPTOP, PHONE, browser  # noqa: E402
from console.demo import EXTRAS, auction, console_server  # noqa: E402

PAGES = {
    "overview": "#/overview",
    "graph": "#/graph",
    "graph-query": "#/graph/first_minute_bids",
    "query": "#/query/hot_items",
    "editor": "#/editor",
    "slices": "#/slices/first_minute_bids",
    "scheduling": "#/scheduling",
    "models": "#/models",
    "errors": "#/errors/bid",
    "settings": "#/settings",
}
WARM_UP_S = 30
DRAFT = """-- The dearest bids of each channel, every two seconds
CREATE QUERY dearest AS
  SELECT channel, max(price) AS highest, count(*) AS bids
  FROM bid [RANGE 10 SECONDS SLIDE 2 SECONDS]
  GROUP BY channel;"""


def take(folder: Path, only: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as home,
        browser() as chrome,
        console_server(Path(home), auction(400) + EXTRAS) as url,
    ):
        time.sleep(WARM_UP_S)
        looks = {
            theme: chrome.new_context(viewport=LAPTOP, color_scheme=theme) for theme in ("light", "dark")
        }
        looks["phone"] = chrome.new_context(viewport=PHONE)
        for look, context in looks.items():
            page = context.new_page()
            page.goto(url)
            page.evaluate("draft => sessionStorage.setItem('slicemill-draft', draft)", DRAFT)
            for name, place in PAGES.items():
                if not only or name in only:
                    page.goto(f"{url}/{place}")
                    page.wait_for_timeout(3500)
                    whole = name == "query" and look != "phone"  # its charts are below its results
                    _save(page.screenshot(full_page=whole), folder / f"{name}-{look}.png")
            page.close()


def _save(png: bytes, path: Path) -> None:
    """With 256 colours, the rare ones among them: pages are flat, and files stay small."""
    Image.open(io.BytesIO(png)).convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE).save(
        path, optimize=True
    )
    print(f"{path.name}: {path.stat().st_size // 1000} kB")


if __name__ == "__main__":
    take(ROOT / "docs" / "pictures" / "console", sys.argv[1:])
