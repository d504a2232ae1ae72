"""The header of a GGUF file: metadata and tensor table, each count checked before it is followed.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little-endian).
The gguf package's own reader maps the file and trusts its counts, so it isn't used here.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from assay.checkpoint._gguf_cursor import GgufArray, GgufCursor
from assay.checkpoint._positional_file import DOWNLOAD_AGAIN, PositionalFile
from assay.errors import CheckpointError

__all__ = ["GGUF_TYPES", "GgufHeader", "GgufTensor", "read_gguf_header"]

# code -> name, values in a block, bytes of a block (ggml.h; gguf.GGML_QUANT_SIZES)
GGUF_TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    30: ("BF16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
}
_MAX_DIMENSIONS = 4
_MAX_VALUES = 1 << 48
_MIN_ENTRY_BYTES = 13  # an empty key, its type, one byte
_MIN_TENSOR_BYTES = 32  # an empty name, one dimension, type and offset


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor as the file has it; shape in Hugging Face order (the file stores it reversed)."""

    name: str
    kind: str
    shape: tuple[int, ...]
    offset: int
    size_bytes: int

    @property
    def num_rows(self) -> int:
        """Rows of the 2-D view [shape[0], rest]; blocks never cross a row of a matrix."""
        return self.shape[0]

    @property
    def row_bytes(self) -> int:
        return self.size_bytes // self.shape[0]


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """metadata: scalars and strings as Python values, arrays left in the file as GgufArray."""

    file: PositionalFile
    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]

    def fail(self, found: str, expected: str = "", next_step: str = "") -> CheckpointError:
        """Make (not raise) an error about this file."""
        return CheckpointError(
            str(self.file.path), found, expected=expected, next_step=next_step or DOWNLOAD_AGAIN
        )

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        """Get a metadata value of a kind (str, int, float, bool), or the default when absent."""
        value = self.metadata.get(key)
        if value is None:
            return default
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise self.fail(f"metadata {key} is {value!r}", f"a value of type {kind.__name__}")
        return value

    def require(self, key: str, kind: type) -> Any:
        """Get a metadata value that must be there."""
        value = self.get(key, kind)
        if value is None:
            raise self.fail(f"has no metadata {key}", f"a value of type {kind.__name__}")
        return value

    def strings(self, key: str) -> list[str] | None:
        """Read an array of strings from the file; None when the key is absent."""
        array = self._array(key)
        if array is None:
            return None
        if array.kind is not str:
            raise self.fail(f"metadata {key} holds {array.kind}", "strings")
        return array.read_strings(self.file)

    def numbers(self, key: str) -> np.ndarray[Any, np.dtype[Any]] | None:
        """Read an array of numbers from the file; None when the key is absent."""
        array = self._array(key)
        if array is None:
            return None
        if array.kind is str:
            raise self.fail(f"metadata {key} holds strings", "numbers")
        return array.read_numbers(self.file)

    def _array(self, key: str) -> GgufArray | None:
        value = self.metadata.get(key)
        if value is not None and not isinstance(value, GgufArray):
            raise self.fail(f"metadata {key} is {value!r}", "an array")
        return value


