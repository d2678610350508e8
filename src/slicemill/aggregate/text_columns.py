"""listagg and string_agg: a window's texts are neighbours, so its value is a piece of one long text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from slicemill.aggregate.columns import History, Places, Rows, Windows, known


@dataclass(frozen=True, slots=True)
class Joined:
    separator: str

    def answers(self, rows: Rows, windows: Windows) -> pa.Array:
        return pa.array(self._texts(rows, windows), pa.string())

    def history(self, rows: Rows, partitions: Windows) -> History:
        texts = self._texts(rows, partitions)
        full = np.array([text is not None for text in texts], np.bool_)
        return History(
            partitions.starts[full], texts=pa.array([t for t in texts if t is not None], pa.string())
        )

    def _texts(self, rows: Rows, windows: Windows) -> list[str | None]:
        valid = known(rows.arguments[0])
        before: Places = np.concatenate([np.zeros(1, np.int64), np.cumsum(valid)])
        texts = [text for text in rows.arguments[0].to_pylist() if text is not None]
        joined, step = self.separator.join(texts), len(self.separator)
        lengths = np.array([len(text) + step for text in texts], np.int64)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        firsts, lasts = before[windows.starts], before[windows.ends]
        begins, ends = offsets[firsts].tolist(), (offsets[lasts] - step).tolist()
        full = (lasts > firsts).tolist()
        return [joined[b:e] if some else None for b, e, some in zip(begins, ends, full, strict=True)]
