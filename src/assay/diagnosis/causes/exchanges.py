"""Stored weights in each other's place."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from assay.diagnosis.hypothesis import (
    Hypothesis,
    Variant,
    group_by_site,
    list_sites,
    replaced,
    values,
)

if TYPE_CHECKING:
    import torch

__all__ = ["CAUSES"]


def _exchanged(model: torch.nn.Module) -> Iterator[Variant]:
    """Projections of one shape in each other's place, or one standing for two."""
    linears = group_by_site(list_sites(model, lambda _, m: getattr(m, "weight", None) is not None))
    matrices = {
        place: modules
        for place, modules in linears.items()
        if modules[0].weight.ndim == 2 and "*" in place
    }
    for (a, left), (b, right) in itertools.combinations(matrices.items(), 2):
        if a.rsplit(".", 1)[0] != b.rsplit(".", 1)[0] or len(left) != len(right):
            continue
        if left[0].weight.shape != right[0].weight.shape:
            continue
        pairs = list(zip(left, right, strict=True))
        forth = [(m.weight, replaced(o.weight.data)) for m, o in pairs]
        back = [(o.weight, replaced(m.weight.data)) for m, o in pairs]
        yield Variant(f"{a}, {b}", "weights exchanged", values(forth + back))
        yield Variant(a, f"the weight of {b}", values(forth))
        yield Variant(b, f"the weight of {a}", values(back))


CAUSES = (
    Hypothesis(
        "weights_exchanged",
        "a large error in one component",
        "store each weight in its own place",
        _exchanged,
    ),
)
