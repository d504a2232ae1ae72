"""Edits of a graph in memory: logits at every position, and exact arithmetic in packed matmuls.

A generation graph gathers the last position before its head. To judge every position, that one
node is bypassed; everything else stays as it is. The weights stay in the folder's own data file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import onnx

__all__ = ["bypass_last_position", "cut_to_values", "keep_last_positions", "set_accuracy_level"]

# Ops between the logits and the node that picks the last position; input 0 carries the tokens.
_HEAD_OPS = frozenset(
    {
        "MatMul",
        "MatMulNBits",
        "Gemm",
        "Add",
        "Mul",
        "Div",
        "Tanh",
        "Cast",
        "Reshape",
        "Squeeze",
        "Unsqueeze",
        "Identity",
        "LayerNormalization",
        "RMSNormalization",
        "SimplifiedLayerNormalization",
        "SkipSimplifiedLayerNormalization",
        "SkipLayerNormalization",
        "Transpose",
        "Clip",
        "Sub",
        "FusedMatMul",
        "Where",
    }
)
_PICKERS = frozenset({"Gather", "Slice", "GatherND", "GatherElements"})
_MATMULS = frozenset({"MatMul", "MatMulNBits", "Gemm", "FusedMatMul"})
_MAX_DEPTH = 24


def bypass_last_position(proto: onnx.ModelProto, logits: str) -> onnx.ModelProto | None:
    """Return a copy of the graph whose logits cover every position, or None.

    None means that no single node picks the last position between final norm and head: either
    the graph gives every position already, or it does it in a way that isn't known here.
    """
    producers = {out: node for node in proto.graph.node for out in node.output if out}
    found = _find_picker(proto, producers, logits)
    if found is None:
        return None
    edited = type(proto)()
    edited.CopyFrom(proto)
    source, replaced = found
    for node in edited.graph.node:
        for index, name in enumerate(node.input):
            if name == replaced:
                node.input[index] = source
    del edited.graph.value_info[:]
    for output in edited.graph.output:
        if output.name == logits and len(output.type.tensor_type.shape.dim) == 3:
            output.type.tensor_type.shape.dim[1].dim_param = "judged_positions"
    return edited


def keep_last_positions(proto: onnx.ModelProto, logits: str, count: int) -> onnx.ModelProto | None:
    """Return a copy whose head computes the last `count` positions, or None.

    A wide vocabulary's logits of a whole prompt take more memory than the model. The cut takes
    the place of the node that picks the last position; without one it stands before the head's
    matmul. None means that there is no place for it that is known.
    """
    producers = {out: node for node in proto.graph.node for out in node.output if out}
    found = _find_picker(proto, producers, logits) or _find_head(producers, logits)
    if found is None:
        return None
    source, replaced = found
    edited = type(proto)()
    edited.CopyFrom(proto)
    cut = f"{source}_last_positions"
    readers = [node for node in edited.graph.node if replaced in node.input]
    if replaced == source:
        readers = [node for node in readers if node.op_type in _MATMULS]
    for node in readers:
        for index, name in enumerate(node.input):
            if name == replaced:
                node.input[index] = cut
    place = list(edited.graph.node).index(readers[0])
    for added in reversed(_make_cut(source, cut, count)):
        edited.graph.node.insert(place, added)
    del edited.graph.value_info[:]
    for output in edited.graph.output:
        if output.name == logits and len(output.type.tensor_type.shape.dim) == 3:
            output.type.tensor_type.shape.dim[1].dim_param = "last_positions"
    return edited


def _find_head(producers: dict[str, onnx.NodeProto], logits: str) -> tuple[str, str] | None:
    """The value that the head's matmul reads, twice; None where it has lost the token axis."""
    name = logits
    for _ in range(_MAX_DEPTH):
        node = producers.get(name)
        if node is None or node.op_type not in _HEAD_OPS or node.op_type == "Reshape":
            return None
        source = _main_input(node, producers)
        if node.op_type in _MATMULS:
            return None if node.op_type == "Gemm" or source not in producers else (source, source)
        name = source
    return None


def _make_cut(source: str, cut: str, count: int) -> list[onnx.NodeProto]:
    """source[:, -count:] as nodes; the numbers are nodes too, so that no weight is added."""
    from onnx import TensorProto, helper

    ends = {"starts": -count, "ends": np.iinfo(np.int64).max, "axes": 1}
    nodes = [
        helper.make_node(
            "Constant",
            [],
            [f"{cut}_{word}"],
            f"{cut}_{word}",
            value=helper.make_tensor(word, TensorProto.INT64, [1], [value]),
        )
        for word, value in ends.items()
    ]
    inputs = [source, *(node.output[0] for node in nodes)]
    return [*nodes, helper.make_node("Slice", inputs, [cut], cut)]


