"""Float matrices of a graph held against the checkpoint's, matched by value.

A matrix of the graph is one weight, several stacked, or their transpose; probes of its rows tell
which. A weight whose values differ is a cause of its own: which rows, and by what.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from assay.diagnosis.finding import Cause
from assay.verification.folder import ModelFolder
from assay.verification.weight_match import Parameters
from assay.verification.weights import read_initializer

if TYPE_CHECKING:
    import torch

__all__ = ["FloatMatch", "compare_float_weights", "explain_weight", "match_float_weights"]

Floats = npt.NDArray[np.float32]
_NUM_PROBES = 6
_SAME_ROW = 0.9
_MAX_ELEMENTS = 1 << 31


@dataclass(frozen=True)
class FloatMatch:
    """A parameter and the values that the graph has for it, [rows, inputs]."""

    parameter: str
    initializer: str
    values_NK: Floats


def match_float_weights(folder: ModelFolder, parameters: Parameters) -> Iterator[FloatMatch]:
    """Yield what could be matched; parameters that are tied come once."""
    from onnx import TensorProto

    kinds = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    seen: set[str] = set()
    for name, proto in folder.initializers.items():
        if len(proto.dims) != 2 or proto.data_type not in kinds or min(proto.dims) < 2:
            continue
        stored = np.asarray(read_initializer(folder, name)).astype(np.float32)
        for matrix in (stored.T, stored):
            found = list(_split(matrix, parameters))
            if found:
                for parameter, values in found:
                    if parameter not in seen:
                        seen.add(parameter)
                        yield FloatMatch(parameter, name, values)
                break


def _split(matrix_NK: Floats, parameters: Parameters) -> Iterator[tuple[str, Floats]]:
    start = 0
    found: list[tuple[str, Floats]] = []
    while start < len(matrix_NK):
        best: tuple[float, str, int] | None = None
        for name, parameter in parameters.by_name.items():
            height, width = parameter.shape
            if width != matrix_NK.shape[1] or start + height > len(matrix_NK):
                continue
            probes = np.unique(np.linspace(0, height - 1, _NUM_PROBES).astype(np.int64))
            original = parameters.read(name, probes, transposed=False)
            score = _correlate(matrix_NK[start + probes], original)
            if best is None or score > best[0]:
                best = score, name, int(height)
        if best is None or best[0] < _SAME_ROW:
            return
        found.append((best[1], matrix_NK[start : start + best[2]]))
        start += best[2]
    yield from found


def _correlate(a: Floats, b: Floats) -> float:
    """The median |correlation| of rows: a few wrong ones don't hide whose they are."""
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    products = np.abs((a.astype(np.float64) * b).sum(1))
    return float(np.median(np.where(norms > 0, products / np.maximum(norms, 1e-30), 0.0)))


def compare_float_weights(match: FloatMatch, parameters: Parameters) -> float:
    """relL2 of the graph's values against the checkpoint's."""
    original = _read(match, parameters)
    error = float(np.linalg.norm(match.values_NK.astype(np.float64) - original))
    return error / max(float(np.linalg.norm(original)), 1e-30)


def explain_weight(match: FloatMatch, parameters: Parameters, relative: float) -> Cause:
    """Say which rows differ, and by what factor where one fits."""
    original = _read(match, parameters).astype(np.float64)
    values = match.values_NK.astype(np.float64)
    limit = 1e-6 * np.linalg.norm(original, axis=1) + 1e-12
    wrong = np.flatnonzero(np.linalg.norm(values - original, axis=1) > limit)
    part, base = values[wrong], original[wrong]
    factor = float((part * base).sum() / max(float((base**2).sum()), 1e-30))
    fits = float(np.linalg.norm(part - factor * base)) < 0.01 * float(np.linalg.norm(part - base))
    rows = f"rows {wrong[0]} to {wrong[-1]}" if len(wrong) else "no whole row"
    what = f"{rows} ({len(wrong)} of {len(values)}) differ"
    if fits:
        what = f"{rows} are {factor:.6g} times the checkpoint's"
    return Cause(
        id="weight_values",
        place=match.parameter.removesuffix(".weight"),
        confidence=1.0,
        evidence=f"{match.initializer}: relL2 {relative:.3g} of the values; {what}",
        fix="write the checkpoint's values",
    )


def grant(match: FloatMatch, model: torch.nn.Module) -> None:
    """Let the reference compute with the graph's values."""
    import torch

    parameter = dict(model.named_parameters(remove_duplicate=False))[match.parameter]
    parameter.data = torch.from_numpy(np.ascontiguousarray(match.values_NK)).to(parameter.dtype)


def _read(match: FloatMatch, parameters: Parameters) -> Floats:
    rows = np.arange(len(match.values_NK))
    return parameters.read(match.parameter, rows, transposed=False)
