"""The header of a safetensors file, believed only after every claim in it is checked.

Format: 8 bytes little-endian header length, the header (a JSON object: name -> dtype, shape,
data_offsets), then the data. https://github.com/huggingface/safetensors
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from assay.checkpoint._interface import TensorInfo
from assay.checkpoint._positional_file import DOWNLOAD_AGAIN, PositionalFile
from assay.checkpoint._strict_json import Pairs, parse_object
from assay.errors import CheckpointError

__all__ = ["StoredTensor", "get_dtypes", "read_header"]

MAX_HEADER_BYTES = 100_000_000  # the format's own limit
_MAX_VALUES = 1 << 62


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor's description and the file offset of its first byte."""

    info: TensorInfo
    offset: int


@cache
def get_dtypes() -> dict[str, np.dtype[Any]]:
    """Map safetensors' dtype words to numpy's; bf16 and fp8 are ml_dtypes'.

    The format's sub-byte words (F4, F6_E2M3, F6_E3M2) are left out: rows don't end on bytes.
    """
    import ml_dtypes

    words: dict[str, Any] = {
        "BOOL": np.bool_,
        "U8": np.uint8,
        "I8": np.int8,
        "U16": "<u2",
        "I16": "<i2",
        "U32": "<u4",
        "I32": "<i4",
        "U64": "<u8",
        "I64": "<i8",
        "F16": "<f2",
        "F32": "<f4",
        "F64": "<f8",
        "C64": "<c8",
        "BF16": ml_dtypes.bfloat16,
        "F8_E4M3": ml_dtypes.float8_e4m3fn,
        "F8_E5M2": ml_dtypes.float8_e5m2,
        "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
        "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
        "F8_E8M0": ml_dtypes.float8_e8m0fnu,
    }
    return {word: np.dtype(kind) for word, kind in words.items()}


def read_header(file: PositionalFile) -> dict[str, StoredTensor]:
    """Read and check the header; tensors in the order in which their data lies.

    Checked: header length, JSON, duplicate names, dtypes, shapes, sizes, and that the tensors
    tile the data section with no overlap and no hole, up to the file's last byte.
    """
    where = str(file.path)
    header_bytes = _read_header_length(file)
    raw = file.read_bytes(8, header_bytes)
    entries = parse_object(raw, where=f"{where} (header)", hook=_refuse_duplicates(where))
    entries.pop("__metadata__", None)
    data_start = 8 + header_bytes
    stored = [_check_entry(where, name, entry) for name, entry in entries.items()]
    stored.sort(key=lambda tensor: (tensor.offset, tensor.info.size_bytes))
    _check_tiling(file, stored, data_start)
    return {
        tensor.info.name: StoredTensor(tensor.info, data_start + tensor.offset) for tensor in stored
    }


def _read_header_length(file: PositionalFile) -> int:
    where = str(file.path)
    if file.size_bytes < 8:
        raise CheckpointError(
            where,
            f"has {file.size_bytes:,} bytes",
            expected="at least the 8 bytes of a safetensors header length",
            next_step=DOWNLOAD_AGAIN,
        )
    start = file.read_bytes(0, 8)
    if start == b"version ":
        raise CheckpointError(
            where,
            "is a Git LFS pointer, not the weights",
            next_step="Run `git lfs pull`, or download the file from the hub.",
        )
    length = int.from_bytes(start, "little")
    limit = min(MAX_HEADER_BYTES, file.size_bytes - 8)
    if not 2 <= length <= limit:
        raise CheckpointError(
            where,
            f"claims a header of {length:,} bytes",
            expected=f"2 to {limit:,} bytes in a file of {file.size_bytes:,} bytes",
            next_step=DOWNLOAD_AGAIN,
        )
    return length


def _refuse_duplicates(where: str) -> Any:
    def build(pairs: Pairs) -> dict[str, Any]:
        built = dict(pairs)
        if len(built) != len(pairs):
            twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
            raise CheckpointError(
                where,
                f"the header names {twice!r} twice",
                expected="each name once",
                next_step=DOWNLOAD_AGAIN,
            )
        return built

    return build


def _check_entry(where: str, name: str, entry: Any) -> StoredTensor:
    """Check one header entry by itself; its offset stays relative to the data section."""

    def fail(found: str, expected: str) -> CheckpointError:
        return CheckpointError(
            where, f"tensor {name!r} has {found}", expected=expected, next_step=DOWNLOAD_AGAIN
        )

    if not isinstance(entry, dict):
        raise fail("a header entry that isn't an object", "dtype, shape and data_offsets")
    word, shape, offsets = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(word, str) or word not in get_dtypes():
        raise CheckpointError(
            where,
            f"tensor {name!r} has dtype {word!r}, which isn't supported",
            expected=f"one of {', '.join(get_dtypes())}",
            next_step="Store the tensor in one of these dtypes.",
        )
    if not isinstance(shape, list) or not all(_is_size(size) for size in shape):
        raise fail(f"shape {shape!r}", "a list of non-negative integers")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)):
        raise fail(f"data_offsets {offsets!r}", "two non-negative integers")
    num_values = 1
    for size in shape:
        num_values *= size
        if num_values > _MAX_VALUES:
            raise fail(f"shape {shape!r}", "fewer than 2**62 values")
    size_bytes = num_values * get_dtypes()[word].itemsize
    begin, end = offsets
    if end - begin != size_bytes:
        raise fail(
            f"data_offsets {offsets!r}, so {end - begin:,} bytes",
            f"{size_bytes:,} bytes for {word} of shape {shape!r}",
        )
    info = TensorInfo(name=name, dtype=word, shape=tuple(shape), size_bytes=size_bytes)
    return StoredTensor(info, begin)


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MAX_VALUES


def _check_tiling(file: PositionalFile, stored: list[StoredTensor], data_start: int) -> None:
    where = str(file.path)
    end = 0
    for tensor in stored:
        if tensor.offset != end:
            fault = "overlaps the one before it" if tensor.offset < end else "leaves a hole"
            raise CheckpointError(
                where,
                f"tensor {tensor.info.name!r} begins at data byte {tensor.offset:,} and {fault}",
                expected=f"data byte {end:,}",
                next_step=DOWNLOAD_AGAIN,
            )
        end += tensor.info.size_bytes
    if data_start + end != file.size_bytes:
        fault = "truncated" if data_start + end > file.size_bytes else "longer than its header says"
        raise CheckpointError(
            where,
            f"is {fault}: it has {file.size_bytes:,} bytes",
            expected=f"{data_start + end:,} bytes",
            next_step=DOWNLOAD_AGAIN,
        )
