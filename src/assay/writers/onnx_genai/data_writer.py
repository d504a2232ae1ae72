"""Writes model.onnx.data: rows are read, converted or quantized, written, and forgotten.

Each chunk of rows is a job of its own with a place in the file, so that all processors read,
round and write at once, and memory stays at a few chunks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from assay.blocks.initializers import (
    ComputedInitializer,
    FloatInitializer,
    Initializer,
    QuantizedMatrix,
    QuantizedPart,
)
from assay.checkpoint import Checkpoint
from assay.quantization import convert_rows, count_processors, quantize_rows
from assay.writers.onnx_genai.chunks import Chunk, plan_chunks
from assay.writers.onnx_genai.external_data import DataLayout, part_key, size_bytes

__all__ = ["write_external_data"]

Array = np.ndarray[Any, np.dtype[Any]]
Job = Callable[[], int]  # writes something; returns how many bytes

# Large enough to hide Python, small enough that memory stays a constant.
CHUNK_ELEMENTS = 1 << 20


def write_external_data(
    path: Path,
    initializers: Iterable[Initializer],
    layout: DataLayout,
    checkpoint: Checkpoint,
    report: Callable[[int], None],
) -> None:
    """Write every stored tensor at its offset. report: called with bytes as they are written.

    Of several faulty chunks the first one's error is raised.
    """
    with open(path, "wb") as file:
        descriptor = file.fileno()
        os.truncate(descriptor, layout.size_bytes)
        jobs = list(_list_jobs(descriptor, initializers, layout, checkpoint))
        with ThreadPoolExecutor(min(count_processors(), max(1, len(jobs)))) as pool:
            futures = [pool.submit(job) for job in jobs]
            try:
                for future in futures:
                    report(future.result())
            finally:
                pool.shutdown(cancel_futures=True)


def _list_jobs(
    descriptor: int,
    initializers: Iterable[Initializer],
    layout: DataLayout,
    checkpoint: Checkpoint,
) -> Iterator[Job]:
    done: set[str] = set()
    for initializer in initializers:
        offset = layout.find(initializer)
        if isinstance(initializer, QuantizedPart):
            matrix = initializer.matrix
            if matrix.name in done:
                continue
            done.add(matrix.name)
            for chunk in plan_chunks(checkpoint, matrix.sources, CHUNK_ELEMENTS):
                yield partial(_write_quantized, descriptor, matrix, layout, checkpoint, chunk)
        elif offset is None:
            continue
        elif isinstance(initializer, ComputedInitializer):
            yield partial(_write_computed, descriptor, initializer, offset)
        else:
            for chunk in plan_chunks(checkpoint, initializer.sources, CHUNK_ELEMENTS):
                yield partial(_write_float, descriptor, initializer, offset, checkpoint, chunk)


def _write_computed(descriptor: int, initializer: ComputedInitializer, offset: int) -> int:
    _write_at(descriptor, initializer.array, offset)
    return size_bytes(initializer)


def _write_quantized(
    descriptor: int,
    matrix: QuantizedMatrix,
    layout: DataLayout,
    checkpoint: Checkpoint,
    chunk: Chunk,
) -> int:
    name = chunk.name
    quantized = quantize_rows(chunk.read(checkpoint), matrix.grid, name=name, num_threads=1)
    scales = convert_rows(
        quantized.scales, matrix.scale_dtype.numpy(), name=f"scales of {name}", num_threads=1
    )
    parts: list[tuple[str, Array | None]] = [
        ("packed", quantized.packed),
        ("scales", scales),
        ("zero_points", quantized.zero_points),
    ]
    written = 0
    for part, array in parts:
        offset = layout.offsets.get(part_key(matrix, part))
        if array is None or offset is None:
            continue
        row_bytes = array.nbytes // len(array)
        _write_at(descriptor, array, offset + chunk.first_row * row_bytes)
        written += array.nbytes
    return written


def _write_float(
    descriptor: int,
    initializer: FloatInitializer,
    offset: int,
    checkpoint: Checkpoint,
    chunk: Chunk,
) -> int:
    """Write rows of a float tensor; of a transposed one [inputs, rows], a stripe of columns."""
    dtype, name = initializer.dtype.numpy(), chunk.name
    rows = chunk.read(checkpoint)
    if initializer.offset:
        widened = convert_rows(rows, np.dtype(np.float32), name=name, num_threads=1)
        rows = widened + np.float32(initializer.offset)
    rows = convert_rows(rows, dtype, name=name, num_threads=1)
    if initializer.transpose:
        row_bytes = initializer.shape[-1] * dtype.itemsize
        stripe = np.ascontiguousarray(rows.T)
        start = offset + chunk.first_row * dtype.itemsize
        for index, piece in enumerate(stripe):
            _write_at(descriptor, piece, start + index * row_bytes)
    else:
        row_bytes = rows.nbytes // len(rows)
        _write_at(descriptor, rows, offset + chunk.first_row * row_bytes)
    return int(rows.nbytes)


def _write_at(descriptor: int, array: Array, offset: int) -> None:
    view = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
