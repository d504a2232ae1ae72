"""Faults of a finished graph, of any tool: attributes, wires, tables, nodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tests.diagnosis.planting.edits import edit_graph
from tests.diagnosis.planting.fault import Fault, NothingError

__all__ = ["GRAPH_FAULTS"]

_NORMS = (
    "SimplifiedLayerNormalization",
    "SkipSimplifiedLayerNormalization",
    "RMSNormalization",
    "LayerNormalization",
    "SkipLayerNormalization",
)
_ACTIVATIONS = ("Sigmoid", "Gelu", "FastGelu", "QuickGelu", "Silu", "Swish", "Relu", "Tanh", "Erf")


def _edit(change: Callable[[Any], None]) -> Callable[[Path], None]:
    return lambda folder: edit_graph(folder, change)


def _nodes(model: Any, *kinds: str) -> list[Any]:
    found = [node for node in model.graph.node if node.op_type in kinds]
    if not found:
        raise NothingError
    return found


def _set(node: Any, name: str, value: Any) -> None:
    kept = [a for a in node.attribute if a.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, onnx.helper.make_attribute(name, value)])


def _attribute(name: str, value: Any, *, one: bool, needs: str = "") -> Callable[[Any], None]:
    """Set an attribute of attention in all layers or in layer 1."""

    def change(model: Any) -> None:
        nodes = _nodes(model, "GroupQueryAttention")
        for node in nodes[1:2] if one else nodes:
            own = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            if needs and not own.get(needs):
                raise NothingError
            _set(node, name, value(own) if callable(value) else value)

    return change


def _eps(model: Any) -> None:
    """One norm of layer 1."""
    named = [n for n in _nodes(model, *_NORMS) if any(p in n.name for p in ("layers.1", "h.1."))]
    if not named:
        raise NothingError
    _set(named[0], "epsilon", 1e-2)


def _activation(model: Any) -> None:
    nodes = [n for n in model.graph.node if n.op_type in _ACTIVATIONS]
    if len(nodes) < 3:
        raise NothingError
    node = nodes[1]
    node.op_type, node.domain = ("Tanh" if node.op_type != "Tanh" else "Sigmoid"), ""
    del node.attribute[:]


def _exchange(first: tuple[int, str, int], second: tuple[int, str, int]) -> Callable[[Any], None]:
    """Exchange two wires of attention nodes: (layer, "input" or "output", index)."""

    def change(model: Any) -> None:
        nodes = _nodes(model, "GroupQueryAttention")
        a, b = (getattr(nodes[layer], side) for layer, side, _ in (first, second))
        i, j = first[2], second[2]
        a[i], b[j] = b[j], a[i]

    return change


def _exchange_layers(side: str, indices: tuple[int, int]) -> Callable[[Any], None]:
    def change(model: Any) -> None:
        nodes = _nodes(model, "GroupQueryAttention")
        a, b = getattr(nodes[0], side), getattr(nodes[1], side)
        for index in indices:
            a[index], b[index] = b[index], a[index]

    return change


def _scaled(kind: str, sub: str) -> Callable[[Any], None]:
    """A factor behind one product."""

    def change(model: Any) -> None:
        for place, node in enumerate(model.graph.node):
            if node.op_type in ("MatMul", "MatMulNBits", "Gemm") and sub in " ".join(
                (node.name, *node.input)
            ):
                name = node.output[0]
                node.output[0] = f"{name}_before"
                factor = numpy_helper.from_array(np.float32(1.25).reshape(1), f"{name}_factor")
                model.graph.initializer.append(factor)
                added = onnx.helper.make_node(
                    kind, [f"{name}_before", factor.name], [name], name=f"planted/{kind}"
                )
                model.graph.node.insert(place + 1, added)
                return
        raise NothingError

    return change


def _mask(model: Any) -> None:
    """The mask's padding isn't seen."""
    mask = next((i.name for i in model.graph.input if i.name == "attention_mask"), None)
    if mask is None:
        raise NothingError
    for node in model.graph.node:
        for index, name in enumerate(node.input):
            if name == mask and node.op_type not in ("Shape",):
                node.input[index] = "planted_ones"
    model.graph.node.insert(
        0, onnx.helper.make_node("Shape", [mask], ["planted_shape"], name="planted/Shape")
    )
    one = numpy_helper.from_array(np.ones(1, np.int64))
    filled = onnx.helper.make_node(
        "ConstantOfShape", ["planted_shape"], ["planted_ones"], name="planted/Ones", value=one
    )
    model.graph.node.insert(1, filled)


def _cos_and_sin(model: Any) -> None:
    """Cos and sin tables in each other's place."""
    for node in _nodes(model, "GroupQueryAttention", "RotaryEmbedding"):
        first = 7 if node.op_type == "GroupQueryAttention" else 2 if node.domain else 1
        if len(node.input) <= first + 1 or not node.input[first]:
            raise NothingError
        node.input[first], node.input[first + 1] = node.input[first + 1], node.input[first]


ATTENTION = "attn|attention"
IN_ONE = r"\.1\b"
GRAPH_FAULTS = (
    Fault(
        "attribute scale",
        ("attention_scale",),
        ATTENTION,
        plant=_edit(_attribute("scale", 0.7, one=False)),
    ),
    Fault(
        "attribute scale, one layer",
        ("attention_scale",),
        IN_ONE,
        plant=_edit(_attribute("scale", 0.7, one=True)),
    ),
    Fault(
        "attribute window",
        ("sliding_window",),
        ATTENTION,
        plant=_edit(_attribute("local_window_size", 23, one=False)),
    ),
    Fault(
        "attribute window, one layer",
        ("sliding_window",),
        IN_ONE,
        plant=_edit(_attribute("local_window_size", 23, one=True)),
    ),
    Fault(
        "attribute softcap",
        ("attention_softcap",),
        ATTENTION,
        plant=_edit(_attribute("softcap", 7.0, one=False, needs="softcap")),
    ),
    Fault(
        "attribute interleaved",
        ("rope_pairing",),
        ATTENTION,
        plant=_edit(
            _attribute(
                "rotary_interleaved",
                lambda own: 1 - own.get("rotary_interleaved", 0),
                one=False,
                needs="do_rotary",
            )
        ),
    ),
    Fault("attribute epsilon, one norm", ("norm_eps",), IN_ONE, plant=_edit(_eps)),
    Fault("activation node", ("activation", "expert_activation"), IN_ONE, plant=_edit(_activation)),
    Fault(
        "present key and value exchanged",
        ("kv_wiring",),
        IN_ONE,
        plant=_edit(_exchange((1, "output", 1), (1, "output", 2))),
    ),
    Fault(
        "past key and value exchanged",
        ("kv_wiring",),
        IN_ONE,
        plant=_edit(_exchange((1, "input", 3), (1, "input", 4))),
    ),
    Fault(
        "caches of two layers exchanged",
        ("kv_wiring", "cache"),
        r"\.[01]\b|past",
        plant=_edit(_exchange_layers("input", (3, 4))),
    ),
    Fault(
        "presents of two layers exchanged",
        ("kv_wiring", "cache"),
        r"\.[01]\b|past",
        plant=_edit(_exchange_layers("output", (1, 2))),
    ),
    Fault(
        "factor behind down_proj",
        ("output_scale",),
        IN_ONE,
        plant=_edit(_scaled("Mul", "1.mlp.down_proj")),
    ),
    Fault("padding seen", ("left_padding",), "mask", plant=_edit(_mask)),
    Fault("cos and sin exchanged", ("rope_direction",), "", plant=_edit(_cos_and_sin)),
)
