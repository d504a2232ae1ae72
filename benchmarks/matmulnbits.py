"""What layout and accuracy level cost in onnxruntime: the numbers of docs/decisions/0002.

python benchmarks/matmulnbits.py levels   time of one MatMulNBits, by grid and accuracy_level
python benchmarks/matmulnbits.py tied     resident memory of an embedding that shares its
                                          bytes with the head, by the way they are shared
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from assay.quantization import Grid, quantize_rows

VOCABULARY, HIDDEN = 262144, 640  # Gemma 3 270M
OPSETS = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]

LOAD = """
import json, sys, numpy, onnxruntime
def read_memory():
    with open("/proc/self/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    return {key: int(lines[key].split()[0]) / 1024 for key in ("VmRSS", "RssAnon", "VmHWM")}
before = read_memory()
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
hidden = numpy.ones((1, 3, int(sys.argv[2])), "f")
wanted = {"i": numpy.arange(5)[None], "a": hidden}
session.run(None, {value.name: wanted[value.name] for value in session.get_inputs()})
after = read_memory()
print(json.dumps({key: after[key] - before[key] for key in before}))
"""


def make_matmul(grid: Grid, inputs: int, outputs: int, level: int, names: list[str]) -> Any:
    return helper.make_node(
        "MatMulNBits",
        names,
        ["logits"],
        domain="com.microsoft",
        K=inputs,
        N=outputs,
        bits=grid.bits,
        block_size=grid.group_size,
        accuracy_level=level,
    )


def measure_levels() -> None:
    """Print milliseconds of an 8192 x 2048 MatMulNBits on one thread, best of 5."""
    rng = np.random.default_rng(0)
    outputs, inputs = 8192, 2048
    weight = rng.standard_normal((outputs, inputs), dtype=np.float32)
    print(f"{outputs} x {inputs}, one thread, ms, best of 5; onnxruntime {ort.__version__}")
    print("grid                 level  1 token  64 tokens")
    for bits in (4, 8):
        for symmetric in (True, False):
            for group_size in (16, 32, 128):
                grid = Grid(bits=bits, group_size=group_size, symmetric=symmetric)
                quantized = quantize_rows(weight, grid)
                constants = {"b": quantized.packed, "s": quantized.scales}
                if quantized.zero_points is not None:
                    constants["z"] = quantized.zero_points
                for level in (0, 4):
                    node = make_matmul(grid, inputs, outputs, level, ["a", *constants])
                    times = measure_matmul(node, constants, inputs)
                    kind = "symmetric" if symmetric else "asymmetric"
                    label = f"int{bits} g{group_size} {kind}"
                    print(f"{label:<20} {level:>5} {times[0]:>8.2f} {times[1]:>10.2f}", flush=True)


def measure_matmul(node: Any, constants: dict[str, np.ndarray], inputs: int) -> list[float]:
    """Milliseconds for 1 and for 64 tokens."""
    graph = helper.make_graph(
        [node],
        "level",
        [helper.make_tensor_value_info("a", TensorProto.FLOAT, ["tokens", inputs])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=OPSETS, ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options)
    best = []
    for tokens in (1, 64):
        feeds = {"a": np.ones((tokens, inputs), np.float32)}
        times = []
        for _ in range(6):
            start = time.perf_counter()
            session.run(None, feeds)
            times.append(time.perf_counter() - start)
        best.append(min(times[1:]) * 1e3)
    return best


def measure_tied() -> None:
    """Print MB that a session adds to its process, in a fresh process each."""
    print(f"vocabulary {VOCABULARY}, hidden {HIDDEN}, group 32 symmetric; MB added by the session")
    print("bits level sharing        data  resident  anonymous  peak")
    weight = np.random.default_rng(0).standard_normal((VOCABULARY, HIDDEN), dtype=np.float32)
    for bits, level in ((4, 4), (4, 0), (8, 4), (8, 0)):
        quantized = quantize_rows(weight, Grid(bits=bits, group_size=32, symmetric=True))
        size = (quantized.packed.nbytes + quantized.scales.nbytes) / 2**20
        for sharing in ("head only", "twice", "reshape"):
            with tempfile.TemporaryDirectory() as folder:
                path = write_tied(Path(folder), quantized.packed, quantized.scales, level, sharing)
                memory = json.loads(
                    subprocess.run(
                        [sys.executable, "-c", LOAD, str(path), str(HIDDEN)],
                        capture_output=True,
                        text=True,
                        check=True,
                    ).stdout
                )
            numbers = " ".join(f"{memory[key]:>9.0f}" for key in ("VmRSS", "RssAnon", "VmHWM"))
            print(f"{bits:>4} {level:>5} {sharing:<12} {size:>6.0f} {numbers}", flush=True)


def write_tied(
    folder: Path, packed: np.ndarray, scales: np.ndarray, level: int, sharing: str
) -> Path:
    """Write a model of an embedding and a head over the same external bytes."""
    grid = Grid(bits=packed.shape[2] // 4, group_size=32, symmetric=True)
    (folder / "m.data").write_bytes(packed.tobytes() + scales.tobytes())
    flat = packed.reshape(len(packed), -1)
    tensors = [
        make_external("packed", packed, 0),
        make_external("scales", scales, packed.nbytes),
    ]
    nodes = [make_matmul(grid, HIDDEN, VOCABULARY, level, ["a", "packed", "scales"])]
    if sharing == "twice":
        tensors.append(make_external("flat", flat, 0))
    elif sharing == "reshape":
        tensors.append(numpy_helper.from_array(np.array(flat.shape), "shape"))
        nodes.append(helper.make_node("Reshape", ["packed", "shape"], ["flat"]))
    inputs = [helper.make_tensor_value_info("a", TensorProto.FLOAT, [1, None, HIDDEN])]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, None)]
    if sharing != "head only":
        inputs.append(helper.make_tensor_value_info("i", TensorProto.INT64, [1, None]))
        outputs.append(helper.make_tensor_value_info("embedded", TensorProto.FLOAT, None))
        nodes.append(
            helper.make_node(
                "GatherBlockQuantized",
                ["flat", "i", "scales"],
                ["embedded"],
                domain="com.microsoft",
                bits=grid.bits,
                block_size=grid.group_size,
                gather_axis=0,
                quantize_axis=1,
            )
        )
    graph = helper.make_graph(nodes, "tied", inputs, outputs, tensors)
    onnx.save(helper.make_model(graph, opset_imports=OPSETS, ir_version=10), folder / "m.onnx")
    return folder / "m.onnx"


def make_external(name: str, value: np.ndarray, offset: int) -> TensorProto:
    tensor = TensorProto(name=name, data_location=TensorProto.EXTERNAL)
    tensor.data_type = helper.np_dtype_to_tensor_dtype(value.dtype)
    tensor.dims.extend(value.shape)
    for key, entry in (("location", "m.data"), ("offset", offset), ("length", value.nbytes)):
        tensor.external_data.add(key=key, value=str(entry))
    return tensor


if __name__ == "__main__":
    {"levels": measure_levels, "tied": measure_tied}[sys.argv[1]]()
