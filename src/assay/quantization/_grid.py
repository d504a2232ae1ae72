"""The grid a weight is rounded to, and the arrays that hold the rounded weight.

Shapes: O outputs (rows), G groups a row, B bytes a group, Z bytes of zero points a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from assay.errors import OptionError

__all__ = ["GROUP_SIZES", "WIDTHS", "Array", "Grid", "QuantizedRows", "allocate_rows"]

Array = npt.NDArray[Any]

WIDTHS = (4, 8)
GROUP_SIZES = (16, 32, 64, 128, 256)


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The values a group of weights can take: (code - zero_point) * scale.

    symmetric: the zero point is the middle code (8 or 128) and the scale is signed, so that the
    group's largest value lands on code 0, the end with one step more. Otherwise the zero point is
    stored and the scale is positive.
    Raises OptionError when bits or group_size isn't one that MatMulNBits computes on every EP.
    """

    bits: int
    group_size: int
    symmetric: bool

    def __post_init__(self) -> None:
        if self.bits not in WIDTHS:
            raise OptionError(
                "bits",
                f"{self.bits} is not a width that we quantize to",
                expected=_enumerate(WIDTHS),
                next_step="Use 4 or 8, or keep the layer in float.",
            )
        if self.group_size not in GROUP_SIZES:
            raise OptionError(
                "group_size",
                f"{self.group_size} is not a group size of the runtime",
                expected=_enumerate(GROUP_SIZES),
                next_step="Use 32 for accuracy or 128 for size.",
            )

    @property
    def middle(self) -> int:
        """The code in the middle: the implied zero point of a symmetric grid."""
        return 1 << (self.bits - 1)

    @property
    def group_bytes(self) -> int:
        """Bytes that a group's codes take."""
        return self.group_size * self.bits // 8

    def count_groups(self, inputs: int) -> int:
        """Groups in a row of `inputs` weights, the partial last one included."""
        return -(-inputs // self.group_size)


class QuantizedRows(NamedTuple):
    """A quantized weight, laid out as MatMulNBits reads it.

    packed: uint8 [O, G, B], low nibble first; codes past the last input decode to 0.
    scales: float32 [O, G], signed when the grid is symmetric.
    zero_points: uint8 [O, Z] packed like the codes, or None when the grid is symmetric. With an
    odd number of 4-bit groups the last high nibble is unused (it holds 8, as onnxruntime's does).
    """

    packed: Array
    scales: Array
    zero_points: Array | None


def allocate_rows(rows: int, inputs: int, grid: Grid) -> QuantizedRows:
    """Make room for a quantized weight of [rows, inputs]; the contents are undefined."""
    assert rows >= 0, rows
    assert inputs > 0, inputs
    groups = grid.count_groups(inputs)
    zero_point_bytes = -(-groups * grid.bits // 8)
    return QuantizedRows(
        packed=np.empty((rows, groups, grid.group_bytes), np.uint8),
        scales=np.empty((rows, groups), np.float32),
        zero_points=None if grid.symmetric else np.empty((rows, zero_point_bytes), np.uint8),
    )


def _enumerate(values: tuple[int, ...]) -> str:
    return ", ".join(str(value) for value in values[:-1]) + f" or {values[-1]}"