def cut_to_values(proto: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """Return a copy that computes these values, and nothing that they don't need.

    Inputs stay declared, so that a run is fed as before.
    """
    from onnx import ValueInfoProto

    edited = type(proto)()
    edited.CopyFrom(proto)
    graph = edited.graph
    producers = {out: i for i, node in enumerate(graph.node) for out in node.output if out}
    needed: set[int] = set()
    open_names = list(names)
    while open_names:
        place = producers.get(open_names.pop())
        if place is not None and place not in needed:
            needed.add(place)
            open_names += _list_read(graph.node[place])
    declared = {value.name: value for value in (*proto.graph.value_info, *proto.graph.output)}
    kept = [graph.node[place] for place in sorted(needed)]
    made = {name for node in kept for name in node.output}
    values = [value for value in graph.value_info if value.name in made - set(names)]
    for field, items in (("node", kept), ("value_info", values)):
        copies = [type(item)() for item in items]
        for copy, item in zip(copies, items, strict=True):
            copy.CopyFrom(item)
        del getattr(graph, field)[:]
        getattr(graph, field).extend(copies)
    del graph.output[:]
    graph.output.extend(declared.get(name, ValueInfoProto(name=name)) for name in names)
    return edited


def _list_read(node: onnx.NodeProto) -> list[str]:
    """Every value that a node reads, those of the graphs inside it included."""
    inner = [
        name
        for attribute in node.attribute
        for graph in (attribute.g, *attribute.graphs)
        for inside in graph.node
        for name in _list_read(inside)
    ]
    return [*node.input, *inner]


def _find_picker(
    proto: onnx.ModelProto, producers: dict[str, onnx.NodeProto], logits: str
) -> tuple[str, str] | None:
    """(the value with every position, the value with the last one that it replaces)."""
    unsqueezed, name, num_matmuls = "", logits, 0
    for _ in range(_MAX_DEPTH):
        node = producers.get(name)
        if node is None:
            return None
        if node.op_type in _PICKERS:
            return _check_picker(proto, producers, node, unsqueezed)
        num_matmuls += node.op_type in _MATMULS
        if node.op_type not in _HEAD_OPS or num_matmuls > 1:
            return None
        if node.op_type == "Unsqueeze":
            unsqueezed = name
        elif unsqueezed and node.op_type not in ("Cast", "Identity"):
            unsqueezed = ""
        name = _main_input(node, producers)
    return None


def _main_input(node: onnx.NodeProto, producers: dict[str, onnx.NodeProto]) -> str:
    """The input that carries tokens: the first that some node computes."""
    if node.op_type == "Where":
        return str(node.input[1])
    computed = [n for n in node.input[:2] if n in producers and producers[n].op_type != "Constant"]
    return str(computed[0] if computed else node.input[0])


def _check_picker(
    proto: onnx.ModelProto,
    producers: dict[str, onnx.NodeProto],
    node: onnx.NodeProto,
    unsqueezed: str,
) -> tuple[str, str] | None:
    """Accept a picker on the token axis; a scalar index needs the Unsqueeze that follows it."""
    if node.op_type == "Slice":
        axes = _constant(proto, producers, node.input[3]) if len(node.input) > 3 else None
        on_tokens = axes is not None and axes.size == 1 and axes.item() in (1, -2)
        return (str(node.input[0]), str(node.output[0])) if on_tokens else None
    axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
    if node.op_type != "Gather" or axis not in (1, -2):
        return None
    index = _constant(proto, producers, node.input[1])
    if index is not None and index.size != 1:
        return None
    if (index is not None and index.ndim == 0) or (index is None and unsqueezed):
        return (str(node.input[0]), unsqueezed) if unsqueezed else None
    return str(node.input[0]), str(node.output[0])


def _constant(
    proto: onnx.ModelProto, producers: dict[str, onnx.NodeProto], name: str
) -> npt.NDArray[np.generic] | None:
    """The value of a small constant that lies in the graph itself, or None."""
    from onnx import numpy_helper

    for tensor in proto.graph.initializer:
        if tensor.name == name and not tensor.external_data:
            return numpy_helper.to_array(tensor)
    node = producers.get(name)
    if node is not None and node.op_type == "Constant":
        for attribute in node.attribute:
            if attribute.name == "value":
                return numpy_helper.to_array(attribute.t)
            if attribute.name in ("value_int", "value_ints"):
                ints = attribute.i if attribute.name == "value_int" else list(attribute.ints)
                return np.asarray(ints)
    return None


def set_accuracy_level(proto: onnx.ModelProto, level: int) -> onnx.ModelProto:
    """Return a copy whose packed matmuls and experts compute at `level` (0: as exact as floats)."""
    edited = type(proto)()
    edited.CopyFrom(proto)
    for node in edited.graph.node:
        if node.op_type in ("MatMulNBits", "QMoE"):
            kept = [a for a in node.attribute if a.name != "accuracy_level"]
            del node.attribute[:]
            node.attribute.extend(kept)
            added = node.attribute.add()
            added.name, added.type, added.i = "accuracy_level", added.INT, level
    return edited