def read_gguf_header(file: PositionalFile) -> GgufHeader:
    """Read and check the header; raises CheckpointError for anything that doesn't fit the file."""
    cursor = GgufCursor(file)
    num_tensors, num_entries = _read_counts(cursor)
    metadata: dict[str, Any] = {}
    header = GgufHeader(file, metadata, {})
    for _ in range(num_entries):
        key = cursor.read_string(max_bytes=65535)
        if not key:
            raise header.fail("has a metadata key of 0 bytes", "1 to 65,535 bytes")
        if key in metadata:
            raise header.fail(f"has metadata {key} twice", "each key once")
        metadata[key] = cursor.read_value()
    if (count := header.get("split.count", int, 0)) > 1:
        raise header.fail(
            f"is one of {count} parts",
            "a whole model in one file",
            "Join the parts with llama.cpp's `llama-gguf-split --merge`.",
        )
    alignment = header.get("general.alignment", int, 32)
    if not 0 < alignment <= 1 << 20 or alignment & (alignment - 1):
        raise header.fail(f"general.alignment is {alignment}", "a power of two up to 1,048,576")
    entries = [_read_tensor_entry(cursor, header) for _ in range(num_tensors)]
    data_start = -(-cursor.position // alignment) * alignment
    _place_tensors(header, entries, data_start, alignment)
    return header


def _read_counts(cursor: GgufCursor) -> tuple[int, int]:
    file = cursor.file
    magic, version = cursor.take(4), int.from_bytes(cursor.take(4), "little")
    if magic != b"GGUF" or version not in (2, 3):
        is_swapped = magic == b"GGUF" and version in (2 << 24, 3 << 24)
        what = "is a big-endian GGUF file" if is_swapped else f"is GGUF version {version}"
        raise CheckpointError(
            str(file.path),
            what if magic == b"GGUF" else f"begins with {magic!r}",
            expected="b'GGUF' and version 2 or 3, little-endian",
            next_step="Convert the model again with a current llama.cpp.",
        )
    num_tensors, num_entries = cursor.read_u64(), cursor.read_u64()
    for count, what, least in (
        (num_tensors, "tensors", _MIN_TENSOR_BYTES),
        (num_entries, "metadata entries", _MIN_ENTRY_BYTES),
    ):
        if count > file.size_bytes // least:
            raise CheckpointError(
                str(file.path),
                f"claims {count:,} {what} in {file.size_bytes:,} bytes",
                expected=f"at least {least} bytes for each",
                next_step=DOWNLOAD_AGAIN,
            )
    return num_tensors, num_entries


def _read_tensor_entry(cursor: GgufCursor, header: GgufHeader) -> GgufTensor:
    """Read one row of the tensor table; its offset stays relative to the data section."""
    name = cursor.read_string(max_bytes=1024)
    num_dimensions = cursor.read_u32()
    if not 1 <= num_dimensions <= _MAX_DIMENSIONS:
        raise header.fail(f"tensor {name!r} has {num_dimensions} dimensions", "1 to 4")
    shape = tuple(reversed([cursor.read_u64() for _ in range(num_dimensions)]))
    code, offset = cursor.read_u32(), cursor.read_u64()
    if code not in GGUF_TYPES:
        raise header.fail(
            f"tensor {name!r} has type {_name_type(code)}, which isn't supported",
            f"one of {', '.join(sorted(kind for kind, _, _ in GGUF_TYPES.values()))}",
            "Take another quantization of the model, such as Q4_K_M, Q8_0 or BF16.",
        )
    kind, block, block_bytes = GGUF_TYPES[code]
    if not all(0 < size <= _MAX_VALUES for size in shape) or prod(shape) > _MAX_VALUES:
        raise header.fail(f"tensor {name!r} has shape {shape}", "1 to 2**48 values")
    if block > 1 and num_dimensions == 1:
        raise header.fail(f"tensor {name!r} is a vector of {kind}", "a vector of F32, F16 or BF16")
    if shape[-1] % block:
        raise header.fail(
            f"tensor {name!r} has rows of {shape[-1]} values", f"a multiple of {block} for {kind}"
        )
    return GgufTensor(name, kind, shape, offset, prod(shape) // block * block_bytes)


def _name_type(code: int) -> str:
    from gguf import GGMLQuantizationType

    names = {int(kind): str(kind.name) for kind in GGMLQuantizationType}
    return names.get(code, f"code {code}")


def _place_tensors(
    header: GgufHeader, entries: list[GgufTensor], data_start: int, alignment: int
) -> None:
    """Turn relative offsets into file offsets; check alignment, overlaps and the file's end."""
    end = data_start
    last = ""
    for entry in sorted(entries, key=lambda tensor: tensor.offset):
        offset = data_start + entry.offset
        if entry.offset % alignment or offset < end:
            raise header.fail(
                f"tensor {entry.name!r} begins at byte {offset:,}",
                f"a multiple of {alignment} after {last or 'the header'}, so {end:,} or later",
            )
        if entry.name in header.tensors:
            raise header.fail(f"has tensor {entry.name!r} twice", "each name once")
        end, last = offset + entry.size_bytes, entry.name
        placed = GgufTensor(entry.name, entry.kind, entry.shape, offset, entry.size_bytes)
        header.tensors[entry.name] = placed
    if end > header.file.size_bytes:
        raise header.fail(
            f"is truncated: it has {header.file.size_bytes:,} bytes",
            f"{end:,} bytes, as tensor {last!r} needs",
        )
