"""Engines for the console: real queries over generators, with workers in this process."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slicemill.api.mill import Mill
from slicemill.server.auth import Access
from slicemill.server.network import ServerSockets, serving
from slicemill.server.service import MillService
from support.engine import inline_pool

_EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
EXTRAS = """
CREATE MODEL volatility(x REAL) AS sqrt(sum(x^2)/n - (sum(x)/n)^2);
CREATE QUERY price_volatility AS
  SELECT channel, volatility(price) OVER (PARTITION BY channel ROWS 99 PRECEDING) AS v FROM bid;
CREATE QUERY first_bids AS
  SELECT A.id, A.item, B.price FROM auction AS A, bid AS B WHERE A.id = B.auction WINDOW 10 SECONDS;
CREATE QUERY quick_bids AS
  SELECT A.id, A.seller, B.price FROM auction AS A, bid AS B WHERE A.id = B.auction WINDOW 3 SECONDS;
CREATE QUERY strict WITH (slo = 'p99 < 1 ms') AS SELECT auction, price FROM bid WHERE price > 900000;
CREATE QUERY runs_of_channels WITH (memory = '60 tuples') AS
  SELECT S.channel, VALID(S) FROM bid(channel) AS S RANGE 20 SECONDS SLIDES 5 SECONDS;
CREATE ALERT bids_stopped ON bid WHEN silence > INTERVAL 1 MINUTE WEBHOOK 'https://example.org/alerts';
"""


def auction(rate: int = 250) -> str:
    """Return the auction example without end, and without its table, which Spark reads."""
    text = (_EXAMPLES / "auction.esl").read_text(encoding="utf-8")
    text = text.replace("rate=250", f"rate={rate}")
    parts = [part for part in text.split(";\n") if "category AS C" not in part and "CREATE TABLE" not in part]
    return ";\n".join(parts)


def thousand() -> str:
    """Return a script of a thousand queries over one stream."""
    bids = auction(20).split(";\n")[2]
    queries = (f"CREATE QUERY many{n:04} AS SELECT auction FROM bid WHERE price > {n}" for n in range(1000))
    return ";\n".join((bids, *queries))


@contextmanager
def console_server(home: Path, esl: str = "", *, port: int = 0, tokens: bool = False) -> Iterator[str]:
    """Yield the URL of a server over a running engine; with `tokens`, those of its home directory apply."""
    with Mill(home=home, pool=inline_pool(), subtasks=2) as mill:
        if esl:
            mill.execute(esl)
        mill.restore()
        mill.start()
        access = Access(home if tokens else None)
        with serving(MillService(mill), ServerSockets(port=port), access) as url:
            yield url


if __name__ == "__main__":  # Run in a separate process: print the address, then work until a signal.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with console_server(Path(sys.argv[1]), auction(50)) as address:
        print(address, flush=True)
        signal.pause()
