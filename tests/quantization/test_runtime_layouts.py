"""What onnxruntime's operators compute from our bytes: the rows of docs/decisions/0002."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from assay.quantization import Grid, QuantizedRows, dequantize_rows, quantize_rows

GRIDS = [
    Grid(bits=bits, group_size=group_size, symmetric=symmetric)
    for bits in (4, 8)
    for symmetric in (True, False)
    for group_size in (16, 32, 64, 128, 256)
]
# Whole groups of every size, a partial last one, an odd number of inputs, less than one group.
INPUTS = (512, 100, 333, 12)
VOCABULARY = 48


def run_nodes(
    nodes: list[onnx.NodeProto], constants: Mapping[str, np.ndarray], feeds: dict[str, np.ndarray]
) -> list[np.ndarray]:
    """Run a graph whose results are the outputs named y0, y1, ... on CPU."""
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    return open_session(make_model(nodes, tensors, feeds).SerializeToString()).run(None, feeds)


def make_model(
    nodes: list[onnx.NodeProto], tensors: list[TensorProto], feeds: dict[str, np.ndarray]
) -> onnx.ModelProto:
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in feeds.items()
    ]
    floats = {value.dtype for value in feeds.values() if value.dtype.kind == "f"}
    kind = TensorProto.FLOAT16 if floats == {np.dtype(np.float16)} else TensorProto.FLOAT
    names = sorted(name for node in nodes for name in node.output if name.startswith("y"))
    outputs = [helper.make_tensor_value_info(name, kind, None) for name in names]
    graph = helper.make_graph(nodes, "layouts", inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def open_session(model: bytes | str) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def make_matmul(
    grid: Grid, inputs: int, outputs: int, level: int, names: list[str], result: str = "y0"
) -> onnx.NodeProto:
    return helper.make_node(
        "MatMulNBits",
        names,
        [result],
        domain="com.microsoft",
        K=inputs,
        N=outputs,
        bits=grid.bits,
        block_size=grid.group_size,
        accuracy_level=level,
    )


def make_gather(grid: Grid, names: list[str], result: str = "y0") -> onnx.NodeProto:
    return helper.make_node(
        "GatherBlockQuantized",
        names,
        [result],
        domain="com.microsoft",
        bits=grid.bits,
        block_size=grid.group_size,
        gather_axis=0,
        quantize_axis=1,
    )


def make_quantized(grid: Grid, inputs: int, rows: int = VOCABULARY) -> QuantizedRows:
    rng = np.random.default_rng(inputs)
    weight = (rng.standard_normal((rows, inputs)) * 0.05 + 0.02).astype(np.float32)
    return quantize_rows(weight, grid)


def name_constants(quantized: QuantizedRows, dtype: Any = np.float32) -> dict[str, np.ndarray]:
    constants = {"packed": quantized.packed, "scales": quantized.scales.astype(dtype)}
    if quantized.zero_points is not None:
        constants["zero_points"] = quantized.zero_points
    return constants


def measure_relative(got: np.ndarray, wanted: np.ndarray) -> float:
    difference = got.astype(np.float64) - wanted
    return float(np.linalg.norm(difference) / np.linalg.norm(wanted.astype(np.float64)))


# proves: B10 (rows M1, M2; accuracy_level 0 computes with the decoded weight itself)
@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize(("level", "bound"), [(0, 1e-6), (4, 0.012)])
def test_matmulnbits_computes_with_the_decoded_weight(grid: Grid, level: int, bound: float) -> None:
    rng = np.random.default_rng(0)
    for inputs in INPUTS:
        quantized = make_quantized(grid, inputs)
        decoded = dequantize_rows(quantized, inputs, grid).astype(np.float64)
        constants = name_constants(quantized)
        node = make_matmul(grid, inputs, VOCABULARY, level, ["a", *constants])
        for tokens in (1, 17):
            # Off centre, so that a shift of all weights can't cancel out.
            activation = rng.standard_normal((tokens, inputs), dtype=np.float32)
            activation += np.float32(0.5)
            wanted = activation.astype(np.float64) @ decoded.T
            (got,) = run_nodes([node], constants, {"a": activation})
            assert measure_relative(got, wanted) < bound
            # the control: the same bytes with the scales' signs lost, or another zero point
            if grid.symmetric:
                wrong = constants | {"scales": np.abs(constants["scales"])}
            else:
                wrong = constants | {"zero_points": constants["zero_points"] ^ 0x44}
            (got,) = run_nodes([node], wrong, {"a": activation})
            assert measure_relative(got, wanted) > 0.2


# proves: P10 (row M2: level 4 rounds activations to int8, level 0 doesn't)
@pytest.mark.parametrize("bits", [4, 8])
def test_level_4_is_itself_a_source_of_error(bits: int) -> None:
    grid = Grid(bits=bits, group_size=32, symmetric=True)
    quantized = make_quantized(grid, 512)
    activation = np.random.default_rng(0).standard_normal((8, 512), dtype=np.float32)
    wanted = activation.astype(np.float64) @ dequantize_rows(quantized, 512, grid).T
    node = make_matmul(grid, 512, VOCABULARY, 4, ["a", "packed", "scales"])
    (got,) = run_nodes([node], name_constants(quantized), {"a": activation})
    assert measure_relative(got, wanted) > 1e-3


# proves: B10 (row M3)
@pytest.mark.parametrize("grid", [grid for grid in GRIDS if grid.group_size == 32], ids=str)
@pytest.mark.parametrize("inputs", INPUTS)
def test_matmulnbits_in_float16(grid: Grid, inputs: int) -> None:
    quantized = make_quantized(grid, inputs)
    constants = name_constants(quantized, np.float16)
    rounded = quantized._replace(scales=constants["scales"].astype(np.float32))
    decoded = dequantize_rows(rounded, inputs, grid).astype(np.float64)
    activation = np.random.default_rng(0).standard_normal((3, inputs)).astype(np.float16)
    node = make_matmul(grid, inputs, VOCABULARY, 0, ["a", *constants])
    (got,) = run_nodes([node], constants, {"a": activation})
    assert measure_relative(got, activation.astype(np.float64) @ decoded.T) < 1e-3


# proves: B10 (rows G1, G2, G3)
@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_gather_decodes_the_bytes_of_matmulnbits(grid: Grid, dtype: Any) -> None:
    indices = np.array([[0, 47, 3], [3, 11, -1]], np.int64)
    for inputs in INPUTS:
        quantized = make_quantized(grid, inputs)
        constants = name_constants(quantized, dtype)
        rounded = quantized._replace(scales=constants["scales"].astype(np.float32))
        wanted = dequantize_rows(rounded, inputs, grid).astype(dtype)[indices]
        constants["packed"] = quantized.packed.reshape(VOCABULARY, -1)
        names = ["packed", "i", *list(constants)[1:]]
        # A float input only so that the model has the type of its output.
        feeds = {"i": indices, "unused": np.zeros(1, dtype)}
        (got,) = run_nodes([make_gather(grid, names)], constants, feeds)
        # As wide as the padded groups: a partial last group needs a Slice behind it.
        assert got.shape == (2, 3, grid.count_groups(inputs) * grid.group_size)
        assert np.array_equal(got[..., :inputs], wanted)
        assert not got[..., inputs:].any()


# proves: B10 (row G4)
@pytest.mark.parametrize("bits", [4, 8])
def test_gather_assumes_the_middle_as_zero_point(bits: int) -> None:
    grid = Grid(bits=bits, group_size=32, symmetric=True)
    middle = 0x88 if bits == 4 else 0x80
    constants = {
        "packed": np.full((4, grid.group_bytes), middle, np.uint8),
        "scales": np.ones((4, 1), np.float32),
    }
    indices = {"i": np.arange(4)}
    (got,) = run_nodes([make_gather(grid, ["packed", "i", "scales"])], constants, indices)
    assert not got.any()
    # the control: a stored zero point of 0 decodes the same bytes to 8 and 128
    names = ["packed", "i", "scales", "zero_points"]
    constants["zero_points"] = np.zeros((4, 1), np.uint8)
    (got,) = run_nodes([make_gather(grid, names)], constants, indices)
    assert np.all(got == grid.middle)


# proves: B10 (row G5)
def test_gather_refuses_another_width_of_scales() -> None:
    grid = Grid(bits=4, group_size=32, symmetric=True)
    quantized = make_quantized(grid, 100)
    # 100 inputs make 4 groups, 64 bytes; 40 bytes would be 3 groups.
    narrow = quantized.packed.reshape(VOCABULARY, -1)[:, :40]
    constants = {"packed": np.ascontiguousarray(narrow), "scales": quantized.scales}
    node = make_gather(grid, ["packed", "i", "scales"])
    with pytest.raises(Exception, match="data shape and scales shape do not match"):
        run_nodes([node], constants, {"i": np.arange(4)})


def make_external(name: str, value: np.ndarray, offset: int, file: str) -> TensorProto:
    tensor = TensorProto(name=name, data_location=TensorProto.EXTERNAL)
    tensor.data_type = helper.np_dtype_to_tensor_dtype(value.dtype)
    tensor.dims.extend(value.shape)
    for key, entry in (("location", file), ("offset", offset), ("length", value.nbytes)):
        tensor.external_data.add(key=key, value=str(entry))
    return tensor


# proves: B10 (rows T1, T2)
@pytest.mark.parametrize("grid", [grid for grid in GRIDS if grid.group_size in (32, 128)], ids=str)
@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize("sharing", ["twice", "reshape"])
@pytest.mark.parametrize("inputs", [256, 160])
def test_embedding_and_head_read_the_same_bytes(
    grid: Grid, level: int, sharing: str, inputs: int, tmp_path: Path
) -> None:
    quantized = make_quantized(grid, inputs)
    values = name_constants(quantized)
    groups, group_bytes = quantized.packed.shape[1:]
    (tmp_path / "m.data").write_bytes(b"".join(value.tobytes() for value in values.values()))
    offsets, offset = {}, 0
    for name, value in values.items():
        offsets[name], offset = offset, offset + value.nbytes
    tensors = [make_external(name, values[name], offsets[name], "m.data") for name in values]
    parameters = list(values)[1:]
    nodes = [make_matmul(grid, inputs, VOCABULARY, level, ["a", *values], "y1")]
    if sharing == "reshape":
        shape = numpy_helper.from_array(np.array([VOCABULARY, groups * group_bytes]), "shape")
        tensors.append(shape)
        nodes += [
            helper.make_node("Reshape", ["packed", "shape"], ["flat"]),
            make_gather(grid, ["flat", "i", *parameters]),
        ]
    else:
        flat = quantized.packed.reshape(VOCABULARY, -1)
        tensors.append(make_external("flat", flat, offsets["packed"], "m.data"))
        nodes.append(make_gather(grid, ["flat", "i", *parameters]))
    activation = np.random.default_rng(0).standard_normal((5, inputs), dtype=np.float32)
    feeds = {"i": np.arange(VOCABULARY), "a": activation}
    onnx.save(make_model(nodes, tensors, feeds), tmp_path / "m.onnx")
    embedded, logits = open_session(str(tmp_path / "m.onnx")).run(None, feeds)
    decoded = dequantize_rows(quantized, inputs, grid)
    assert np.array_equal(embedded.reshape(VOCABULARY, -1)[:, :inputs], decoded)
    wanted = activation.astype(np.float64) @ decoded.T
    assert measure_relative(logits, wanted) < (1e-6 if level == 0 else 0.012)
