"""Commands `slicemill lab` and `slicemill bench`, registered as entry points of the product."""

from __future__ import annotations

from enum import StrEnum


class Scale(StrEnum):
    """Values of the option --scale."""

    small = "small"
    full = "full"
