"""Queries of examples/nexmark in one script, and the events that they read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from slicemill.connectors.generators import nexmark
from slicemill.connectors.generators.generator import generator_of

FOLDER = Path("examples/nexmark")
NAMES = tuple(f"q{number:02}" for number in range(24))
# A stream whose bids get their timestamp on arrival.
ARRIVING = "arriving_bid"


def script(root: Path, names: Sequence[str] = NAMES) -> str:
    """Return a script of some queries.

    Shared declarations are written once; blank lines separate statements.
    """
    texts = ((root / FOLDER / f"{name}.esl").read_text() for name in names)
    statements = (part.strip() for text in texts for part in text.split("\n\n"))
    return "\n\n".join(dict.fromkeys(statements))


def event_tables(first: int, last: int, rate: float, start_us: int = 0) -> dict[str, pa.Table]:
    """Return the rows of each stream for events with first <= n < last."""
    options = {"rate": str(rate), "start": str(start_us)}
    tables = {
        stream: generator_of("nexmark", {**options, "stream": stream}).rows(first, last)[0]
        for stream in nexmark.STREAMS
    }
    return {**tables, ARRIVING: tables["bid"].select(["auction", "bidder", "price"])}
