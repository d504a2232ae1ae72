"""What a graph stores: tensors described by where they come from, read only when written.

Nothing here holds a weight. The writer turns each description into bytes, one at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from assay.quantization import Grid

__all__ = [
    "ComputedInitializer",
    "FloatInitializer",
    "Initializer",
    "QuantizedMatrix",
    "QuantizedPart",
    "RowSource",
]


@dataclass(frozen=True)
class RowSource:
    """Rows of a checkpoint tensor, seen as a matrix [rows, inputs] (a vector as [rows, 1]).

    tensor: name in the file. path: the Hugging Face module path and parameter.
    rows: (start, stop) ranges in order. transposed: the file holds [inputs, rows].
    """

    tensor: str
    path: str
    rows: tuple[tuple[int, int], ...]
    transposed: bool = False

    @property
    def num_rows(self) -> int:
        """How many rows this source gives."""
        return sum(stop - start for start, stop in self.rows)


@dataclass(frozen=True)
class FloatInitializer:
    """A float tensor from the checkpoint: sources stacked by row, converted to `dtype`.

    offset: added in float32 before the conversion. transpose: stored as [inputs, rows].
    """

    name: str
    dtype: ir.DataType
    shape: tuple[int, ...]
    sources: tuple[RowSource, ...]
    offset: float = 0.0
    transpose: bool = False


@dataclass(frozen=True)
class ComputedInitializer:
    """A tensor computed at export: a rope table, a constant."""

    name: str
    dtype: ir.DataType
    shape: tuple[int, ...]
    array: np.ndarray[Any, Any] = field(compare=False, repr=False)

    @classmethod
    def from_array(cls, name: str, array: np.ndarray[Any, Any]) -> ComputedInitializer:
        """Describe an array; its dtype and shape become the tensor's."""
        return cls(name, ir.DataType.from_numpy(array.dtype), tuple(array.shape), array)


@dataclass(frozen=True)
class QuantizedMatrix:
    """A matrix [rows, inputs] rounded to a grid, stored as packed codes, scales, zero points.

    name: module path; the stored tensors hang below it. kind: `matmul` or `embedding` (or both
    uses of one tied table, which is an `embedding`).
    """

    name: str
    kind: str
    grid: Grid
    rows: int
    inputs: int
    sources: tuple[RowSource, ...]
    scale_dtype: ir.DataType

    @property
    def groups(self) -> int:
        """How many groups share a row."""
        return -(-self.inputs // self.grid.group_size)


@dataclass(frozen=True)
class QuantizedPart:
    """One of the stored tensors of a quantized matrix."""

    name: str
    dtype: ir.DataType
    shape: tuple[int, ...]
    matrix: QuantizedMatrix
    part: str  # "packed", "scales" or "zero_points"


Initializer = FloatInitializer | ComputedInitializer | QuantizedPart
