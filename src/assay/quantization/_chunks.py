"""Rows in chunks over a few threads: float bits as the kernels take them, and who runs when."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import ml_dtypes
import numpy as np

from assay.errors import WeightError
from assay.quantization._grid import Array

__all__ = [
    "BFLOAT16",
    "CHUNK_WEIGHTS",
    "FLOAT16",
    "FLOAT32",
    "check_dtype",
    "count_processors",
    "read_bits",
    "run",
]

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT16 = np.dtype(np.float16)
FLOAT32 = np.dtype(np.float32)
_FLOAT8 = (np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2))

# Weights that one thread takes at a time: enough to hide Python, small enough to balance.
CHUNK_WEIGHTS = 1 << 20


def check_dtype(dtype: np.dtype[np.generic], name: str) -> None:
    """Raise WeightError unless `read_bits` reads the dtype."""
    if dtype not in (BFLOAT16, FLOAT16, FLOAT32, *_FLOAT8):
        raise WeightError(
            name,
            f"weights of type {dtype} are not read",
            expected="bfloat16, float16, float32, float8_e4m3fn or float8_e5m2",
            next_step="Decode the tensor to one of these first.",
        )


def read_bits(weight: Array) -> tuple[Array, bool]:
    """The float bits that the kernels take, and whether they are float16's.

    A view for bfloat16, float16 (uint16) and float32 (uint32); float8 is looked up as bfloat16,
    which holds each of its values. Read-only, since numba would compile once more for writable
    arrays; a copy when the memory isn't aligned, as in a mapped file.
    """
    if weight.dtype in _FLOAT8:
        bits = _bfloat16_of(weight.dtype).take(weight.view(np.uint8))
    else:
        bits = weight.view(np.uint32 if weight.dtype == FLOAT32 else np.uint16)
        if not bits.flags.aligned:
            bits = bits.copy()
    bits.flags.writeable = False
    return bits, weight.dtype == FLOAT16


def run(work: Callable[[int, int], int], total: int, *, size: int, num_threads: int | None) -> int:
    """Call work(first, last) over 0 to total in pieces of at most `size`, on several threads.

    work returns -1, or the index that is at fault. Returns the least such index, or -1.
    num_threads: None for one per processor that this process may use.
    """
    threads = num_threads or count_processors()
    step = max(1, min(size, -(-total // threads)))
    firsts = range(0, total, step)
    lasts = [min(first + step, total) for first in firsts]
    if threads == 1 or len(firsts) < 2:
        faults = list(map(work, firsts, lasts))
    else:
        with ThreadPoolExecutor(min(threads, len(firsts))) as pool:
            faults = list(pool.map(work, firsts, lasts))
    return min((fault for fault in faults if fault >= 0), default=-1)


def count_processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@lru_cache
def _bfloat16_of(dtype: np.dtype[np.generic]) -> Array:
    return np.arange(256, dtype=np.uint8).view(dtype).astype(BFLOAT16).view(np.uint16)
