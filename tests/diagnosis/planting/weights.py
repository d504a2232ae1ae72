"""Faults of stored weights, planted in the finished graph of any tool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from onnx import numpy_helper
from safetensors.numpy import load_file

from tests.diagnosis.planting.edits import edit_graph, find_stored
from tests.diagnosis.planting.fault import Fault, NothingError

__all__ = ["WEIGHT_FAULTS"]

Array = np.ndarray[Any, Any]
ONE = ".1."
# A weight's name in the checkpoint has to end like this, in layer 1 where it stands in a layer.
OUTPUT = ("o_proj.weight", "attn.c_proj.weight", "attention.dense.weight", "self_attn.dense.weight")
DOWN = ("down_proj.weight", "mlp.c_proj.weight", "dense_4h_to_h.weight", "fc2.weight")
FIRST_NORM = ("input_layernorm.weight", "ln_1.weight")
TABLE = ("embed_tokens.weight", "wte.weight", "embed_in.weight")
HEAD = ("lm_head.weight", "embed_out.weight")
BIAS = ("q_proj.bias", "o_proj.bias", "fc1.bias", "c_fc.bias", "dense_h_to_4h.bias")


def _read(folder: Path) -> dict[str, Array]:
    return load_file(folder.parent / "hf" / "model.safetensors")


def _pick(weights: dict[str, Array], endings: tuple[str, ...], layer: str = ONE) -> str:
    for name in weights:
        if name.endswith(endings) and (layer in name or not any(c.isdigit() for c in name)):
            return name
    raise NothingError


def _change(endings: tuple[str, ...], change: Callable[[Array], Array]) -> Callable[[Path], None]:
    """Change one weight wherever the graph stores it."""

    def plant(folder: Path) -> None:
        weights = _read(folder)
        _write(folder, weights[name := _pick(weights, endings)], change(weights[name].copy()))

    return plant


def _write(folder: Path, weight: Array, other: Array) -> None:
    """Put other values where a weight lies, as it is or transposed."""

    def edit(model: Any) -> None:
        tensor, transposed, start = find_stored(model, weight)
        stored = numpy_helper.to_array(tensor).copy()
        view = stored.T if transposed else stored
        view[start : start + len(weight)] = other.astype(stored.dtype)
        tensor.CopyFrom(numpy_helper.from_array(stored, tensor.name))

    edit_graph(folder, edit)


def _from(endings: tuple[str, ...], layer: str, others: tuple[str, ...]) -> Callable[[Path], None]:
    """Give a weight the values of another one of its shape."""

    def plant(folder: Path) -> None:
        weights = _read(folder)
        name, other = _pick(weights, endings), _pick(weights, others, layer)
        if name == other or weights[name].shape != weights[other].shape:
            raise NothingError
        _write(folder, weights[name], weights[other])

    return plant


def _exchange(first: str, second: str) -> Callable[[Path], None]:
    def plant(folder: Path) -> None:
        weights = _read(folder)
        a, b = _pick(weights, (first,)), _pick(weights, (second,))
        if weights[a].shape != weights[b].shape:
            raise NothingError
        left, right = weights[a].copy(), weights[b].copy()
        _write(folder, left, right + np.float32(100))
        _write(folder, right, left)
        _write(folder, right + np.float32(100), right)

    return plant


def _rows(weight: Array) -> Array:
    weight[: len(weight) // 4] *= np.float32(1.01)
    return weight


def _transposed(weight: Array) -> Array:
    if weight.shape[0] != weight.shape[1]:
        raise NothingError
    return weight.T


def _noise(weight: Array) -> Array:
    return np.random.default_rng(0).normal(size=weight.shape) * weight.std()


def _half(weight: Array) -> Array:
    return weight.astype(np.float16)


ATTENTION, MLP = r"\.1\..*(attn|attention)", r"\.1\..*mlp"
NORM = r"\.1\.(input_layernorm|ln_1)"
VALUES = ("weight_values",)
WEIGHT_FAULTS = (
    Fault("weight negated", VALUES, MLP, plant=_change(DOWN, np.negative)),
    Fault("weight 1 % too large", VALUES, MLP, plant=_change(DOWN, lambda w: w * 1.01)),
    Fault("some rows 1 % too large", VALUES, ATTENTION, plant=_change(OUTPUT, _rows)),
    Fault("weight zero", VALUES, MLP, plant=_change(DOWN, np.zeros_like)),
    Fault("weight noise", VALUES, MLP, plant=_change(DOWN, _noise)),
    Fault("weight rounded to half", VALUES, MLP, plant=_change(DOWN, _half)),
    Fault("rows reversed", ("weight_permuted",), MLP, plant=_change(DOWN, lambda w: w[::-1])),
    Fault("columns reversed", ("weight_permuted",), MLP, plant=_change(DOWN, lambda w: w[:, ::-1])),
    Fault("transposed", ("weight_transposed",), ATTENTION, plant=_change(OUTPUT, _transposed)),
    Fault("weight of another layer", ("wrong_tensor",), MLP, plant=_from(DOWN, ".2.", DOWN)),
    Fault(
        "k and v exchanged",
        ("weights_exchanged",),
        ATTENTION,
        plant=_exchange("k_proj.weight", "v_proj.weight"),
    ),
    Fault(
        "norm weight of another site",
        ("norm_weight",),
        NORM,
        plant=_from(FIRST_NORM, ".1.", ("post_attention_layernorm.weight", "ln_2.weight")),
    ),
    Fault(
        "norm weight 10 % too large",
        ("weight_values",),
        NORM,
        plant=_change(FIRST_NORM, lambda w: w * 1.1),
    ),
    Fault(
        "norm weight one",
        ("norm_weight", "weight_values"),
        NORM,
        plant=_change(FIRST_NORM, np.ones_like),
    ),
    Fault("bias twice", ("weight_values",), r"\.1\.", plant=_change(BIAS, lambda b: 2 * b)),
    Fault(
        "vocabulary one off",
        ("rows_shifted", "weight_permuted"),
        "embed|wte|lm_head",
        plant=_change(TABLE, lambda w: np.roll(w, 1, 0)),
    ),
    Fault("head negated", VALUES, "lm_head|embed_out", plant=_change(HEAD, np.negative)),
)
