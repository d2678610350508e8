"""Mills for the console: real queries over generators, with workers in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slicemill.engine.mill import Mill
from slicemill.server.access import Access
from slicemill.server.network import Listening, serving
from slicemill.server.service import MillService
from support.engine import inline_pool

_EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MODELS = """
CREATE MODEL volatility(x REAL) AS sqrt(sum(x^2)/n - (sum(x)/n)^2);
CREATE QUERY price_volatility AS
  SELECT channel, volatility(price) OVER (PARTITION BY channel ROWS 99 PRECEDING) AS v FROM bid;
"""


def auction(rate: int = 250) -> str:
    """The auction example without end, and without its table, which Spark reads."""
    text = (_EXAMPLES / "auction.esl").read_text(encoding="utf-8")
    text = text.replace("rate=250&events=7500", f"rate={rate}")
    parts = [part for part in text.split(";\n") if "category AS C" not in part and "CREATE TABLE" not in part]
    return ";\n".join(parts)


@contextmanager
def console_server(home: Path, esl: str = "", *, port: int = 0, tokens: bool = False) -> Iterator[str]:
    """The URL of a server over a mill that runs; with tokens, those of its home count."""
    with Mill(home=home, pool=inline_pool(), cells=2) as mill:
        mill.restore()
        if esl:
            mill.execute(esl)
        mill.start()
        access = Access(home if tokens else None)
        with serving(MillService(mill), Listening(port=port), access) as url:
            yield url
