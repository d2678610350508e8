"""Entries beside chunks: panes that the tasks which store rows have made of them (`plan.early_panes`).

Which ones they should make stands in a file beside the log. Tasks look at it for every chunk that they write,
since queries come and go, and what pays changes, while a stream is read. A chunk says which entries it has:
a unit whose recipe is among those of all chunks of a run reads entries, else it reads rows. Both lead to the
same state and results, so that nothing depends on when the file was changed.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from slicemill.engine.steps.early import reduction_of
from slicemill.engine.steps.shared_windows import Early
from slicemill.esl.types import Schema
from slicemill.kernels.panes.early import Reduction
from slicemill.plan.early_panes import Recipe
from slicemill.storage.chunk import ChunkInfo, open_beside, write_beside
from slicemill.storage.files import LOCAL, write_whole
from slicemill.storage.log_epoch import Epoch

RECIPES = "recipes"


def want_panes(folder: Path, recipes: Sequence[Recipe]) -> None:
    """Say which entries should be made of the chunks of a log that are written from now on."""
    write_whole(LOCAL, folder / RECIPES, pickle.dumps(tuple(recipes)))


def add_panes(folder: Path, chunk: ChunkInfo, rows: pa.Table, schema: Schema) -> ChunkInfo:
    """Make the entries of a new chunk of a log that are wanted; the chunk with a note of them."""
    try:
        wanted = _reductions(LOCAL.read(folder / RECIPES), schema)
    except FileNotFoundError:
        return chunk
    for recipe, digest, reduction in wanted:
        # A recipe may be newer than the reader, which then does not store all columns that it needs.
        entries = _entries(reduction, rows) if recipe.columns.issubset(rows.column_names) else None
        if entries is not None:
            chunk = write_beside(folder, chunk, digest, entries)
    return chunk


# A worker stores chunks of the same streams again and again.
@lru_cache(maxsize=100)
def _reductions(content: bytes, schema: Schema) -> list[tuple[Recipe, str, Reduction]]:
    recipes: tuple[Recipe, ...] = pickle.loads(content)
    return [(recipe, recipe.digest, reduction_of(recipe, schema)) for recipe in recipes]


def _entries(reduction: Reduction, rows: pa.Table) -> pa.Table | None:
    try:
        return reduction.entries(rows)
    except (OSError, MemoryError):
        raise  # the machine's fault: the task is tried again
    except Exception:  # whatever it is, the unit meets it as well, and stops its query and no other
        return None


def have_panes(epochs: Iterable[Epoch], recipe: str) -> bool:
    """Have all chunks of some epochs entries by a recipe?"""
    return all(recipe in chunk.panes for epoch in epochs for chunk in epoch.chunks if chunk.rows)


def read_panes(folder: Path, epochs: Iterable[Epoch], recipe: str) -> Early:
    """The entries of all chunks of some epochs, in their order, and when these arrived."""
    return [
        (open_beside(folder, chunk, recipe), epoch.arrival_us)
        for epoch in epochs
        for chunk in epoch.chunks
        if chunk.rows
    ]
