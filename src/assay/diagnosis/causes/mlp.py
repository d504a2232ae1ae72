"""What goes wrong in the feed-forward block: the activation, gate and up exchanged."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.diagnosis.hypothesis import Hypothesis, Variant, attribute, list_layers

if TYPE_CHECKING:
    import torch

__all__ = ["CAUSES"]

_LIKELY = ("silu", "gelu", "gelu_pytorch_tanh", "relu", "relu2", "gelu_fast", "quick_gelu")


def _activations(model: torch.nn.Module) -> list[tuple[Any, str]]:
    """Who holds an activation, and under which name; the activation's own parts don't count."""
    import torch

    found: list[tuple[Any, str]] = []
    for _, layer in list_layers(model):
        for module in layer.modules():
            if not any(isinstance(child, torch.nn.Module) for child in module.children()):
                continue
            if not any(True for _ in module.parameters()):
                continue
            found += [
                (module, name)
                for name in ("act_fn", "activation_fn", "act", "activation")
                if callable(getattr(module, name, None))
            ]
    return found


def _activation(model: torch.nn.Module) -> Iterator[Variant]:
    import torch
    from transformers.activations import ACT2FN

    places = _activations(model)
    probe = torch.linspace(-4, 4, 33)
    for name in _LIKELY if places else ():
        other = ACT2FN[name]
        owner, attribute_name = places[0]
        if torch.allclose(other(probe), getattr(owner, attribute_name)(probe), atol=1e-7):
            continue
        targets: list[tuple[Any, str, Any]] = [(o, a, other) for o, a in places]
        yield Variant("*.mlp.act_fn", f"{name} instead", attribute(targets))


def _exchanged(model: torch.nn.Module) -> Iterator[Variant]:
    mlps = [
        module
        for _, layer in list_layers(model)
        for module in layer.modules()
        if hasattr(module, "gate_proj") and hasattr(module, "up_proj")
    ]
    fused = [
        module.gate_up_proj
        for _, layer in list_layers(model)
        for module in layer.modules()
        if hasattr(module, "gate_up_proj") and hasattr(module.gate_up_proj, "weight")
    ]
    if mlps:
        yield Variant("*.mlp", "gate and up exchanged", lambda: _exchange(mlps))
    if fused:
        yield Variant("*.mlp.gate_up_proj", "gate and up exchanged", lambda: _turn(fused))


@contextlib.contextmanager
def _exchange(mlps: list[Any]) -> Iterator[None]:
    for mlp in mlps:
        mlp.gate_proj, mlp.up_proj = mlp.up_proj, mlp.gate_proj
    try:
        yield
    finally:
        for mlp in mlps:
            mlp.gate_proj, mlp.up_proj = mlp.up_proj, mlp.gate_proj


@contextlib.contextmanager
def _turn(linears: list[Any]) -> Iterator[None]:
    import torch

    def turn() -> None:
        for linear in linears:
            gate, up = linear.weight.data.chunk(2)
            linear.weight.data = torch.cat((up, gate))

    turn()
    try:
        yield
    finally:
        turn()


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
