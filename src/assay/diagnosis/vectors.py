"""Norm weights and biases: which of a layer's vectors does the graph have with other values?

A vector of the reference that nothing in its layer's part of the graph equals, and a vector there
that equals none of the layer's: the second may stand for the first. Whether it does is for the
search to find out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from assay.diagnosis.alignment import Alignment
from assay.diagnosis.hypothesis import Hypothesis, Variant, replaced, values
from assay.verification.weights import read_initializer

if TYPE_CHECKING:
    import torch

__all__ = ["describe_vectors"]

Floats = npt.NDArray[np.float32]
_SAME = {"float32": 1e-6, "float16": 2e-3, "bfloat16": 2e-2}


def describe_vectors(alignment: Alignment) -> Hypothesis:
    """The hypothesis that some vector has the values that the graph has in its place."""
    pairs = list(_pair(alignment))

    def variants(model: torch.nn.Module) -> Iterator[Variant]:
        import torch

        named = dict(model.named_parameters(remove_duplicate=False))
        for name, initializer, stored in pairs:
            place = name.removesuffix(".weight")
            parameter: Any = named[name]
            for shift, what in ((0.0, "as it is"), (-1.0, "less 1")):
                tensor = torch.from_numpy(stored + np.float32(shift)).to(parameter)
                change = values([(parameter, replaced(tensor))])
                described = f"{_compare(stored + shift, parameter)}: the values of {initializer}"
                yield Variant(place, f"{described}, {what}" if shift else described, change)

    return Hypothesis(
        "weight_values",
        "an error from one norm or bias on",
        "write the checkpoint's values",
        variants,
    )


def _pair(alignment: Alignment) -> Iterator[tuple[str, str, Floats]]:
    """(parameter, initializer, values) of vectors that don't fit, of one length and layer."""
    tolerance = _SAME[alignment.folder.precision]
    for layer, own in _list_parameters(alignment).items():
        stored = dict(_list_pieces(alignment, layer, own))
        free = dict(stored)
        open_names = []
        for name, vector in own.items():
            same = [k for k, v in free.items() if _fits(v, vector, tolerance)]
            for key in same[:1]:
                del free[key]
            if not same and not any(_fits(v, vector, tolerance) for v in stored.values()):
                open_names.append(name)
        for name, (key, vector) in itertools.product(open_names, (free or stored).items()):
            if vector.shape == own[name].shape:
                yield name, key.split("[", maxsplit=1)[0], vector


def _fits(stored: Floats, own: Floats, tolerance: float) -> bool:
    """Equal, or one more, as norms that add one to their weight may be stored."""
    if stored.shape != own.shape:
        return False
    scale = tolerance * (1 + float(np.abs(own).max()))
    return any(float(np.abs(stored - own - shift).max()) <= scale for shift in (0.0, 1.0))


def _list_parameters(alignment: Alignment) -> dict[int | None, dict[str, Floats]]:
    """The reference's vectors by layer; None for those behind the last one."""
    found: dict[int | None, dict[str, Floats]] = {}
    for name, vector in alignment.vectors.items():
        found.setdefault(alignment.layer_of(name), {})[name] = vector
    return found


def _list_pieces(
    alignment: Alignment, layer: int | None, own: dict[str, Floats]
) -> Iterator[tuple[str, Floats]]:
    """Stored vectors in a layer's part of the graph; stacked biases also in their parts."""
    sizes = [len(vector) for name, vector in own.items() if name.endswith("bias")]
    runs = [sizes[i : i + 3] for i in range(len(sizes) - 2)]
    for use in alignment.graph.weight_uses:
        proto = alignment.folder.initializers[use.initializer]
        if len(proto.dims) != 1 or proto.dims[0] < 2 or alignment.find_layer(use.stretch) != layer:
            continue
        stored = np.asarray(read_initializer(alignment.folder, use.initializer))
        if stored.dtype.kind != "f" and "bfloat16" not in str(stored.dtype):
            continue
        vector = np.asarray(stored, np.float32)
        yield use.initializer, vector
        for run in runs:
            if sum(run) == len(vector):
                starts = np.cumsum([0, *run])
                for start, size in zip(starts, run, strict=False):
                    yield f"{use.initializer}[{start}]", vector[start : start + size]


def _compare(stored: Floats, parameter: Any) -> str:
    """In a few words: all zeros, a factor, or how far off."""
    own = parameter.detach().cpu().numpy().astype(np.float64)
    if not stored.any():
        return "all zeros"
    factor = float((stored * own).sum() / max(float((own**2).sum()), 1e-30))
    error = float(np.linalg.norm(stored - factor * own) / max(np.linalg.norm(stored), 1e-30))
    if error < 1e-3:
        return f"{factor:.6g} times the checkpoint's"
    differ = int((np.abs(stored - own) > 1e-6 * (1 + np.abs(own))).sum())
    return f"{differ} of {len(own)} values differ"
