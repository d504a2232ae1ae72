"""What goes wrong in the feed-forward block: the activation, gate and up exchanged."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.diagnosis.hypothesis import Hypothesis, Variant, attribute, generalize, list_sites

if TYPE_CHECKING:
    import torch

__all__ = ["CAUSES"]

_LIKELY = ("silu", "gelu", "gelu_pytorch_tanh", "relu", "relu2", "gelu_fast", "quick_gelu")
_LIKELY_MORE = ("sigmoid", "tanh", "mish", "linear", "leaky_relu")
_NAMES = ("act_fn", "activation_fn", "act", "activation")


def _find_activations(model: torch.nn.Module) -> list[tuple[str, Any, str]]:
    """(path, owner, name) of each activation; the activation's own parts don't count."""

    def owns(_: str, module: Any) -> bool:
        return any(True for _ in module.parameters()) and any(
            callable(getattr(module, name, None)) for name in _NAMES
        )

    found = list_sites(model, owns)
    return [
        (path, module, name)
        for path, module in found
        for name in _NAMES
        if callable(getattr(module, name, None))
    ]


def _activation(model: torch.nn.Module) -> Iterator[Variant]:
    import torch
    from torch.nn import functional
    from transformers.activations import ACT2FN

    places = _find_activations(model)
    probe = torch.linspace(-4, 4, 33)
    likely = {name: ACT2FN[name] for name in (*_LIKELY, *_LIKELY_MORE)}
    likely |= {"x * tanh(x)": lambda x: x * torch.tanh(x), "hardswish": functional.hardswish}
    for name, other in likely.items() if places else ():
        path, owner, attribute_name = places[0]
        if torch.allclose(other(probe), getattr(owner, attribute_name)(probe), atol=1e-7):
            continue
        targets = [_retarget(o, a, other) for _, o, a in places]
        yield Variant(generalize(path), f"{name} instead", attribute(targets))


def _retarget(owner: Any, name: str, function: Any) -> tuple[Any, str, Any]:
    """What to set so that an activation computes another function; modules keep their place."""
    import torch

    own = getattr(owner, name)
    compute = getattr(function, "forward", function)  # a module in its place would hide nothing
    return (own, "forward", compute) if isinstance(own, torch.nn.Module) else (owner, name, compute)


def _exchanged(model: torch.nn.Module) -> Iterator[Variant]:
    split = list_sites(model, lambda _, m: hasattr(m, "gate_proj") and hasattr(m, "up_proj"))
    fused = list_sites(model, lambda _, m: hasattr(getattr(m, "gate_up_proj", None), "weight"))
    if split:
        modules = [module for _, module in split]
        yield Variant(generalize(split[0][0]), "gate and up exchanged", lambda: _exchange(modules))
    if fused:
        linears = [module.gate_up_proj for _, module in fused]
        place = generalize(fused[0][0])
        yield Variant(f"{place}.gate_up_proj", "gate and up exchanged", lambda: _turn(linears))
        yield Variant(
            f"{place}.gate_up_proj",
            "rows of gate and up taken in turns",
            lambda: _rearrange(linears, _interleave),
        )


@contextlib.contextmanager
def _exchange(mlps: list[Any]) -> Iterator[None]:
    def turn() -> None:
        for mlp in mlps:
            mlp.gate_proj, mlp.up_proj = mlp.up_proj, mlp.gate_proj

    turn()
    try:
        yield
    finally:
        turn()


def _turn(linears: list[Any]) -> contextlib.AbstractContextManager[None]:
    import torch

    return _rearrange(linears, lambda weight: torch.cat(weight.chunk(2)[::-1]))


def _interleave(weight: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.cat((weight[::2], weight[1::2]))


@contextlib.contextmanager
def _rearrange(linears: list[Any], order: Any) -> Iterator[None]:
    saved = [linear.weight.data for linear in linears]
    for linear in linears:
        linear.weight.data = order(linear.weight.data)
    try:
        yield
    finally:
        for linear, weight in zip(linears, saved, strict=True):
            linear.weight.data = weight


CAUSES = (
    Hypothesis(
        "activation",
        "an error from the first MLP on",
        "use the config's activation, with its approximation",
        _activation,
    ),
    Hypothesis(
        "gate_up_order",
        "a large error from the first MLP on",
        "the gate is the part that the activation is applied to",
        _exchanged,
    ),
)
