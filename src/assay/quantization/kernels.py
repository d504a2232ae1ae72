"""Compiled loops over rows: round, decode, widen and narrow.

Importing this module imports numba, so the room does it on first use. Every kernel releases the
GIL and works on the rows it is given: threads are the caller's. All kernels live in this one file
because numba's cache notices a change only in the file of the function it compiled.

Float weights arrive as their bits: uint16 (bfloat16, or float16 when `is_half`) or uint32
(float32). Inner loops run to the end of an array axis, without literal trip counts: LLVM turns
those into vector code, and unrolls the others into scalar code six times slower.

Shapes: O outputs (rows), I inputs, G groups a row, S group size, B bytes a group, Z zero-point
bytes a row.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from assay.quantization._grid import Array

__all__ = [
    "dequantize",
    "find_nonfinite",
    "narrow",
    "quantize",
    "sum_squares",
    "widen",
]

_SIGN = np.int32(0x7FFFFFFF)
_INFINITY = np.int32(0x7F800000)
# The largest float32 below one half: x + this, truncated, rounds x >= 0 half away from zero.
_HALF = np.float32(0.49999997)
# The smallest step whose reciprocal is finite.
_TINY = np.float32(2.0**-127)


_OPTIONS = {"nogil": True, "error_model": "numpy", "cache": True}


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile on first call, and keep the machine code on disk where there is a place for it.

    numba takes NUMBA_CACHE_DIR, then our __pycache__, then the user's cache folder, and raises
    RuntimeError when none can be written: then each process compiles anew.
    """
    try:
        return numba.njit(**_OPTIONS)(function)  # type: ignore[no-any-return]
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        warnings.warn(
            "compiled kernels can't be kept: set NUMBA_CACHE_DIR to save seconds in each run",
            RuntimeWarning,
            stacklevel=2,
        )
        _OPTIONS["cache"] = False
        return numba.njit(**_OPTIONS)(function)  # type: ignore[no-any-return]


@_compiled
def widen(source: Array, is_half: bool, target: Array) -> None:
    """Decode float bits [n] into float32 [n or more], exactly; the rest of target stays."""
    bits = target.view(np.uint32)
    if source.itemsize == 4:
        for i in range(source.size):
            bits[i] = source[i]
    elif is_half:
        for i in range(source.size):
            magnitude = np.uint32(source[i] & np.uint16(0x7FFF))
            sign = np.uint32(source[i] & np.uint16(0x8000)) << np.uint32(16)
            subnormal = np.float32(np.int32(magnitude)) * np.float32(2.0**-24)
            tiny = np.float32(subnormal).view(np.uint32)
            shift = np.uint32(0x70000000 if magnitude >= 0x7C00 else 0x38000000)
            normal = (magnitude << np.uint32(13)) + shift
            bits[i] = sign | (tiny if magnitude < 0x400 else normal)
    else:
        for i in range(source.size):
            bits[i] = np.uint32(source[i]) << np.uint32(16)


@_compiled
def narrow(source: Array, is_half: bool, target: Array) -> None:
    """Round float32 bits [n] to nearest even: float16 bits when is_half, else bfloat16 bits.

    What overflows becomes an infinity; NaN is not handled.
    """
    if is_half:
        for i in range(source.size):
            magnitude = source[i] & np.uint32(0x7FFFFFFF)
            sign = (source[i] >> np.uint32(16)) & np.uint32(0x8000)
            rounded = magnitude + np.uint32(0xFFF) + ((magnitude >> np.uint32(13)) & np.uint32(1))
            normal = (rounded - np.uint32(0x38000000)) >> np.uint32(13)
            # Beside 0.5 a float32 has exactly the resolution of a subnormal float16.
            shifted = np.uint32(magnitude).view(np.float32) + np.float32(0.5)
            tiny = np.float32(shifted).view(np.uint32) - np.uint32(0x3F000000)
            code = tiny if magnitude < np.uint32(0x38800000) else normal
            code = np.uint32(0x7C00) if rounded >= np.uint32(0x47800000) else code
            target[i] = np.uint16(sign | code)
    else:
        for i in range(source.size):
            odd = (source[i] >> np.uint32(16)) & np.uint32(1)
            target[i] = np.uint16((source[i] + np.uint32(0x7FFF) + odd) >> np.uint32(16))


