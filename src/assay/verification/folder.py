"""A model folder as it lies on disk: genai_config.json, the graph without its weights, manifest.

Nothing here trusts names: which input is a cache and how wide it is comes from the graph's own
signature, with genai_config.json's templates only to tell input ids, mask and positions apart.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import RuntimeFolderError

if TYPE_CHECKING:
    import onnx

__all__ = ["CacheSlot", "ModelFolder", "Signature", "open_folder", "read_signature"]

_QUANTIZED_OPS = frozenset({"MatMulNBits", "GatherBlockQuantized", "QMoE", "MatMulBnb4"})


@dataclass(frozen=True)
class CacheSlot:
    """One state that goes round: fed as `past`, returned as `present`.

    shape: declared dims, None where symbolic. capacity: positions in an empty slot, 0 but for
    windowed ring caches. element_type: an onnx.TensorProto data type.
    """

    past: str
    present: str
    shape: tuple[int | None, ...]
    element_type: int
    capacity: int = 0


@dataclass(frozen=True)
class Signature:
    """What the graph takes and gives, by role. Absent inputs are empty names.

    extras: length inputs that some builders ask for, as input name -> role ("past", "total").
    """

    input_ids: str
    attention_mask: str
    position_ids: str
    logits: str
    slots: tuple[CacheSlot, ...]
    element_types: dict[str, int]
    ranks: dict[str, int]
    extras: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelFolder:
    """An opened folder. `proto` holds the graph; external weights stay on disk."""

    path: Path
    graph_path: Path
    proto: onnx.ModelProto
    config: dict[str, Any]
    manifest: dict[str, Any] | None

    @cached_property
    def signature(self) -> Signature:
        """Roles of the graph's inputs and outputs."""
        return read_signature(self)

    @cached_property
    def is_quantized(self) -> bool:
        """Whether any node computes with packed weights."""
        return any(node.op_type in _QUANTIZED_OPS for node in self.proto.graph.node) or any(
            node.op_type == "DequantizeLinear" and node.input[0] in self.initializers
            for node in self.proto.graph.node
        )

    @cached_property
    def initializers(self) -> dict[str, onnx.TensorProto]:
        """The graph's initializers by name."""
        return {tensor.name: tensor for tensor in self.proto.graph.initializer}

    @cached_property
    def precision(self) -> str:
        """float16 or bfloat16 when any weight or cache is, else float32."""
        from onnx import TensorProto

        found = {slot.element_type for slot in self.signature.slots}
        found |= {t.data_type for t in self.initializers.values() if len(t.dims) > 1}
        scales = {
            node.input[i]
            for node in self.proto.graph.node
            for i in _scale_inputs(node.op_type)
            if i < len(node.input)
        }  # scales follow the type of the activations
        found |= {self.initializers[n].data_type for n in scales if n in self.initializers}
        for name, kind in (("bfloat16", TensorProto.BFLOAT16), ("float16", TensorProto.FLOAT16)):
            if kind in found:
                return name
        return "float32"


def open_folder(path: str | Path) -> ModelFolder:
    """Read a folder's config, manifest and graph; external weights are not read.

    Raises RuntimeFolderError when the graph or its config is missing or unreadable.
    """
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    given = Path(path)
    folder = given.parent if given.suffix == ".onnx" else given
    if not folder.is_dir():
        raise RuntimeFolderError(
            str(folder), "no such folder", next_step="Give the folder that holds model.onnx."
        )
    config = _read_json(folder / "genai_config.json") or {}
    decoder = config.get("model", {}).get("decoder", {})
    if decoder.get("pipeline"):
        raise RuntimeFolderError(
            str(folder),
            "the decoder is split into a pipeline of several graphs",
            next_step="Only folders with one decoder graph can be judged.",
        )
    named = given if given is not folder else None
    graph_path = named or _find_graph(folder, decoder.get("filename", "model.onnx"))
    if not graph_path.is_file():
        raise RuntimeFolderError(
            str(folder),
            f"{graph_path.name} isn't there",
            next_step="Give the folder that holds the exported decoder.",
        )
    try:
        proto = onnx.load(str(graph_path), load_external_data=False)
    except DecodeError as exc:
        raise RuntimeFolderError(
            str(graph_path), "not a readable ONNX file", next_step="Export the model again."
        ) from exc
    manifest = _read_json(folder / "manifest.json")
    return ModelFolder(graph_path.parent, graph_path, proto, config, manifest)


def _find_graph(folder: Path, name: str) -> Path:
    """The graph of that name; else the only one in the folder, or in its `onnx` folder."""
    for place in (folder, folder / "onnx"):
        found = sorted(place.glob("*.onnx"))
        if place / name in found:
            return place / name
        if len(found) == 1:
            return found[0]
    return folder / name


