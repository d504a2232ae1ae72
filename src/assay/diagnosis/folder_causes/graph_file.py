"""The graph as a structure: names, wires, order, and where its weights lie."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

from assay.diagnosis.finding import Cause
from assay.diagnosis.folder_causes.table import make_cause

if TYPE_CHECKING:
    import onnx

__all__ = ["examine_data", "examine_structure", "examine_types"]

_KNOWN_DOMAINS = ("", "ai.onnx")


def examine_structure(graph: onnx.ModelProto) -> Iterator[Cause]:
    """Names that are there twice, inputs from nowhere, nodes in the wrong order, domains."""
    nodes = graph.graph.node
    for name, count in Counter(node.name for node in nodes if node.name).items():
        if count > 1:
            yield make_cause("duplicate_node", name, f"{count} nodes are called so")
    stored = {tensor.name for tensor in graph.graph.initializer}
    entered = {value.name for value in graph.graph.input}
    for name, count in Counter(o for node in nodes for o in node.output if o).items():
        if count > 1 or name in entered | stored:
            given = "given to the graph" if count == 1 else f"written by {count} nodes"
            yield make_cause("duplicate_value", name, f"this value is {given} and a node writes it")
    yield from _examine_wires(graph, entered | stored)
    imported = {entry.domain for entry in graph.opset_import} | set(_KNOWN_DOMAINS)
    local = {function.domain for function in graph.functions}
    for domain in sorted({node.domain for node in nodes} - imported - local):
        first = next(node for node in nodes if node.domain == domain)
        evidence = f"{first.op_type} is of the domain {domain!r}, which opset_import hasn't"
        yield make_cause("opset_missing", first.name or first.op_type, evidence)


def _examine_wires(graph: onnx.ModelProto, known: set[str]) -> Iterator[Cause]:
    made = {name for node in graph.graph.node for name in node.output if name}
    there = set(known)
    for node in graph.graph.node:
        where = node.name or node.op_type
        for name in node.input:
            if name and name not in there and name not in made:
                yield make_cause("dangling_input", where, f"nothing gives its input {name}")
            elif name and name not in there:
                yield make_cause("node_order", where, f"its input {name} is computed later")
        there.update(node.output)
    for output in graph.graph.output:
        if output.name not in there:
            yield make_cause("dangling_input", output.name, "nothing gives this output")


def examine_types(graph: onnx.ModelProto, refused: str) -> Iterator[Cause]:
    """A node that onnx's own inference refuses too. refused: what the runtime says of the graph."""
    import onnx

    try:
        onnx.shape_inference.infer_shapes(graph, check_type=True, strict_mode=True)
    except Exception as exc:  # noqa: BLE001  (onnx raises several kinds without a common base)
        for name, told in re.findall(r"node name: ([^)]+)\): ?([^\n]*)", str(exc)):
            if name in refused:
                yield make_cause("shape_error", name, told[:300])


def examine_data(folder: Path, graph: onnx.ModelProto) -> Iterator[Cause]:
    """External data: there, inside, long enough, of the right size, shared by none."""
    spans: dict[str, list[tuple[int, int, str]]] = {}
    for tensor in graph.graph.initializer:
        if not tensor.external_data:
            continue
        place = {entry.key: entry.value for entry in tensor.external_data}
        location = place.get("location", "")
        if _leaves(location):
            yield make_cause("data_outside", tensor.name, f"its data lies at {location!r}")
            continue
        file = folder / location
        if not file.is_file():
            yield make_cause("data_missing", tensor.name, f"there is no {location}")
            continue
        needed = _count_bytes(tensor)
        offset = int(place.get("offset", 0))
        length = int(place.get("length", needed))
        size = file.stat().st_size
        if offset + max(length, needed) > size:
            evidence = f"bytes {offset} to {offset + max(length, needed)} of a file of {size}"
            yield make_cause("data_truncated", tensor.name, evidence)
        elif length != needed:
            evidence = f"{length} bytes are given, type and shape need {needed}"
            yield make_cause("data_size", tensor.name, evidence)
        else:
            spans.setdefault(location, []).append((offset, offset + length, tensor.name))
    for entries in spans.values():
        yield from _find_overlaps(sorted(entries))


def _leaves(location: str) -> bool:
    """Whether a location isn't a path below the folder, on any system."""
    for kind in (PurePosixPath, PureWindowsPath):
        path = kind(location)
        if path.is_absolute() or path.drive or ".." in path.parts or not location:
            return True
    return False


def _find_overlaps(entries: list[tuple[int, int, str]]) -> Iterator[Cause]:
    """Stretches that lie partly in each other; the same stretch twice is shared on purpose."""
    for (start, stop, name), (other, end, second) in itertools.pairwise(entries):
        if other < stop and (start, stop) != (other, end):
            evidence = f"bytes {start} to {stop}, and {second} has {other} to {end}"
            yield make_cause("data_overlap", name, evidence)


def _count_bytes(tensor: onnx.TensorProto) -> int:
    from math import prod

    from onnx import TensorProto, helper

    count = int(prod(tensor.dims))
    if tensor.data_type in (TensorProto.INT4, TensorProto.UINT4):
        return (count + 1) // 2
    return count * int(helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
