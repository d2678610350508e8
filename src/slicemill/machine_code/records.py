"""Records with fields as attributes in Python, as in machine code."""

from __future__ import annotations

from typing import Any

import numpy as np

_get, _set = np.void.__getitem__, np.void.__setitem__


class AttributeRecord(np.void):  # type: ignore[misc]
    """A row of a structured array. All attributes are fields."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        return _get(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _set(self, name, value)


def with_attributes(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return an equal dtype whose rows are `AttributeRecord`s."""
    return np.dtype((AttributeRecord, dtype))
