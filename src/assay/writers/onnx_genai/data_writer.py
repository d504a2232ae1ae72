"""Writes model.onnx.data: a tensor is read by rows, converted or quantized, and forgotten."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from assay.blocks.initializers import (
    ComputedInitializer,
    FloatInitializer,
    Initializer,
    QuantizedMatrix,
    QuantizedPart,
    RowSource,
)
from assay.checkpoint import Checkpoint
from assay.quantization import convert_rows, quantize_rows
from assay.writers.onnx_genai.external_data import DataLayout, part_key, size_bytes

__all__ = ["write_external_data"]

Array = np.ndarray[Any, np.dtype[Any]]
# Large enough to keep both cores busy, small enough that memory stays a constant.
CHUNK_ELEMENTS = 4 << 20


def write_external_data(
    path: Path,
    initializers: Iterable[Initializer],
    layout: DataLayout,
    checkpoint: Checkpoint,
    report: Callable[[int], None],
) -> None:
    """Write every stored tensor at its offset. report: called with bytes as they are written."""
    with open(path, "wb") as file:
        descriptor = file.fileno()
        os.truncate(descriptor, layout.size_bytes)
        done: set[str] = set()
        for initializer in initializers:
            offset = layout.find(initializer)
            if isinstance(initializer, QuantizedPart):
                matrix = initializer.matrix
                if matrix.name not in done:
                    done.add(matrix.name)
                    _write_quantized(descriptor, matrix, layout, checkpoint, report)
            elif offset is None:
                continue
            elif isinstance(initializer, ComputedInitializer):
                _write_at(descriptor, initializer.array, offset)
                report(size_bytes(initializer))
            else:
                _write_float(descriptor, initializer, offset, checkpoint, report)


def _write_quantized(
    descriptor: int,
    matrix: QuantizedMatrix,
    layout: DataLayout,
    checkpoint: Checkpoint,
    report: Callable[[int], None],
) -> None:
    offsets = {
        part: layout.offsets.get(part_key(matrix, part))
        for part in ("packed", "scales", "zero_points")
    }
    scale_dtype = matrix.scale_dtype.numpy()
    for name, rows in _read_chunks(checkpoint, matrix.sources):
        quantized = quantize_rows(rows, matrix.grid, name=name)
        written = 0
        parts: list[tuple[str, Array | None]] = [
            ("packed", quantized.packed),
            ("scales", convert_rows(quantized.scales, scale_dtype, name=f"scales of {name}")),
            ("zero_points", quantized.zero_points),
        ]
        for part, array in parts:
            offset = offsets[part]
            if array is None or offset is None:
                continue
            _write_at(descriptor, array, offset)
            offsets[part] = offset + array.nbytes
            written += array.nbytes
        report(written)


def _write_float(
    descriptor: int,
    initializer: FloatInitializer,
    offset: int,
    checkpoint: Checkpoint,
    report: Callable[[int], None],
) -> None:
    """Write a float tensor; a transposed one [inputs, rows] in stripes of columns."""
    dtype = initializer.dtype.numpy()
    inputs = initializer.shape[0] if initializer.transpose else _row_size(initializer)
    row_bytes = (initializer.shape[-1] if initializer.transpose else inputs) * dtype.itemsize
    column = 0
    for name, rows in _read_chunks(checkpoint, initializer.sources):
        if initializer.offset:
            widened = convert_rows(rows, np.dtype(np.float32), name=name)
            rows = widened + np.float32(initializer.offset)
        rows = convert_rows(rows, dtype, name=name)
        if initializer.transpose:
            stripe = np.ascontiguousarray(rows.T)
            for index in range(inputs):
                _write_at(descriptor, stripe[index], offset + index * row_bytes + column)
            column += stripe.shape[1] * dtype.itemsize
        else:
            _write_at(descriptor, rows, offset)
            offset += rows.nbytes
        report(rows.nbytes)


def _row_size(initializer: FloatInitializer) -> int:
    """Elements of a row: 1 for vectors, whose entries are the rows."""
    total = sum(source.num_rows for source in initializer.sources)
    count = int(np.prod(initializer.shape))
    assert count % total == 0, initializer.name
    return count // total


def _read_chunks(
    checkpoint: Checkpoint, sources: tuple[RowSource, ...]
) -> Iterator[tuple[str, Array]]:
    """Yield the sources' rows in order, [rows, inputs], a bounded number of bytes at a time.

    Each with what to call it in an error: the tensor, and where its row 0 stands in the file.
    """
    for source in sources:
        if source.transposed:
            whole = np.ascontiguousarray(checkpoint.read(source.tensor).T)
            for start, stop in source.rows:
                name = _name_rows(source, [(start, stop)])
                yield name, np.ascontiguousarray(whole[start:stop])
            continue
        info = checkpoint.tensors[source.tensor]
        step = max(1, CHUNK_ELEMENTS // math.prod(info.shape[1:]))
        pending: list[Array] = []
        ranges: list[tuple[int, int]] = []
        for start, stop in source.rows:
            for first in range(start, stop, step):
                last = min(stop, first + step)
                rows = checkpoint.read_rows(source.tensor, first, last)
                pending.append(rows.reshape(rows.shape[0], -1))
                ranges.append((first, last))
                if sum(part.shape[0] for part in pending) >= step:
                    yield _name_rows(source, ranges), _join(pending)
                    pending, ranges = [], []
        if pending:
            yield _name_rows(source, ranges), _join(pending)


def _name_rows(source: RowSource, ranges: list[tuple[int, int]]) -> str:
    """Name rows of a tensor so that "row 3" of them is found in the file."""
    what = f"{source.tensor} (transposed)" if source.transposed else source.tensor
    if len(ranges) > 1:
        return f"{what}, rows {ranges[0][0]:,} to {ranges[-1][1]:,} in parts, counted from 0"
    start, stop = ranges[0]
    return what if start == 0 else f"{what}, rows {start:,} to {stop:,} counted from 0"


def _join(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _write_at(descriptor: int, array: Array, offset: int) -> None:
    view = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
