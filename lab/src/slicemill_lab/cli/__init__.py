"""The commands `slicemill lab` and `slicemill bench`, which the product finds as entry points."""

from __future__ import annotations

from enum import StrEnum


class Scale(StrEnum):
    """The values of --scale."""

    small = "small"
    full = "full"
