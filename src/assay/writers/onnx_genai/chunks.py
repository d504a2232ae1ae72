"""A stored tensor's rows in pieces that are read, converted and written independently."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.blocks.initializers import RowSource
from assay.checkpoint import Checkpoint

__all__ = ["Chunk", "plan_chunks"]

Array = np.ndarray[Any, np.dtype[Any]]
Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Chunk:
    """Some rows of one source. first_row: where they stand in the stacked target."""

    source: RowSource
    ranges: Ranges
    first_row: int

    @property
    def name(self) -> str:
        """What to call the rows, so that "row 3" of them is found in the file."""
        tensor = self.source.tensor
        what = f"{tensor} (transposed)" if self.source.transposed else tensor
        if len(self.ranges) > 1:
            first, last = self.ranges[0][0], self.ranges[-1][1]
            return f"{what}, rows {first:,} to {last:,} in parts, counted from 0"
        start, stop = self.ranges[0]
        return what if start == 0 else f"{what}, rows {start:,} to {stop:,} counted from 0"

    def read(self, checkpoint: Checkpoint) -> Array:
        """The rows [rows, inputs], C-contiguous, as the file has them."""
        tensor = self.source.tensor
        if self.source.transposed:
            whole = checkpoint.read(tensor).T
            parts = [np.ascontiguousarray(whole[start:stop]) for start, stop in self.ranges]
        else:
            read = (checkpoint.read_rows(tensor, start, stop) for start, stop in self.ranges)
            parts = [rows.reshape(rows.shape[0], -1) for rows in read]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def plan_chunks(
    checkpoint: Checkpoint, sources: tuple[RowSource, ...], num_elements: int
) -> list[Chunk]:
    """Cut sources into chunks of about num_elements; a transposed one is read whole."""
    chunks: list[Chunk] = []
    row = 0
    for source in sources:
        for ranges in _cut(checkpoint, source, num_elements):
            chunks.append(Chunk(source, ranges, row))
            row += sum(stop - start for start, stop in ranges)
    return chunks


def _cut(checkpoint: Checkpoint, source: RowSource, num_elements: int) -> Iterator[Ranges]:
    if source.transposed:
        yield source.rows
        return
    columns = math.prod(checkpoint.tensors[source.tensor].shape[1:])
    step = max(1, num_elements // columns)
    pending: list[tuple[int, int]] = []
    for start, stop in source.rows:
        for first in range(start, stop, step):
            pending.append((first, min(stop, first + step)))
            if sum(last - first for first, last in pending) >= step:
                yield tuple(pending)
                pending = []
    if pending:
        yield tuple(pending)
