# proves: P6, P7
"""Packed weights of every kind decode to what the operator's definition says, and are traced."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from assay.verification.folder import open_folder
from assay.verification.packed_nodes import find_packed_tensors
from assay.verification.weight_match import Parameters, match_by_value
from assay.verification.weights import decode_rows

ROWS, INPUTS, BLOCK = 6, 32, 16
KINDS = {
    "per tensor": {"axis": 1, "scale": ()},
    "per row of K": {"axis": 0, "scale": (INPUTS,)},
    "per column": {"axis": 1, "scale": (ROWS,)},
    "blocks along K": {"axis": 0, "scale": (INPUTS // BLOCK, ROWS), "block_size": BLOCK},
}


def write_qdq(folder, kind, code_type, *, with_zero_points=True, seed=0):
    """y = x @ DequantizeLinear(codes [K, N]); returns what ONNX Runtime makes of the codes."""
    generator = np.random.default_rng(seed)
    low, high = {
        TensorProto.INT4: (-8, 8),
        TensorProto.UINT4: (0, 16),
        TensorProto.INT8: (-128, 128),
        TensorProto.UINT8: (0, 256),
    }[code_type]
    facts = KINDS[kind]
    codes = generator.integers(low, high, (INPUTS, ROWS))
    scales = generator.uniform(0.01, 0.1, facts["scale"]).astype(np.float32)
    zeros = generator.integers(low, high, facts["scale"])
    inputs = ["codes", "scales"] + (["zeros"] if with_zero_points else [])
    attributes = {k: facts[k] for k in ("axis", "block_size") if k in facts}
    nodes = [
        helper.make_node("DequantizeLinear", inputs, ["w"], name="dq", **attributes),
        helper.make_node("MatMul", ["x", "w"], ["y"], name="matmul"),
    ]
    stored = [
        helper.make_tensor("codes", code_type, codes.shape, codes.reshape(-1)),
        numpy_helper.from_array(scales, "scales"),
    ]
    if with_zero_points:
        stored.append(helper.make_tensor("zeros", code_type, zeros.shape, zeros.reshape(-1)))
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT, ["n", INPUTS])],
        [value("y", TensorProto.FLOAT, ["n", ROWS]), value("w", TensorProto.FLOAT, [INPUTS, ROWS])],
        stored,
    )
    save(graph, folder)
    session = onnxruntime.InferenceSession(
        folder / "model.onnx", providers=["CPUExecutionProvider"]
    )
    return session.run(["w"], {"x": np.zeros((1, INPUTS), np.float32)})[0]


def save(graph, folder):
    opset = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), folder / "model.onnx")
    (folder / "genai_config.json").write_text(json.dumps({}))


def decode(folder):
    opened = open_folder(folder)
    (tensor,) = find_packed_tensors(opened)
    return tensor, np.concatenate([rows.weight_NK for _, rows in decode_rows(opened, tensor)])


@pytest.mark.parametrize("with_zero_points", [True, False])
@pytest.mark.parametrize("code_type", ["INT4", "UINT4", "INT8", "UINT8"])
@pytest.mark.parametrize("kind", KINDS)
def test_dequantize_linear(kind, code_type, with_zero_points, tmp_path):
    """Against ONNX Runtime's own operator. Control: another seed's codes decode to others."""
    expected = write_qdq(
        tmp_path, kind, getattr(TensorProto, code_type), with_zero_points=with_zero_points
    )
    tensor, weight_NK = decode(tmp_path)
    np.testing.assert_allclose(weight_NK, expected.T, rtol=1e-6, atol=1e-7)
    assert (tensor.num_rows, tensor.num_inputs, tensor.roles) == (ROWS, INPUTS, ("matmul",))
    write_qdq(tmp_path, kind, getattr(TensorProto, code_type), seed=1)
    assert not np.allclose(decode(tmp_path)[1], expected.T)


def write_experts(folder, weight_ENK, *, bits, block):
    """A QMoE node that holds the weight as fc1, rounded to the nearest code."""
    num_experts, rows, inputs = weight_ENK.shape
    groups = weight_ENK.reshape(num_experts, rows, -1, block or inputs)
    middle = 1 << (bits - 1)
    scales = np.abs(groups).max(-1) / (middle - 1)
    codes = np.clip(np.rint(groups / scales[..., None]) + middle, 0, 2 * middle - 1)
    codes = codes.reshape(num_experts, rows, inputs).astype(np.uint8)
    packed = codes if bits == 8 else codes[..., ::2] | (codes[..., 1::2] << 4)
    stored = {
        "fc1": packed,
        "fc1_scales": (scales if block else scales[..., 0]).astype(np.float32),
        "fc2": packed,
        "fc2_scales": (scales if block else scales[..., 0]).astype(np.float32),
    }
    attributes = {"k": 1, "expert_weight_bits": bits} | ({"block_size": block} if block else {})
    node = helper.make_node(
        "QMoE",
        ["x", "router", "fc1", "fc1_scales", "", "fc2", "fc2_scales"],
        ["y"],
        name="experts",
        domain="com.microsoft",
        **attributes,
    )
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node],
        "g",
        [
            value("x", TensorProto.FLOAT, ["n", inputs]),
            value("router", TensorProto.FLOAT, ["n", num_experts]),
        ],
        [value("y", TensorProto.FLOAT, ["n", inputs])],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    save(graph, folder)
    decoded = (codes.reshape(groups.shape).astype(np.float32) - middle) * scales[..., None]
    return decoded.reshape(num_experts * rows, inputs)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("block", [0, 16])
def test_experts(bits, block, tmp_path):
    """Stacked by expert, with the default zero point in the middle."""
    weight_ENK = np.random.default_rng(2).standard_normal((3, 8, 32)).astype(np.float32)
    expected = write_experts(tmp_path, weight_ENK, bits=bits, block=block)
    opened = open_folder(tmp_path)
    first = find_packed_tensors(opened)[0]
    assert (first.roles, first.num_experts) == (("experts",), 3)
    found = np.concatenate([rows.weight_NK for _, rows in decode_rows(opened, first)])
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    relative = np.linalg.norm(found - weight_ENK.reshape(found.shape)) / np.linalg.norm(weight_ENK)
    assert relative < (0.2 if bits == 4 else 0.02)


class Experts(torch.nn.Module):
    """A fused container as transformers 5 has it."""

    def __init__(self, weight_ENK):
        super().__init__()
        self.gate_up_proj = torch.nn.Parameter(torch.from_numpy(weight_ENK))


@pytest.mark.parametrize("interleaved", [False, True])
def test_experts_are_traced_whatever_their_row_order(interleaved, tmp_path):
    """Gate rows first, or gate and up in turns. Control: other weights are not found."""
    weight_ENK = np.random.default_rng(4).standard_normal((3, 8, 32)).astype(np.float32)
    stored = weight_ENK
    if interleaved:
        stored = weight_ENK.reshape(3, 2, 4, 32).swapaxes(1, 2).reshape(3, 8, 32)
    write_experts(tmp_path, np.ascontiguousarray(stored), bits=8, block=16)
    opened = open_folder(tmp_path)
    tensor = find_packed_tensors(opened)[0]
    (match,) = match_by_value(opened, tensor, Parameters(Experts(weight_ENK)))
    flat = weight_ENK.reshape(-1, 32)
    np.testing.assert_array_equal(flat[match.rows_R], stored.reshape(-1, 32))
    other = np.random.default_rng(5).standard_normal((3, 8, 32)).astype(np.float32)
    assert match_by_value(opened, tensor, Parameters(Experts(other))) is None