@_compiled
def find_nonfinite(source: Array, exponent: int) -> int:
    """Index of the first of [n] float bits whose exponent bits are all set, or -1."""
    mask = source.dtype.type(exponent)
    found = 0
    for i in range(source.size):
        found |= (source[i] & mask) == mask
    if found:
        for i in range(source.size):
            if (source[i] & mask) == mask:
                return i
    return -1


@_compiled
def _order_key(bits: int) -> Any:
    """Map float32 bits to an int32 of the same order, and back (it is its own inverse)."""
    return np.int32(bits ^ ((bits >> np.int32(31)) & _SIGN))


@_compiled
def _fit_groups(
    lows_G: Array,
    highs_G: Array,
    middle: int,
    symmetric: bool,
    scales_G: Array,
    reciprocals_G: Array,
    zero_points_G: Array,
) -> bool:
    """Choose each group's scale and zero point from the keys of its least and greatest value.

    The formulas are those of onnxruntime's MLAS (q4_dq.cpp, range2scale and range2scalezp), and
    so are their float32 roundings. Two cases go wrong there and are mended here: a step so small
    that its reciprocal is infinite, and a range so wide that high - low is.
    Returns False when a key is that of a NaN or an infinity.
    """
    one, zero = np.float32(1), np.float32(0)
    half, top = np.float32(middle), np.float32(2 * middle - 1)
    finite = True
    for group in range(scales_G.size):
        low_key, high_key = lows_G[group], highs_G[group]
        finite &= (high_key < _INFINITY) & (low_key >= -_INFINITY)
        low = np.int32(_order_key(low_key)).view(np.float32)
        high = np.int32(_order_key(high_key)).view(np.float32)
        if symmetric:
            scale = -(high if abs(high) > abs(low) else low) / half
        else:
            low, high = min(low, zero), max(high, zero)
            scale = (high - low) / top
            scale = high / top - low / top if np.isinf(scale) else scale
        if np.isinf(one / scale) and scale != zero:
            scale = _TINY if scale > zero else -_TINY
        reciprocal = zero if scale == zero else one / scale
        scales_G[group] = scale
        reciprocals_G[group] = reciprocal
        zero_point = half
        if not symmetric:
            zero_point = zero if scale == zero else min(-low / scale, top) + _HALF
        zero_points_G[group] = np.uint8(np.int32(zero_point))
    return finite


@_compiled
def _pack(codes: Array, middle: int, packed: Array) -> None:
    """Store codes (uint8, one each) as bytes: two a byte, low nibble first, when middle is 8."""
    if middle == 8:
        for i in range(packed.size):
            packed[i] = codes[2 * i] | (codes[2 * i + 1] << np.uint8(4))
    else:
        for i in range(packed.size):
            packed[i] = codes[i]


@_compiled
def _unpack(packed: Array, middle: int, codes: Array) -> None:
    """Undo `_pack`."""
    if middle == 8:
        for i in range(packed.size):
            codes[2 * i] = packed[i] & np.uint8(15)
            codes[2 * i + 1] = packed[i] >> np.uint8(4)
    else:
        for i in range(packed.size):
            codes[i] = packed[i]


