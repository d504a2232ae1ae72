"""Decode the packed weights of a folder into float32, with this room's own code.

Shapes: N rows (outputs or words), K inputs, G groups of inputs that share one scale.
Formats, from ONNX Runtime's contrib operator schemas:
MatMulNBits: B uint8 [N, G, group*bits/8], low bits first; scales [N, G]; zero points packed the
same way per row, or one float each; 2^(bits-1) when absent; g_idx [K] names each input's group.
GatherBlockQuantized: data uint8 [N, K*bits/8], or a 4-bit type [N, K]; scales [N, G]; zero
points like data; when absent 2^(bits-1) for uint8 and 0 for 4-bit types.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from assay.errors import RuntimeFolderError
from assay.verification.folder import ModelFolder
from assay.verification.qdq import QdqFacts, decode_qdq

if TYPE_CHECKING:
    pass

__all__ = ["DecodedRows", "PackedTensor", "decode_rows", "read_initializer"]

AnyArray = npt.NDArray[Any]


@dataclass(frozen=True)
class PackedTensor:
    """One quantized matrix of a graph. `packed` to `group_index` are initializer names or "".

    roles: "matmul", "embedding", "experts": who reads it. default_zero_point: used where
    zero_points is empty. qdq: set where a DequantizeLinear decodes it. transposed: the file holds
    [K, N]. Experts' matrices are stacked by row.
    """

    packed: str
    scales: str
    zero_points: str
    group_index: str
    bits: int
    group_size: int
    num_rows: int
    num_inputs: int
    default_zero_point: int
    roles: tuple[str, ...]
    nodes: tuple[str, ...] = ()
    qdq: QdqFacts | None = None
    transposed: bool = False
    num_experts: int = 1

    @property
    def num_groups(self) -> int:
        """Groups in a row; the last may be partial."""
        return -(-self.num_inputs // self.group_size)


@dataclass(frozen=True)
class DecodedRows:
    """A block of rows: codes, and the scale and zero point of each element's group.

    codes_NK: uint8 as stored. zero_points_NK, scales_NK: float32, spread over the inputs.
    """

    codes_NK: npt.NDArray[np.uint8]
    zero_points_NK: npt.NDArray[np.float32]
    scales_NK: npt.NDArray[np.float32]

    @property
    def weight_NK(self) -> npt.NDArray[np.float32]:
        """(code - zero point) * scale."""
        return (self.codes_NK.astype(np.float32) - self.zero_points_NK) * self.scales_NK


def decode_rows(
    folder: ModelFolder,
    tensor: PackedTensor,
    *,
    rows: slice | None = None,
    block_elements: int = 1 << 21,
) -> Iterator[tuple[slice, DecodedRows]]:
    """Decode a tensor, or a stretch of its rows, a block at a time: (rows, decoded)."""
    if tensor.qdq is not None:
        yield from _decode_qdq_rows(folder, tensor, rows, block_elements)
        return
    packed = read_initializer(folder, tensor.packed).reshape(tensor.num_rows, -1)
    scales_NG = read_initializer(folder, tensor.scales).reshape(tensor.num_rows, -1)
    zero_points = read_initializer(folder, tensor.zero_points) if tensor.zero_points else None
    if zero_points is not None:
        zero_points = zero_points.reshape(tensor.num_rows, -1)
    group_K = np.arange(tensor.num_inputs) // tensor.group_size
    if tensor.group_index:
        group_K = read_initializer(folder, tensor.group_index).astype(np.int64)
    step = max(1, block_elements // tensor.num_inputs)
    whole = rows or slice(0, tensor.num_rows)
    for start in range(whole.start, whole.stop, step):
        block = slice(start, min(start + step, whole.stop))
        codes = _unpack(packed[block], tensor.bits, tensor.num_inputs)
        zeros_NG = _unpack_zero_points(zero_points, block, tensor)
        scales = scales_NG[block].astype(np.float32)
        yield block, DecodedRows(codes, zeros_NG[:, group_K], scales[:, group_K])


def _decode_qdq_rows(
    folder: ModelFolder, tensor: PackedTensor, rows: slice | None, block_elements: int
) -> Iterator[tuple[slice, DecodedRows]]:
    assert tensor.qdq is not None
    zero_points = read_initializer(folder, tensor.zero_points) if tensor.zero_points else None
    codes, zeros, scales = decode_qdq(
        tensor.qdq,
        read_initializer(folder, tensor.packed),
        read_initializer(folder, tensor.scales),
        zero_points,
    )
    if tensor.transposed:
        codes, zeros, scales = codes.T, zeros.T, scales.T
    step = max(1, block_elements // tensor.num_inputs)
    whole = rows or slice(0, tensor.num_rows)
    for start in range(whole.start, whole.stop, step):
        block = slice(start, min(start + step, whole.stop))
        yield block, DecodedRows(codes[block], zeros[block], scales[block])


def read_initializer(folder: ModelFolder, name: str) -> AnyArray:
    """One initializer as an array; external data is mapped, 4-bit types stay packed as bytes.

    Raises RuntimeFolderError when the data file is missing or too short.
    """
    from onnx import TensorProto, helper, numpy_helper

    proto = folder.initializers[name]
    four_bit = proto.data_type in (TensorProto.INT4, TensorProto.UINT4)
    if not proto.external_data:
        if four_bit and proto.raw_data:
            return np.frombuffer(proto.raw_data, np.uint8)
        if four_bit:
            return _pack_nibbles(np.asarray(numpy_helper.to_array(proto)))
        return np.asarray(numpy_helper.to_array(proto))
    place = {entry.key: entry.value for entry in proto.external_data}
    path = folder.path / Path(place["location"])
    shape = tuple(proto.dims)
    dtype = np.dtype(np.uint8) if four_bit else helper.tensor_dtype_to_np_dtype(proto.data_type)
    count = -(-int(np.prod(shape)) // 2) if four_bit else int(np.prod(shape))
    offset = int(place.get("offset", 0))
    if not path.is_file() or path.stat().st_size < offset + count * dtype.itemsize:
        raise RuntimeFolderError(
            str(path),
            f"the weights of {name} aren't all there",
            next_step="The file is missing or truncated; export the model again.",
        )
    if not count:
        return np.zeros(shape, dtype)
    mapped = np.memmap(path, np.uint8, "r", offset, (count * dtype.itemsize,))
    return mapped if four_bit else mapped.view(dtype).reshape(shape)


def _pack_nibbles(codes: AnyArray) -> npt.NDArray[np.uint8]:
    """Two codes in a byte, the first in the low half."""
    nibbles = codes.reshape(-1).astype(np.int8).view(np.uint8) & 15
    nibbles = np.append(nibbles, np.zeros(len(nibbles) % 2, np.uint8))
    return np.asarray(nibbles[::2] | (nibbles[1::2] << 4), np.uint8)


def _unpack(packed_NB: AnyArray, bits: int, count: int) -> npt.NDArray[np.uint8]:
    """Codes [N, count] from bytes, low bits first."""
    assert bits in (1, 2, 4, 8), bits
    if bits == 8:
        return np.ascontiguousarray(packed_NB[:, :count])
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = (packed_NB[:, :, None] >> shifts) & ((1 << bits) - 1)
    return np.ascontiguousarray(codes.reshape(len(packed_NB), -1)[:, :count])


def _unpack_zero_points(
    zero_points: AnyArray | None, rows: slice, tensor: PackedTensor
) -> npt.NDArray[np.float32]:
    shape = (rows.stop - rows.start, tensor.num_groups)
    if zero_points is None:
        return np.full(shape, tensor.default_zero_point, np.float32)
    if zero_points.dtype == np.uint8:
        return _unpack(zero_points[rows], tensor.bits, tensor.num_groups).astype(np.float32)
    return np.asarray(zero_points[rows], np.float32).reshape(shape)