def _read_json(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as exc:
        raise RuntimeFolderError(
            str(path), "not valid JSON", next_step="Export the model again."
        ) from exc
    if not isinstance(content, dict):
        raise RuntimeFolderError(str(path), "holds no JSON object")
    return content


def _scale_inputs(op_type: str) -> tuple[int, ...]:
    return {"MatMulNBits": (2,), "QMoE": (3, 6)}.get(op_type, ())


def read_signature(folder: ModelFolder) -> Signature:
    """Tell the graph's inputs and outputs apart by genai_config's names, else by usual ones.

    Raises RuntimeFolderError when the graph asks for something that can't be fed.
    """
    graph = folder.proto.graph
    decoder = folder.config.get("model", {}).get("decoder", {})
    inputs, outputs = decoder.get("inputs", {}), decoder.get("outputs", {})
    initializers = set(folder.initializers)
    values = {v.name: v for v in graph.input if v.name not in initializers}
    results = {v.name: v for v in graph.output}
    roles = {
        role: name if (name := inputs.get(role, role)) in values else ""
        for role in ("input_ids", "attention_mask", "position_ids")
    }
    logits = outputs.get("logits", "logits")
    if not roles["input_ids"] or logits not in results:
        raise RuntimeFolderError(
            str(folder.graph_path),
            "no input ids go in or no logits come out",
            expected=f"an input {inputs.get('input_ids', 'input_ids')!r} and an output {logits!r}",
        )
    left = [name for name in values if name not in roles.values()]
    pairs = _pair_states(left, set(results), inputs, outputs)
    extras = {name: role for name in left if (role := _EXTRA_ROLES.get(name, ""))}
    if unknown := [name for name in left if name not in pairs and name not in extras]:
        raise RuntimeFolderError(
            str(folder.graph_path),
            f"can't tell what its inputs {', '.join(unknown)} are",
            next_step="Only text decoders with caches named in genai_config.json can be judged.",
        )
    rings = _ring_capacities(folder)
    slots = tuple(
        CacheSlot(
            name,
            pairs[name],
            _dims(values[name], decoder),
            values[name].type.tensor_type.elem_type,
            rings.get(name, 0),
        )
        for name in left
        if name in pairs
    )
    element_types = {name: v.type.tensor_type.elem_type for name, v in values.items()}
    ranks = {name: len(v.type.tensor_type.shape.dim) for name, v in values.items()}
    return Signature(
        logits=logits, slots=slots, element_types=element_types, ranks=ranks, extras=extras, **roles
    )


_EXTRA_ROLES = {
    "past_sequence_length": "past",
    "past_seq_len": "past",
    "total_sequence_length": "total",
    "total_seq_len": "total",
}


def _pair_states(
    names: list[str], results: set[str], inputs: dict[str, Any], outputs: dict[str, Any]
) -> dict[str, str]:
    """Which output each state input comes back as: {past name: present name}."""
    templates = [
        (inputs[key], outputs[f"present{key[4:]}"])
        for key in inputs
        if key.startswith("past_") and f"present{key[4:]}" in outputs
    ]
    templates += [
        (f"past_key_values.%d.{kind}", f"present.%d.{kind}")
        for kind in ("key", "value", "conv_state", "recurrent_state")
    ]
    templates.append(("past_%d", "present_%d"))
    pairs = {}
    for name in names:
        for past, present in templates:
            pattern = re.escape(past).replace("%d", r"(\d+)")
            match = re.fullmatch(pattern, name)
            if match and (came_back := present.replace("%d", match.group(1))) in results:
                pairs[name] = came_back
                break
    return pairs


def _dims(value: onnx.ValueInfoProto, decoder: dict[str, Any]) -> tuple[int | None, ...]:
    """Declared dims; a symbolic head count or head size is filled from genai_config.json."""
    dims = [
        d.dim_value if d.HasField("dim_value") else None for d in value.type.tensor_type.shape.dim
    ]
    if len(dims) == 4:
        for axis, key in ((1, "num_key_value_heads"), (3, "head_size")):
            if dims[axis] is None and isinstance(decoder.get(key), int):
                dims[axis] = decoder[key]
    return tuple(dims)


def _ring_capacities(folder: ModelFolder) -> dict[str, int]:
    """Windowed caches start as zeros of the window's length, not empty: {past name: window}."""
    capacities = {}
    for node in folder.proto.graph.node:
        if node.op_type == "GroupQueryAttention":
            attributes = {a.name: a.i for a in node.attribute}
            if attributes.get("sliding_window_cache"):
                for past in node.input[3:5]:
                    capacities[past] = attributes.get("local_window_size", 0)
    return capacities
