"""Stacked experts of a type that no spec knows, as they stand in a file. Imports no torch."""

from __future__ import annotations

import re

from assay.spec.expert_forms import LAYER, ExpertGroup, Tensors
from assay.spec.expert_parts import FUSED_ENDINGS, WEIGHTS

__all__ = ["observe_stacked"]

_ENDINGS = "|".join(re.escape(part) for part in sorted(FUSED_ENDINGS, key=len, reverse=True))
_STACKED = re.compile(rf"{LAYER}(?:.*\.)?experts\.(?P<name>[A-Za-z]\w*?)(?P<part>{_ENDINGS})")


def observe_stacked(tensors: Tensors) -> tuple[int, tuple[ExpertGroup, ...]] | None:
    """Return how many experts are stacked and their groups; None where they aren't.

    Stacked: in a module called `experts`, in each layer under the same two or three names, with
    the same first dimension. A group's projection is that name, since nothing says which of them
    is the gate, how gate and up share one, or which side is the input.
    """
    found: dict[tuple[str, int, str], dict[str, str]] = {}
    for tensor in tensors:
        if (match := _STACKED.fullmatch(tensor)) is not None:
            key = match["prefix"], int(match["layer"]), match["name"]
            found.setdefault(key, {})[match["part"][1:] or "weight"] = tensor
    layers: dict[tuple[str, int], set[str]] = {}
    counts = set()
    for (stack, layer, name), parts in found.items():
        layers.setdefault((stack, layer), set()).add(name)
        shapes = [tensors[parts[part]][1] for part in WEIGHTS if part in parts]
        counts |= {shape[0] if len(shape) > 2 else 0 for shape in shapes or [()]}
    names = {frozenset(own) for own in layers.values()}
    if len(counts) != 1 or len(names) != 1 or len(min(names)) not in (2, 3) or min(counts) < 2:
        return None
    groups = (
        ExpertGroup(stack=stack, layer=layer, projection=name, expert=None, tensors=parts)
        for (stack, layer, name), parts in sorted(found.items(), key=lambda item: item[0][:2])
    )
    return min(counts), tuple(groups)
