"""Round-to-nearest over rows: float weight in, MatMulNBits bytes out, and back.

Shapes: O outputs (rows), I inputs, G groups a row, B bytes a group, Z zero-point bytes a row.
"""

from __future__ import annotations

import math

import numpy as np

from assay.errors import WeightError
from assay.quantization._chunks import CHUNK_WEIGHTS, FLOAT32, check_dtype, read_bits, run
from assay.quantization._grid import Array, Grid, QuantizedRows, allocate_rows

__all__ = ["dequantize_rows", "quantize_rows", "weight_error"]


def quantize_rows(
    weight_OI: Array,
    grid: Grid,
    *,
    out: QuantizedRows | None = None,
    num_threads: int | None = None,
    name: str = "weight",
) -> QuantizedRows:
    """Round a weight to the grid, one scale per row and group of inputs.

    weight_OI: C-contiguous bfloat16, float16, float32 or float8, read where it lies; `I` may end
    in a partial group. Codes, scales and zero points are those of onnxruntime's own quantizer.
    out: arrays as from `allocate_rows`, filled and returned. name: for the message of an error.
    Raises WeightError when the dtype is another, or a row holds a NaN or an infinity.
    """
    _check_weight(weight_OI, name)
    rows, inputs = weight_OI.shape
    target = allocate_rows(rows, inputs, grid) if out is None else out
    _assert_layout(target, rows, inputs, grid)

    def quantize(first: int, last: int) -> int:
        fault = _quantize_bits(*read_bits(weight_OI[first:last]), grid, target, first)
        return first + fault if fault >= 0 else -1

    row = run(quantize, rows, size=_rows_a_chunk(inputs), num_threads=num_threads)
    if row >= 0:
        raise _describe_row(row, name)
    return target


def dequantize_rows(
    quantized: QuantizedRows, inputs: int, grid: Grid, *, num_threads: int | None = None
) -> Array:
    """Decode to float32 [O, inputs]: (code - zero_point) * scale, as the runtime does."""
    rows = len(quantized.packed)
    _assert_layout(quantized, rows, inputs, grid)
    target_OI = np.empty((rows, inputs), np.float32)

    def dequantize(first: int, last: int) -> int:
        _dequantize_rows(quantized, grid, target_OI[first:last], first)
        return -1

    run(dequantize, rows, size=_rows_a_chunk(inputs), num_threads=num_threads)
    return target_OI


def weight_error(
    weight_OI: Array, grid: Grid, *, num_threads: int | None = None, name: str = "weight"
) -> float:
    """relL2 of the weight rounded to the grid: ||decoded - original|| / ||original||.

    Streams over rows, so that memory stays at some MB whatever the weight's size. Sums are
    float64. A weight of zeros has error 0. Raises WeightError as `quantize_rows` does.
    """
    from assay.quantization import kernels

    _check_weight(weight_OI, name)
    rows, inputs = weight_OI.shape
    sums: list[tuple[float, float]] = []  # squared errors and squared weights of each chunk

    def measure(first: int, last: int) -> int:
        bits_OI, is_half = read_bits(weight_OI[first:last])
        quantized = allocate_rows(last - first, inputs, grid)
        fault = _quantize_bits(bits_OI, is_half, grid, quantized, 0)
        if fault >= 0:
            return first + fault
        decoded_OI = np.empty((last - first, inputs), np.float32)
        _dequantize_rows(quantized, grid, decoded_OI, 0)
        errors_I, norms_I = np.zeros((2, inputs))
        kernels.sum_squares(bits_OI, is_half, _read_only(decoded_OI), errors_I, norms_I)
        sums.append((float(errors_I.sum()), float(norms_I.sum())))
        return -1

    row = run(measure, rows, size=max(1, _rows_a_chunk(inputs) // 4), num_threads=num_threads)
    if row >= 0:
        raise _describe_row(row, name)
    error, norm = (math.fsum(parts) for parts in zip(*sums, strict=True)) if sums else (0.0, 0.0)
    return math.sqrt(error / norm) if norm else 0.0


def _check_weight(weight_OI: Array, name: str) -> None:
    check_dtype(weight_OI.dtype, name)
    assert weight_OI.ndim == 2, weight_OI.shape
    assert weight_OI.flags.c_contiguous, "weights are quantized row by row: make them C-contiguous"


def _describe_row(row: int, name: str) -> WeightError:
    return WeightError(
        name,
        f"row {row} holds a NaN or an infinity",
        expected="finite weights",
        next_step="The checkpoint is damaged: fetch it again and compare its hash.",
    )


def _quantize_bits(
    bits_OI: Array, is_half: bool, grid: Grid, target: QuantizedRows, first: int
) -> int:
    """Fill target's rows from `first` on; the first bad row of bits_OI, or -1."""
    from assay.quantization import kernels

    rows = slice(first, first + len(bits_OI))
    fault: int = kernels.quantize(
        bits_OI,
        is_half,
        grid.middle,
        grid.symmetric,
        target.packed[rows],
        target.scales[rows],
        _read_zero_points(target)[rows],
    )
    return fault


def _dequantize_rows(quantized: QuantizedRows, grid: Grid, target_OI: Array, first: int) -> None:
    """Fill target_OI from the rows from `first` on."""
    from assay.quantization import kernels

    rows = slice(first, first + len(target_OI))
    kernels.dequantize(
        _read_only(quantized.packed[rows]),
        _read_only(quantized.scales[rows]),
        _read_only(_read_zero_points(quantized)[rows]),
        grid.middle,
        target_OI,
    )


def _rows_a_chunk(inputs: int) -> int:
    return max(1, CHUNK_WEIGHTS // inputs)


def _read_zero_points(quantized: QuantizedRows) -> Array:
    """Zero points as the kernels take them: [O, 0] when there are none."""
    if quantized.zero_points is None:
        return np.empty((len(quantized.packed), 0), np.uint8)
    return quantized.zero_points


def _read_only(array: Array) -> Array:
    view: Array = array.view()
    view.flags.writeable = False
    return view


def _assert_layout(quantized: QuantizedRows, rows: int, inputs: int, grid: Grid) -> None:
    groups = grid.count_groups(inputs)
    packed, scales, zero_points = quantized
    assert packed.shape == (rows, groups, grid.group_bytes), packed.shape
    assert scales.shape == (rows, groups), scales.shape
    assert packed.dtype == np.uint8, packed.dtype
    assert scales.dtype == FLOAT32, scales.dtype
    assert packed.flags.c_contiguous
    assert scales.flags.c_contiguous
    assert (zero_points is None) == grid.symmetric, "zero points come with asymmetric grids"
    if zero_points is not None:
        assert zero_points.shape == (rows, -(-groups * grid.bits // 8)), zero_points.shape
        assert zero_points.dtype == np.uint8, zero_points.dtype
        assert zero_points.flags.c_contiguous
