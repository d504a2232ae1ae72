"""Small modules of every layout that experts can have, made by hand."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

__all__ = [
    "LLAMA",
    "E",
    "H",
    "I",
    "Quantizer",
    "block",
    "expert",
    "fused",
    "iterable",
    "name_class",
    "tree",
]

E, H, I = 3, 4, 6  # experts, hidden size, width  # noqa: E741
LLAMA = ("gate_proj", "up_proj", "down_proj")


class Quantizer(nn.Module):
    """The least that the protocol asks for."""

    def __init__(self, amax: Any) -> None:
        super().__init__()
        self.amax = amax


def name_class(module: nn.Module, name: str) -> nn.Module:
    """The module, its class a subclass of its own with another name."""
    module.__class__ = type(name, (type(module),), {})
    return module


def tree(name: str = "", /, **children: Any) -> nn.Module:
    """A module of a class with a name, from children, parameters and plain values."""
    module = type(name or "Part", (nn.Module,), {})()
    for key, value in children.items():
        setattr(module, key, value)
    return module  # type: ignore[no-any-return]


def expert(names: tuple[str, ...] = LLAMA, *, bias: bool = False) -> nn.Module:
    """Linears by name, the last one down; and an activation, which has no weight."""
    first = {name: nn.Linear(H, I, bias=bias) for name in names[:-1]}
    return tree(**first, **{names[-1]: nn.Linear(I, H, bias=bias)}, act_fn=nn.SiLU())


def iterable(names: tuple[str, ...] = LLAMA, **facts: Any) -> nn.ModuleList:
    """A list of experts."""
    return nn.ModuleList([expert(names, **facts) for _ in range(E)])


def fused(
    names: tuple[str, ...] = ("gate_up_proj", "down_proj"),
    *,
    transposed: bool = False,
    gated: bool = True,
    bias: bool = False,
    **values: Any,
) -> nn.Module:
    """3-D parameters; two of the first kind where three names are given."""
    rows = 2 * I if gated and len(names) == 2 else I
    shapes = dict.fromkeys(names[:-1], (E, rows, H)) | {names[-1]: (E, H, I)}
    held = {
        name: nn.Parameter(torch.randn(e, b, a) if transposed else torch.randn(e, a, b))
        for name, (e, a, b) in shapes.items()
    }
    if bias:
        held |= {f"{name}_bias": nn.Parameter(torch.randn(s[:2])) for name, s in shapes.items()}
    return tree("Experts", **held, **values)


def block(name: str, experts: Any, **children: Any) -> nn.Module:
    """A block of a class with a name: a gate and experts."""
    return tree(name, gate=nn.Linear(H, E, bias=False), experts=experts, **children)
