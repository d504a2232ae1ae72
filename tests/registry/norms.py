"""Which norms of a model store w - 1, found by what they compute with a weight of zero."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

__all__ = ["find_weight_plus_one_norms"]


def find_weight_plus_one_norms(model: nn.Module) -> set[str]:
    """Class names of the norms that pass their input on when their weight is zero.

    A norm is a module whose name says so and whose own `weight` is a vector.
    """
    found: dict[str, bool] = {}
    for module in model.modules():
        name = type(module).__name__
        if name in found or "norm" not in name.lower():
            continue
        weight = module._parameters.get("weight")
        if weight is None or weight.ndim != 1:
            continue
        passes = _passes_with_zero_weight(module, weight.shape[0])
        if passes is not None:
            found[name] = passes
    return {name for name, passes in found.items() if passes}


@torch.no_grad()
def _passes_with_zero_weight(module: nn.Module, width: int) -> bool | None:
    zeroed: Any = copy.deepcopy(module).to_empty(device="cpu")  # of a large model, from meta
    for parameter in zeroed.parameters():
        parameter.zero_()
    hidden = torch.randn(2, 3, width, generator=torch.Generator().manual_seed(2))
    for inputs in ((hidden,), (hidden, torch.ones_like(hidden))):  # norms with a gate take two
        try:
            return bool(zeroed(*inputs).abs().max() > 1e-3)
        except (TypeError, AttributeError, RuntimeError, ValueError):
            continue
    return None
