"""Options of a TCP source: `tcp://host:port?patience=60`.

`host`, `port`, `lines` (json, csv or either: decided for each line), `patience` (seconds until a sender that
never answered is an error; 0: wait for ever), `maxBytesPerTrigger`, `maxSpoolBytes` (above it the sender has
to wait), and the options of CSV.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from slicemill.errors import SlicemillError
from slicemill.ingest.formats.line_parser import EITHER

_CSV = frozenset({"sep", "delimiter", "quote", "escape", "comment", "nullvalue"})
_OWN = frozenset({"host", "port", "lines", "patience", "maxbytespertrigger", "maxspoolbytes"})


@dataclass(frozen=True, slots=True)
class TcpOptions:
    host: str
    port: int
    lines: str
    patience_s: float
    max_trigger_bytes: int
    max_spool_bytes: int


def tcp_options(given: Mapping[str, str]) -> TcpOptions:
    """Check the options of a declaration; names are case-insensitive."""
    options = {key.lower(): str(value) for key, value in given.items()}
    missing = [name for name in ("host", "port") if not options.get(name)]
    if missing:
        raise SlicemillError(f"a TCP source needs the option {missing[0]}")
    unknown = options.keys() - _OWN - _CSV
    if unknown:
        raise SlicemillError(
            f"a TCP source has no option {', '.join(sorted(unknown))}; it has {', '.join(sorted(_OWN))}"
        )
    patience_s = _number(options, "patience", "30")
    return TcpOptions(
        host=options["host"],
        port=_port(options["port"]),
        lines=options.get("lines", EITHER),
        patience_s=patience_s if patience_s > 0 else math.inf,
        max_trigger_bytes=int(_number(options, "maxbytespertrigger", str(64 << 20))),
        max_spool_bytes=int(_number(options, "maxspoolbytes", str(256 << 20))),
    )


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65_536:
        raise SlicemillError(f"a TCP port is a number from 1 to 65535, not {text!r}")
    return int(text)


def _number(options: Mapping[str, str], name: str, default: str) -> float:
    text = options.get(name, default)
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < math.inf:
        raise SlicemillError(f"a TCP source's option {name} is a number of 0 or more, not {text!r}")
    return number
