"""Float to float: bfloat16, float16, float32 and float8 weights in, three of them out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from assay.errors import WeightError
from assay.quantization._chunks import (
    BFLOAT16,
    CHUNK_WEIGHTS,
    FLOAT16,
    FLOAT32,
    check_dtype,
    read_bits,
    run,
)
from assay.quantization._grid import Array

__all__ = ["convert_rows"]

_EXPONENTS = {BFLOAT16: 0x7F80, FLOAT16: 0x7C00, FLOAT32: 0x7F800000}


def convert_rows(
    weight: Array,
    dtype: npt.DTypeLike,
    *,
    out: Array | None = None,
    num_threads: int | None = None,
    name: str = "weight",
) -> Array:
    """Convert a weight of any shape to float32, float16 or bfloat16, rounding to nearest even.

    weight: C-contiguous bfloat16, float16, float32 or float8 (whose scales are the caller's).
    out: C-contiguous, of the weight's shape and the dtype; filled and returned. A fresh array
    costs more than the conversion (its pages), so reuse one for many weights.
    Returns the weight itself, uncopied, when it has the dtype already and `out` isn't given.
    Raises WeightError when the weight's dtype is another, when it holds a NaN or an infinity, or
    when a value overflows the target. name: for the message.
    """
    from assay.quantization import kernels

    target_dtype: np.dtype[np.generic] = np.dtype(dtype)
    check_dtype(weight.dtype, name)
    assert target_dtype in _EXPONENTS, target_dtype
    assert weight.flags.c_contiguous, "weights are converted in memory order"
    if out is None:
        same = weight.dtype == target_dtype
        out = weight if same else np.empty(weight.shape, target_dtype)
    assert out.shape == weight.shape, out.shape
    assert out.dtype == target_dtype, out.dtype
    assert out.flags.c_contiguous
    source, target = weight.reshape(-1), out.reshape(-1)

    def find_nonfinite(bits: Array, is_half: bool) -> int:
        kind = FLOAT16 if is_half else FLOAT32 if bits.itemsize == 4 else BFLOAT16
        fault: int = kernels.find_nonfinite(bits, _EXPONENTS[kind])
        return fault

    def convert(first: int, last: int) -> int:
        bits, is_half = read_bits(source[first:last])
        fault = find_nonfinite(bits, is_half)
        if fault < 0 and out is not weight:
            results = target[first:last]
            _convert_bits(bits, is_half, results)
            fault = find_nonfinite(*read_bits(results))
        return first + fault if fault >= 0 else -1

    fault = run(convert, source.size, size=CHUNK_WEIGHTS // 4, num_threads=num_threads)
    if fault >= 0:
        raise _describe_fault(weight, fault, target_dtype, name)
    return out


def _convert_bits(bits: Array, is_half: bool, target: Array) -> None:
    from assay.quantization import kernels

    if target.dtype == FLOAT32:
        kernels.widen(bits, is_half, target)
        return
    if bits.itemsize == 2:
        if is_half == (target.dtype == FLOAT16):
            target.view(np.uint16)[:] = bits
            return
        values = np.empty(bits.size, np.float32)
        kernels.widen(bits, is_half, values)
        bits, _ = read_bits(values)
    kernels.narrow(bits, target.dtype == FLOAT16, target.view(np.uint16))


def _describe_fault(
    weight: Array, index: int, dtype: np.dtype[np.generic], name: str
) -> WeightError:
    value = float(weight.reshape(-1)[index])
    place = ", ".join(str(axis) for axis in np.unravel_index(index, weight.shape))
    found = f"the value at [{place}] is {value:.6g}"
    if not np.isfinite(value):
        return WeightError(
            name,
            found,
            expected="finite weights",
            next_step="The checkpoint is damaged: fetch it again and compare its hash.",
        )
    limit = 65504.0 if dtype == FLOAT16 else 3.3895314e38
    return WeightError(
        name,
        f"{found}, which {dtype} can't hold",
        expected=f"magnitudes of at most {limit:.6g}",
        next_step="Keep this tensor in float32"
        + (", or in bfloat16 where the execution provider has it." if dtype == FLOAT16 else "."),
    )
