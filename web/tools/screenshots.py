"""Pictures of every page in both themes, into docs/pictures/console; `make screenshots` calls it."""

from __future__ import annotations

import io
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from console.browser import browser  # noqa: E402
from console.demo import MODELS, auction, console_server  # noqa: E402

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
DRAFT = """-- The dearest bids of each channel, twice a second
CREATE QUERY dearest AS
  SELECT channel, max(price) AS highest, count(*) AS bids
  FROM bid [RANGE 10 SECONDS SLIDE 2 SECONDS]
  GROUP BY channel;"""


def take(folder: Path, only: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as home,
        browser() as chrome,
        console_server(Path(home), auction(400) + MODELS) as url,
    ):
        time.sleep(WARM_UP_S)
        for theme in ("light", "dark"):
            page = chrome.new_page(viewport={"width": 1280, "height": 800}, color_scheme=theme)
            page.goto(url)
            page.evaluate("draft => sessionStorage.setItem('slicemill-draft', draft)", DRAFT)
            for name, place in PAGES.items():
                if not only or name in only:
                    page.goto(f"{url}/{place}")
                    page.wait_for_timeout(3500)
                    _save(page.screenshot(), folder / f"{name}-{theme}.png")
            page.close()
            if not only or "phone" in only:
                phone = chrome.new_page(viewport={"width": 390, "height": 800}, color_scheme=theme)
                phone.goto(url)
                phone.wait_for_timeout(2500)
                _save(phone.screenshot(), folder / f"phone-{theme}.png")
                phone.close()


def _save(png: bytes, path: Path) -> None:
    """With 128 colours: pages are flat, and files stay small."""
    Image.open(io.BytesIO(png)).convert("RGB").quantize(128, method=Image.Quantize.MAXCOVERAGE).save(
        path, optimize=True
    )
    print(f"{path.name}: {path.stat().st_size // 1000} kB")


if __name__ == "__main__":
    take(ROOT / "docs" / "pictures" / "console", sys.argv[1:])
