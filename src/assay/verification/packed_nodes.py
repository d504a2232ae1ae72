"""Which stored tensors a graph computes with as packed weights, and how each is to be read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from assay.errors import RuntimeFolderError
from assay.verification.folder import ModelFolder
from assay.verification.qdq import QdqFacts, find_qdq_nodes, is_decodable, is_transposed
from assay.verification.weights import PackedTensor

if TYPE_CHECKING:
    import onnx

__all__ = ["find_packed_tensors"]


def find_packed_tensors(folder: ModelFolder) -> list[PackedTensor]:
    """Every packed matrix that the graph reads, each once.

    Read by MatMulNBits, GatherBlockQuantized, QMoE (integers, not prepacked) or DequantizeLinear.
    """
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
        elif node.op_type == "QMoE":
            found |= {tensor.packed: tensor for tensor in _read_experts(folder, node)}
            continue
        else:
            continue
        if earlier := found.get(tensor.packed):
            roles = tuple(dict.fromkeys(earlier.roles + tensor.roles))
            exact = min(earlier, tensor, key=lambda t: t.num_inputs)  # without group padding
            tensor = replace(exact, roles=roles, nodes=earlier.nodes + tensor.nodes)
        found[tensor.packed] = tensor
    for node in find_qdq_nodes(folder):
        if is_decodable(folder, node):
            found.setdefault(node.input[0], _read_qdq(folder, node))
    return list(found.values())


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


def _read_qdq(folder: ModelFolder, node: onnx.NodeProto) -> PackedTensor:
    facts = QdqFacts(folder, node)
    transposed = is_transposed(folder, node.output[0])
    num_inputs, num_rows = facts.shape if transposed else facts.shape[::-1]
    along_inputs = facts.axis == (0 if transposed else 1)
    scale_count = int(np.prod(folder.initializers[facts.scales].dims))
    group = facts.block_size if along_inputs and facts.block_size else num_inputs
    if along_inputs and not facts.block_size and scale_count > 1:
        group = 1
    is_embedding = any(
        n.op_type == "Gather" and n.input[0] == node.output[0] for n in folder.proto.graph.node
    )
    return PackedTensor(
        packed=facts.codes,
        scales=facts.scales,
        zero_points=facts.zero_points,
        group_index="",
        bits=facts.bits,
        group_size=group,
        num_rows=num_rows,
        num_inputs=num_inputs,
        default_zero_point=(1 << (facts.bits - 1)) if facts.is_signed else 0,
        roles=("embedding",) if is_embedding else ("matmul",),
        nodes=(node.name,),
        qdq=facts,
        transposed=transposed,
    )


# Inputs of QMoE: weights, scales, zero points of fc1, fc2 and fc3.
_EXPERT_INPUTS = ((2, 3, 11), (5, 6, 12), (8, 9, 13))


def _read_experts(folder: ModelFolder, node: onnx.NodeProto) -> Iterator[PackedTensor]:
    """The experts' matrices [E * N, K]; nothing where they are no plain integers."""
    attributes = _attributes(node)
    kind = next((a.s.decode() for a in node.attribute if a.name == "quant_type"), "int")
    if kind != "int" or attributes.get("weights_prepacked", 0) > 0:
        return
    for number, inputs in enumerate(_EXPERT_INPUTS, start=1):
        packed, scales, zero_points = (_initializer(folder, node, i, {}) for i in inputs)
        by_column = bool(zero_points) and len(folder.initializers[zero_points].dims) == 2
        if not packed or not scales or by_column:
            continue
        bits = attributes.get(
            f"fc{number}_expert_weight_bits", attributes.get("expert_weight_bits", 4)
        )
        num_experts, rows, num_bytes = (int(d) for d in folder.initializers[packed].dims)
        num_inputs = num_bytes * 8 // bits
        block = attributes.get("block_size", 0)
        yield PackedTensor(
            packed=packed,
            scales=scales,
            zero_points=zero_points,
            group_index="",
            bits=bits,
            group_size=block if block > 0 else num_inputs,
            num_rows=num_experts * rows,
            num_inputs=num_inputs,
            default_zero_point=1 << (bits - 1),
            roles=("experts",),
            nodes=(node.name,),
            num_experts=num_experts,
        )
