"""Faults of packed weights: scales, zero points and codes that don't belong together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from onnx import numpy_helper

from tests.diagnosis.planting.edits import edit_graph
from tests.diagnosis.planting.fault import Fault, NothingError

__all__ = ["ENCODING_FAULTS"]

Array = np.ndarray[Any, Any]
_INPUTS = {"MatMulNBits": (1, 2), "GatherBlockQuantized": (0, 2)}
_ONE = ("layers.1.mlp", "h.1.mlp", "layers.1/mlp")


def _edit(which: int, change: Callable[[Array], Array], *, one: bool) -> Callable[[Path], None]:
    """Change codes (0) or scales (1) of every packed weight, or of those in one layer's MLP."""

    def plant(folder: Path) -> None:
        def edit(model: Any) -> None:
            stored = {tensor.name: tensor for tensor in model.graph.initializer}
            done = set()
            for node in model.graph.node:
                name = node.input[_INPUTS[node.op_type][which]] if node.op_type in _INPUTS else ""
                if not name or name in done or name not in stored:
                    continue
                if which == 0 and any(a.name == "bits" and a.i != 4 for a in node.attribute):
                    continue
                if one and not any(part in f"{node.name} {name}" for part in _ONE):
                    continue
                done.add(name)
                array = change(numpy_helper.to_array(stored[name]).copy())
                stored[name].CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), name))

        edit_graph(folder, edit)

    return plant


def _shifted(by: int) -> Callable[[Array], Array]:
    """Codes moved and cut: codes that were rounded with another zero point."""

    def change(codes: Array) -> Array:
        low, high = (codes & 15).astype(int) + by, (codes >> 4).astype(int) + by
        return (np.clip(high, 0, 15) << 4 | np.clip(low, 0, 15)).astype(np.uint8)

    return change


def _wrapped(codes: Array) -> Array:
    return (((codes >> 4) + 1) % 16 << 4 | ((codes & 15) + 1) % 16).astype(np.uint8)


def _nibbles(codes: Array) -> Array:
    return ((codes & 15) << 4 | codes >> 4).astype(np.uint8)


def _turned(scales: Array) -> Array:
    if scales.ndim != 2 or scales.shape[1] < 2:
        raise NothingError
    return scales.reshape(scales.shape[::-1]).T


def _rolled(axis: int) -> Callable[[Array], Array]:
    def change(scales: Array) -> Array:
        if scales.ndim != 2 or scales.shape[axis] < 2:
            raise NothingError
        return np.roll(scales, 1, axis)

    return change


_KINDS: tuple[tuple[str, str, int, Callable[[Array], Array]], ...] = (
    ("scales without signs", "abs_scales", 1, np.abs),
    ("scales doubled", "scale_factor", 1, lambda s: s * 2),
    ("scales 10 % too large", "scale_factor", 1, lambda s: s * np.asarray(1.1, s.dtype)),
    ("scales negated", "scale_factor abs_scales", 1, np.negative),
    ("scales turned round", "scales_transposed scale_values", 1, _turned),
    ("scales one group off", "scales_order scale_values", 1, _rolled(1)),
    ("scales one row off", "scales_order scale_values", 1, _rolled(0)),
    ("nibbles exchanged", "nibble_order", 0, _nibbles),
    ("codes in two's complement", "signed_codes", 0, lambda c: c ^ np.uint8(0x88)),
    ("codes wrapped", "codes_wrapped", 0, _wrapped),
    ("zero point one less", "zero_point", 0, _shifted(-1)),
    ("zero point one more", "zero_point", 0, _shifted(1)),
)
ENCODING_FAULTS = tuple(
    Fault(
        name + (", one layer" if one else ""),
        tuple(causes.split()),
        r"\.1\..*mlp" if one else "",
        plant=_edit(which, change, one=one),
    )
    for name, causes, which, change in _KINDS
    for one in (False, True)
)
