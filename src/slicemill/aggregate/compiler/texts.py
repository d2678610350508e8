"""Dictionary encoding of texts, with removal of unused texts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.storage.codec import register

_FEW = 1024


class Texts:
    """Dictionary of texts; codes are list indexes, literals come first.

    The codes of literals never change.
    """

    def __init__(self, literals: Iterable[str]) -> None:
        self.values = list(literals)
        self._fixed = len(self.values)
        self._codes = {text: code for code, text in enumerate(self.values)}
        self._after_last = max(_FEW, self._fixed)

    def plain(self) -> dict[str, Any]:
        values = pa.array(self.values, pa.string())
        return {"values": values, "fixed": self._fixed, "after_last": self._after_last}

    @staticmethod
    def restored(plain: dict[str, Any]) -> Texts:
        made = Texts(plain["values"].to_pylist())
        made._fixed, made._after_last = plain["fixed"], plain["after_last"]
        return made

    def encode(self, column: pa.Array) -> NDArray[np.int64]:
        """Return the codes of a column; arbitrary for NULLs."""
        encoded = column.dictionary_encode()
        codes = np.array([self.code(text) for text in encoded.dictionary.to_pylist()], np.int64)
        places = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
        return codes[places] if len(codes) else np.zeros(len(column), np.int64)

    def code(self, text: str) -> int:
        code = self._codes.get(text)
        if code is None:
            code = self._codes[text] = len(self.values)
            self.values.append(text)
        return code

    def decode(self, codes: NDArray[np.int64], valid: NDArray[np.bool_] | None) -> pa.Array:
        places = pa.array(codes, mask=None if valid is None else ~valid)
        return pc.take(pa.array(self.values, pa.string()), places)

    def forget(self, fields: list[Any]) -> None:
        """Remove unused texts, and renumber the codes in these arrays.

        This happens only after the dictionary has doubled.
        """
        if len(self.values) < 2 * self._after_last:
            return
        held = [np.arange(self._fixed), *(field.ravel() for field in fields)]
        used = np.unique(np.concatenate(held))
        used = used[(used >= 0) & (used < len(self.values))]  # unused rows may contain any number
        new = np.zeros(len(self.values), np.int64)
        new[used] = np.arange(len(used))
        for field in fields:
            known = (field >= 0) & (field < len(new))
            field[...] = np.where(known, new[np.where(known, field, 0)], 0)
        self.values = [self.values[code] for code in used]
        self._codes = {text: code for code, text in enumerate(self.values)}
        self._after_last = max(_FEW, len(self.values))


register("uda.texts", 1, Texts, Texts.plain, Texts.restored)
