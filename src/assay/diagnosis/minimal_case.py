"""The smallest model that still shows an unknown fault: for a report to the tool's authors.

The part of the graph between two places of the stream, with its weights, what goes in, and what
PyTorch makes of it: `model.onnx`, `inputs.npz`, `expected.npz`, `README.txt`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from assay.diagnosis.graph_map import Separator
from assay.errors import RuntimeFolderError
from assay.verification.candidate import Candidate
from assay.verification.weights import read_initializer

if TYPE_CHECKING:
    import onnx

__all__ = ["save_minimal_case"]

Array = npt.NDArray[Any]
_MOST_BYTES = 1 << 31  # a protobuf file can't be larger


def save_minimal_case(
    folder: Path,
    candidate: Candidate,
    ids_S: npt.NDArray[np.int64],
    *,
    first: Separator,
    last: Separator,
    expected_SH: npt.NDArray[np.float32],
    said: str,
) -> Path:
    """Write the part of a graph between two separators into a new folder, and return it.

    expected_SH: the reference's stream at `last`, given the folder's at `first`. said: what is
    known of the fault. Raises RuntimeFolderError where the part can't be cut out or the folder is
    there already.
    """
    import onnx

    proto = candidate.graph
    nodes = _cut(proto, first, last)
    made = {name for node in nodes for name in node.output}
    wanted = dict.fromkeys(name for node in nodes for name in _list_reads(node))
    stored = [name for name in wanted if name in candidate.folder.initializers]
    entering = [name for name in wanted if name not in made and name not in stored]
    size = sum(read_initializer(candidate.folder, name).nbytes for name in stored)
    if folder.exists() or size > _MOST_BYTES:
        raise RuntimeFolderError(
            str(folder),
            "is there already" if folder.exists() else f"would hold {size >> 20} MiB of weights",
            next_step="Give a folder that isn't there yet, or a smaller model.",
        )
    values = candidate.run_values(ids_S, entering)
    typed = _type(values, candidate)
    initializers = [_embed(candidate, name) for name in stored]
    graph = onnx.helper.make_graph(
        nodes,
        "minimal_case",
        [
            onnx.helper.make_tensor_value_info(
                n, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape
            )
            for n, v in typed.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in last.values if name in made],
        initializers,
    )
    model = onnx.helper.make_model(
        graph, opset_imports=proto.opset_import, ir_version=proto.ir_version
    )
    folder.mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    with (folder / "inputs.npz").open("wb") as file:
        np.savez(file, **typed)  # type: ignore[arg-type]
    np.savez(folder / "expected.npz", stream=expected_SH)
    (folder / "README.txt").write_text(_explain(last, made, said), encoding="utf-8")
    return folder


def _cut(proto: onnx.ModelProto, first: Separator, last: Separator) -> list[onnx.NodeProto]:
    """Nodes that the values at `last` need, up to the values at `first`."""
    producers = {name: node for node in proto.graph.node for name in node.output if name}
    todo = [name for name in last.values if name not in first.values]
    needed: set[int] = set()
    while todo:
        node = producers.get(todo.pop())
        if node is None or id(node) in needed:
            continue
        needed.add(id(node))
        todo += [name for name in _list_reads(node) if name not in first.values]
    return [node for node in proto.graph.node if id(node) in needed]


def _list_reads(node: onnx.NodeProto) -> list[str]:
    inner = [n for a in node.attribute for graph in (a.g, *a.graphs) for n in graph.node]
    return [name for name in node.input if name] + [r for n in inner for r in _list_reads(n)]


def _type(values: dict[str, Array], candidate: Candidate) -> dict[str, Array]:
    """The values that go in, with their own types."""
    from onnx import helper

    proto = candidate.folder.proto.graph
    known = {v.name: v.type.tensor_type.elem_type for v in (*proto.input, *proto.value_info)}
    typed = {}
    for name, value in values.items():
        kind = known.get(name, 1) or 1
        typed[name] = value.astype(helper.tensor_dtype_to_np_dtype(kind))
    return typed


def _embed(candidate: Candidate, name: str) -> onnx.TensorProto:
    """A stored tensor with its bytes inside."""
    import onnx

    proto = candidate.folder.initializers[name]
    if not proto.external_data:
        return proto
    array = np.ascontiguousarray(read_initializer(candidate.folder, name))
    return onnx.helper.make_tensor(name, proto.data_type, proto.dims, array.tobytes(), raw=True)


def _explain(last: Separator, made: set[str], said: str) -> str:
    outputs = " + ".join(name for name in last.values if name in made)
    return (
        f"{said}\n\n"
        "model.onnx: the part of the graph that makes the error, with its weights.\n"
        "inputs.npz: what goes in. expected.npz: what PyTorch gives, as `stream`; to be held "
        f"against {outputs} of the model.\n"
    )
