"""The graph of a folder: it passes the checker, and every node and value is told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, shape_inference

from tests.pipeline.running import draw_ids, load_graph, open_session


def test_the_full_checker_passes(folder: Path, tmp_path: Path) -> None:
    """proves: B4, B11. Control: a value typed wrongly fails it."""
    onnx.checker.check_model(str(folder / "model.onnx"), full_check=True)
    model = load_graph(folder)
    value = next(value for value in model.graph.value_info if "norm" in value.name)
    value.type.tensor_type.elem_type = TensorProto.INT32
    with pytest.raises(shape_inference.InferenceError):
        shape_inference.infer_shapes(model, strict_mode=True, check_type=True, data_prop=True)


def list_untyped(model: onnx.ModelProto) -> list[str]:
    """Names of values without a dtype, a rank or a dimension."""
    graph = model.graph
    declared = {v.name: v for v in [*graph.value_info, *graph.input, *graph.output]}
    stored = {tensor.name for tensor in graph.initializer}
    names = [name for node in graph.node for name in [*node.input, *node.output] if name]
    return [name for name in names if name not in stored and not _is_typed(declared.get(name))]


def _is_typed(value: onnx.ValueInfoProto | None) -> bool:
    if value is None:
        return False
    tensor = value.type.tensor_type
    dims = tensor.shape.dim
    return bool(tensor.elem_type and tensor.HasField("shape")) and all(
        dim.dim_value > 0 or dim.dim_param for dim in dims
    )


def test_every_value_is_typed_and_shaped(folder: Path) -> None:
    """proves: B4. Control: one value's declaration taken away is found."""
    model = load_graph(folder)
    assert list_untyped(model) == []
    assert len(model.graph.value_info) > 20
    removed = model.graph.value_info.pop()
    assert removed.name in list_untyped(model)


NODE_NAME = re.compile(r"[a-z_]\w*(\.\w+)*")


def test_every_node_has_a_unique_path_like_name(folder: Path) -> None:
    """proves: B4. Control: the pattern refuses what other tools write."""
    graph = load_graph(folder).graph
    names = [node.name for node in graph.node]
    assert len(set(names)) == len(names)
    assert [name for name in names if not NODE_NAME.fullmatch(name)] == []
    assert {"model.embed_tokens", "model.norm", "lm_head"} <= set(names)
    inside = [name for name in names if name.startswith("model.layers.")]
    assert {name.split(".")[2] for name in inside} == {"0", "1"}
    for name in ("input_layernorm", "self_attn.o_proj", "mlp.down_proj"):
        assert f"model.layers.1.{name}" in names
    outputs = [name for node in graph.node for name in node.output if name]
    assert len(set(outputs)) == len(outputs)
    for foreign in ("/model/layers.0/MatMul", "MatMul_12", "model..norm", "a/b", ""):
        assert not NODE_NAME.fullmatch(foreign)


def test_declared_shapes_are_those_of_a_run(folder: Path, tmp_path: Path) -> None:
    """Every intermediate value, made an output, has the declared dtype and shape. proves: B4

    Control: the symbolic dimensions are bound once, so two that disagree would be found.
    """
    model = onnx.load(folder / "model.onnx")
    values = list(model.graph.value_info)
    shown = {value.name for value in values}
    model.graph.output.extend(values)
    onnx.save(model, tmp_path / "model.onnx", save_as_external_data=True, location="data")
    session = open_session(tmp_path)
    ids = draw_ids(72, 5)
    feeds: dict[str, np.ndarray[Any, Any]] = {}
    for value in session.get_inputs():
        dtype = helper.tensor_dtype_to_np_dtype(_ONNX_TYPES[value.type])
        shape = [{"batch": 1, "past": 3, "total": 8}.get(d, d) for d in value.shape]
        shape = [5 if dim == "sequence" else dim for dim in shape]
        feeds[value.name] = np.ones(shape, dtype)
    feeds["input_ids"] = ids
    if "position_ids" in feeds:
        feeds["position_ids"] = np.arange(3, 8)[None]
    names = [output.name for output in session.get_outputs()]
    results = dict(zip(names, session.run(names, feeds), strict=True))
    bound: dict[str, int] = {}
    for value in [*values, *load_graph(folder).graph.output]:
        check_value(value, results[value.name], bound)
    assert bound["batch"] == 1
    assert bound["sequence"] == 5
    assert shown <= set(results)
    wrong = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "sequence", 7])
    with pytest.raises(AssertionError):
        check_value(wrong, np.zeros((1, 4, 7), np.float32), bound)


_ONNX_TYPES = {
    "tensor(int64)": TensorProto.INT64,
    "tensor(float)": TensorProto.FLOAT,
    "tensor(float16)": TensorProto.FLOAT16,
}


def check_value(
    value: onnx.ValueInfoProto, array: np.ndarray[Any, Any], bound: dict[str, int]
) -> None:
    """An array fits a declaration; names of dimensions are bound to sizes in `bound`."""
    tensor = value.type.tensor_type
    assert array.dtype == helper.tensor_dtype_to_np_dtype(tensor.elem_type), value.name
    assert len(tensor.shape.dim) == array.ndim, value.name
    for dim, size in zip(tensor.shape.dim, array.shape, strict=True):
        expected = bound.setdefault(dim.dim_param, size) if dim.dim_param else dim.dim_value
        assert size == expected, (value.name, array.shape, dim)
