"""Points in time: microseconds since 1970 as integers, between a beginning and an end."""

from __future__ import annotations

import time

# No timestamp is later: an input whose watermark is here has ended.
END = 2**63 - 1
# No timestamp is earlier: an input whose watermark is here has said nothing so far.
BEGINNING = -END

US = 1_000_000


def wall_clock_us() -> int:
    return time.time_ns() // 1000
