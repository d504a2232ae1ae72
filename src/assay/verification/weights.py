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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from assay.errors import RuntimeFolderError
from assay.verification.folder import ModelFolder

if TYPE_CHECKING:
    import onnx

__all__ = ["DecodedRows", "PackedTensor", "decode_rows", "find_packed_tensors", "read_initializer"]

AnyArray = npt.NDArray[Any]


@dataclass(frozen=True)
class PackedTensor:
    """One quantized matrix of a graph. `packed` to `group_index` are initializer names or "".

    roles: "matmul" and, or, "embedding": who reads it. default_zero_point: used where
    zero_points is empty.
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


def find_packed_tensors(folder: ModelFolder) -> list[PackedTensor]:
    """Every packed matrix that MatMulNBits or GatherBlockQuantized reads, each once."""
    reshaped = {
        node.output[0]: node.input[0]
        for node in folder.proto.graph.node
        if node.op_type in ("Reshape", "Identity")
    }
    found: dict[str, PackedTensor] = {}
    for node in folder.proto.graph.node:
        if node.op_type == "MatMulNBits":
            tensor = _read_matmul(folder, node, reshaped)
        elif node.op_type == "GatherBlockQuantized":
            tensor = _read_embedding(folder, node, reshaped)
        else:
            continue
        if earlier := found.get(tensor.packed):
            roles = tuple(dict.fromkeys(earlier.roles + tensor.roles))
            exact = min(earlier, tensor, key=lambda t: t.num_inputs)  # without group padding
            tensor = replace(exact, roles=roles, nodes=earlier.nodes + tensor.nodes)
        found[tensor.packed] = tensor
    return list(found.values())


def decode_rows(
    folder: ModelFolder,
    tensor: PackedTensor,
    *,
    rows: slice | None = None,
    block_elements: int = 1 << 23,
) -> Iterator[tuple[slice, DecodedRows]]:
    """Decode a tensor, or a stretch of its rows, a block at a time: (rows, decoded)."""
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


def read_initializer(folder: ModelFolder, name: str) -> AnyArray:
    """One initializer as an array; external data is mapped, 4-bit types stay packed as bytes.

    Raises RuntimeFolderError when the data file is missing or too short.
    """
    from onnx import TensorProto, helper, numpy_helper

    proto = folder.initializers[name]
    four_bit = proto.data_type in (TensorProto.INT4, TensorProto.UINT4)
    if not proto.external_data:
        if four_bit:
            return np.frombuffer(proto.raw_data, np.uint8)
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


def _attributes(node: onnx.NodeProto) -> dict[str, int]:
    return {a.name: int(a.i) for a in node.attribute}


def _initializer(
    folder: ModelFolder, node: onnx.NodeProto, index: int, moved: dict[str, str]
) -> str:
    """The initializer behind an input, through a Reshape; "" when the input is absent."""
    name = node.input[index] if index < len(node.input) else ""
    name = moved.get(name, name)
    if name and name not in folder.initializers:
        raise RuntimeFolderError(
            node.name or node.op_type,
            f"its input {index} ({name}) isn't a stored tensor",
            next_step="Only packed weights that lie in the folder can be judged.",
        )
    return str(name)


def _read_matmul(folder: ModelFolder, node: onnx.NodeProto, moved: dict[str, str]) -> PackedTensor:
    attributes = _attributes(node)
    bits = attributes.get("bits", 4)
    return PackedTensor(
        packed=_initializer(folder, node, 1, moved),
        scales=_initializer(folder, node, 2, moved),
        zero_points=_initializer(folder, node, 3, moved),
        group_index=_initializer(folder, node, 4, moved),
        bits=bits,
        group_size=attributes["block_size"],
        num_rows=attributes["N"],
        num_inputs=attributes["K"],
        default_zero_point=1 << (bits - 1),
        roles=("matmul",),
        nodes=(node.name,),
    )


def _read_embedding(
    folder: ModelFolder, node: onnx.NodeProto, moved: dict[str, str]
) -> PackedTensor:
    from onnx import TensorProto

    attributes = _attributes(node)
    bits = attributes.get("bits", 4)
    packed = _initializer(folder, node, 0, moved)
    proto = folder.initializers[packed]
    is_byte = proto.data_type == TensorProto.UINT8
    if proto.data_type == TensorProto.INT4:
        raise RuntimeFolderError(
            node.name,
            "signed 4-bit embedding codes can't be judged",
            expected="uint8 or uint4 codes",
        )
    num_rows = int(proto.dims[0])
    num_codes = int(np.prod(proto.dims))
    return PackedTensor(
        packed=packed,
        scales=_initializer(folder, node, 2, moved),
        zero_points=_initializer(folder, node, 3, moved),
        group_index="",
        bits=bits,
        group_size=attributes.get("block_size", 128),
        num_rows=num_rows,
        num_inputs=num_codes * (8 // bits if is_byte else 1) // num_rows,
        default_zero_point=1 << (bits - 1) if is_byte else 0,
        roles=("embedding",),
        nodes=(node.name,),
    )


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
