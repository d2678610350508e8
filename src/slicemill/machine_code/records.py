"""Records whose fields Python reads and writes as attributes, as machine code does."""

from __future__ import annotations

from typing import Any

import numpy as np

_get, _set = np.void.__getitem__, np.void.__setitem__


class AttributeRecord(np.void):  # type: ignore[misc]
    """A row of an array: every attribute is a field, whatever its name."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        return _get(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _set(self, name, value)


def with_attributes(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A dtype, equal to the given one, whose rows are `AttributeRecord`s."""
    return np.dtype((AttributeRecord, dtype))
