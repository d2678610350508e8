"""listagg and string_agg: the texts of a window, joined in arrival order."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa

from slicemill.aggregate.columns import History, Places, Rows, Windows, known
from slicemill.aggregate.inwindow import Args


class JoinedTexts:
    """Joined texts. The separator is the constant second argument, by default empty."""

    __slots__ = ("_separator", "_texts")

    def __init__(self) -> None:
        self._separator = ""
        self._texts: deque[str] = deque()

    def add(self, args: Args) -> None:
        if len(args) > 1:
            self._separator = cast(str, args[1])
        if args[0] is not None:
            self._texts.append(cast(str, args[0]))

    def remove(self, args: Args) -> None:
        if args[0] is not None:
            self._texts.popleft()

    def value(self) -> object:
        return self._separator.join(self._texts) if self._texts else None

    def state(self) -> object:
        return self._separator, self._texts

    def restore(self, state: Any) -> None:
        self._separator, self._texts = state


@dataclass(frozen=True, slots=True)
class ColumnTexts:
    """Joined texts over columns.

    The texts of a window are contiguous, so each value is a slice of one long text.
    """

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
