"""Where each tensor lies in model.onnx.data, and the graph's references to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import onnx_ir as ir

from assay.blocks.initializers import (
    ComputedInitializer,
    Initializer,
    QuantizedMatrix,
    QuantizedPart,
)

__all__ = ["DATA_FILE", "DataLayout", "attach_initializers", "lay_out"]

DATA_FILE = "model.onnx.data"
# Constants that shape inference reads stay inside the model.
INLINE_BYTES = 1024
# The page size, and for large tensors the unit in which Windows maps files: the runtime can then
# map a tensor instead of copying it.
PAGE_BYTES, MAPPING_BYTES, LARGE_BYTES = 4096, 65536, 1 << 20


@dataclass(frozen=True)
class DataLayout:
    """Offsets of the stored tensors, by the key of what is stored, and the file's size."""

    offsets: dict[object, int]
    size_bytes: int

    def find(self, initializer: Initializer) -> int | None:
        """Return a tensor's offset; None where it stands inside the model."""
        return self.offsets.get(storage_key(initializer))


def storage_key(initializer: Initializer) -> object:
    """What is stored: two views of the same bytes have the same key."""
    if isinstance(initializer, QuantizedPart):
        return part_key(initializer.matrix, initializer.part)
    return initializer.name


def part_key(matrix: QuantizedMatrix, part: str) -> tuple[str, str]:
    """The key of one stored part of a quantized matrix."""
    return matrix.name, part


def lay_out(initializers: Iterable[Initializer]) -> DataLayout:
    """Place tensors one after the other, aligned for mapping."""
    offsets: dict[object, int] = {}
    position = 0
    for initializer in initializers:
        size, key = size_bytes(initializer), storage_key(initializer)
        if key in offsets or _is_inline(initializer, size):
            continue
        unit = MAPPING_BYTES if size >= LARGE_BYTES else PAGE_BYTES
        position = -(-position // unit) * unit
        offsets[key] = position
        position += size
    return DataLayout(offsets, position)


def size_bytes(initializer: Initializer) -> int:
    """How many bytes a tensor takes."""
    count = 1
    for dim in initializer.shape:
        count *= dim
    return count * initializer.dtype.numpy().itemsize


def attach_initializers(
    model: ir.Model, initializers: Iterable[Initializer], layout: DataLayout
) -> None:
    """Give every initializer's value in the graph its tensor: inside, or a reference."""
    graph = model.graph
    values = {
        value.name: value
        for node in graph
        for value in node.inputs
        if value is not None and value.producer() is None
    }
    for initializer in initializers:
        value = values[initializer.name]
        offset = layout.find(initializer)
        if offset is None:
            assert isinstance(initializer, ComputedInitializer)
            value.const_value = ir.tensor(initializer.array, name=initializer.name)
        else:
            value.const_value = ir.ExternalTensor(
                DATA_FILE,
                offset,
                size_bytes(initializer),
                initializer.dtype,
                shape=ir.Shape(initializer.shape),
                name=initializer.name,
            )
        graph.initializers[initializer.name] = value


def _is_inline(initializer: Initializer, size: int) -> bool:
    return isinstance(initializer, ComputedInitializer) and size <= INLINE_BYTES