@_compiled
def quantize(
    source_OI: Array,
    is_half: bool,
    middle: int,
    symmetric: bool,
    packed_OGB: Array,
    scales_OG: Array,
    zero_points_OZ: Array,
) -> int:
    """Round a weight, given as float bits, to the nearest codes.

    middle: 8 or 128. zero_points_OZ isn't touched when symmetric.
    Returns the first row that holds a NaN or an infinity (rows after it are left undone), or -1.
    """
    groups = scales_OG.shape[1]
    group_size = packed_OGB.shape[2] * (2 if middle == 8 else 1)
    top = np.float32(2 * middle - 1)
    values = np.zeros(groups * group_size, np.float32)
    values_GS = values.reshape(groups, group_size)
    bits_GS = values_GS.view(np.int32)
    codes_GS = np.empty((groups, group_size), np.uint8)
    lows_G, highs_G = np.empty(groups, np.int32), np.empty(groups, np.int32)
    reciprocals_G = np.empty(groups, np.float32)
    zero_points_G = np.empty(groups + 1, np.uint8)
    zero_points_G[groups] = middle
    for row in range(source_OI.shape[0]):
        widen(source_OI[row], is_half, values)
        for group in range(groups):
            head = low = high = _order_key(bits_GS[group, 0])
            for i in range(group_size):
                key = _order_key(bits_GS[group, i])
                low = min(low, key)
                high = max(high, key)
            # A scale of zero takes its sign from the group's first zero, as onnxruntime's does.
            lows_G[group] = head if high <= 0 and low >= -1 else low
            highs_G[group] = high
        if not _fit_groups(
            lows_G, highs_G, middle, symmetric, scales_OG[row], reciprocals_G, zero_points_G
        ):
            return row
        for group in range(groups):
            reciprocal = reciprocals_G[group]
            zero_point = np.float32(zero_points_G[group])
            for i in range(group_size):
                code = values_GS[group, i] * reciprocal + zero_point
                code = min(max(code, np.float32(0)), top)
                codes_GS[group, i] = np.uint8(np.int32(code + _HALF))
        if not symmetric:
            _pack(zero_points_G, middle, zero_points_OZ[row])
        _pack(codes_GS.reshape(-1), middle, packed_OGB[row].reshape(-1))
    return -1


@_compiled
def _dequantize_row(
    packed_GB: Array,
    scales_G: Array,
    zero_points_Z: Array,
    middle: int,
    codes_GS: Array,
    zero_points_G: Array,
    values_GS: Array,
) -> None:
    """Decode one row into values_GS; codes_GS and zero_points_G are scratch."""
    _unpack(packed_GB.reshape(-1), middle, codes_GS.reshape(-1))
    if zero_points_Z.size:
        _unpack(zero_points_Z, middle, zero_points_G)
    for group in range(scales_G.size):
        scale, zero_point = scales_G[group], np.int32(zero_points_G[group])
        for i in range(values_GS.shape[1]):
            values_GS[group, i] = np.float32(np.int32(codes_GS[group, i]) - zero_point) * scale


@_compiled
def dequantize(
    packed_OGB: Array,
    scales_OG: Array,
    zero_points_OZ: Array,
    middle: int,
    target_OI: Array,
) -> None:
    """Decode rows into float32; zero_points_OZ is [O, 0] when symmetric."""
    groups = scales_OG.shape[1]
    group_size = packed_OGB.shape[2] * (2 if middle == 8 else 1)
    codes_GS = np.empty((groups, group_size), np.uint8)
    values_GS = np.empty((groups, group_size), np.float32)
    zero_points_G = np.empty(groups + 1, np.uint8)
    zero_points_G[:] = middle
    for row in range(target_OI.shape[0]):
        _dequantize_row(
            packed_OGB[row],
            scales_OG[row],
            zero_points_OZ[row],
            middle,
            codes_GS,
            zero_points_G,
            values_GS,
        )
        values = values_GS.reshape(-1)
        for i in range(target_OI.shape[1]):
            target_OI[row, i] = values[i]


@_compiled
def sum_squares(
    source_OI: Array, is_half: bool, decoded_OI: Array, errors_I: Array, norms_I: Array
) -> None:
    """Add to float64 sums, per input: (decoded - source)^2 and source^2, over all rows."""
    values = np.empty(source_OI.shape[1], np.float32)
    for row in range(source_OI.shape[0]):
        widen(source_OI[row], is_half, values)
        for i in range(values.size):
            value = np.float64(values[i])
            difference = np.float64(decoded_OI[row, i]) - value
            errors_I[i] += difference * difference
            norms_I[i] += value * value
