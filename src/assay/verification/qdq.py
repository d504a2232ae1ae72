"""Weights behind a DequantizeLinear: per tensor, per axis or in blocks, 4 or 8 bits, either sign.

value = (code - zero_point) * scale, as the ONNX operator defines it. Shapes: N rows (outputs or
words), K inputs; the file holds [N, K], or [K, N] where a MatMul reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from assay.verification.folder import ModelFolder

if TYPE_CHECKING:
    import onnx

__all__ = ["QdqFacts", "decode_qdq", "find_qdq_nodes", "is_decodable", "is_transposed"]

AnyArray = npt.NDArray[Any]


class QdqFacts:
    """One DequantizeLinear on a stored matrix: names, axis, block size, bits, sign."""

    def __init__(self, folder: ModelFolder, node: onnx.NodeProto) -> None:
        from onnx import TensorProto

        self.node = node
        attributes = {a.name: int(a.i) for a in node.attribute}
        self.codes, self.scales = node.input[0], node.input[1]
        self.zero_points = node.input[2] if len(node.input) > 2 else ""
        proto = folder.initializers[self.codes]
        self.shape = tuple(int(dim) for dim in proto.dims)
        self.axis = attributes.get("axis", 1) % max(1, len(self.shape))
        self.block_size = attributes.get("block_size", 0)
        self.bits = 4 if proto.data_type in (TensorProto.INT4, TensorProto.UINT4) else 8
        self.is_signed = proto.data_type in (TensorProto.INT4, TensorProto.INT8)


def find_qdq_nodes(folder: ModelFolder) -> list[onnx.NodeProto]:
    """DequantizeLinear nodes whose codes are stored."""
    return [
        node
        for node in folder.proto.graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in folder.initializers
    ]


def is_decodable(folder: ModelFolder, node: onnx.NodeProto) -> bool:
    """Whether codes, scales and zero points are stored, as a matrix of 4 or 8 bits."""
    from onnx import TensorProto

    kinds = (TensorProto.INT4, TensorProto.UINT4, TensorProto.INT8, TensorProto.UINT8)
    proto = folder.initializers[node.input[0]]
    stored = all(name in folder.initializers for name in node.input if name)
    return stored and len(proto.dims) == 2 and proto.data_type in kinds


def is_transposed(folder: ModelFolder, output: str) -> bool:
    """Whether the matrix is read as [K, N]: by a MatMul, or a Gemm without transB."""
    for node in folder.proto.graph.node:
        if output not in node.input:
            continue
        if node.op_type == "Transpose":
            return not is_transposed(folder, node.output[0])
        if node.op_type == "MatMul":
            return bool(list(node.input).index(output) == 1)
        if node.op_type == "Gemm":
            return not any(a.name == "transB" and a.i for a in node.attribute)
    return False


def decode_qdq(
    facts: QdqFacts, codes: AnyArray, scales: AnyArray, zero_points: AnyArray | None
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Codes, zero points and scales of every element, in the stored shape; codes from 0 on."""
    middle = (1 << (facts.bits - 1)) if facts.is_signed else 0
    whole = _unsigned(facts, codes, facts.shape, middle)
    parameters = tuple(np.shape(scales))
    zeros = np.full(parameters, middle, np.float32)
    if zero_points is not None:
        zeros = _unsigned(facts, zero_points, parameters, middle).astype(np.float32)
    return whole, _spread(facts, zeros), _spread(facts, np.asarray(scales, np.float32))


def _unsigned(
    facts: QdqFacts, stored: AnyArray, shape: tuple[int, ...], middle: int
) -> npt.NDArray[np.uint8]:
    """Codes from 0 on; 4-bit ones lie two in a byte, the first in the low half."""
    if facts.bits == 8:
        wide = stored.reshape(shape).astype(np.int16) + middle
        return np.asarray(wide, np.uint8)
    pairs = np.ascontiguousarray(stored).reshape(-1).view(np.uint8)
    nibbles = np.stack([pairs & 15, pairs >> 4], 1).reshape(-1)[: int(np.prod(shape))]
    return np.asarray((nibbles ^ middle).reshape(shape), np.uint8)


def _spread(facts: QdqFacts, parameters: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """One value per element: of the tensor, of its place on the axis, or of its block."""
    if parameters.size == 1:
        return np.broadcast_to(parameters.reshape(()), facts.shape)
    if facts.block_size:
        spread = np.repeat(parameters, facts.block_size, axis=facts.axis)
        return spread[: facts.shape[0], : facts.shape[1]]
    shape = [1, 1]
    shape[facts.axis] = -1
    return np.broadcast_to(parameters.reshape(shape), facts.shape)
