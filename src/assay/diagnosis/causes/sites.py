"""Where in a model the parts are that causes change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.diagnosis.hypothesis import generalize, list_sites

if TYPE_CHECKING:
    import torch

__all__ = ["find_attentions", "find_rotaries", "list_tables", "place_attention"]


def find_attentions(model: torch.nn.Module) -> list[tuple[str, Any]]:
    """Attention modules by path."""

    def attends(_: str, module: Any) -> bool:
        named = "attention" in type(module).__name__.lower()
        return named and any(True for _ in module.parameters())

    return list_sites(model, attends)


def place_attention(model: torch.nn.Module) -> str:
    """The attention modules' path, with `*` for the layer."""
    found = find_attentions(model)
    return generalize(found[0][0]) if found else "*.self_attn"


def find_rotaries(model: torch.nn.Module) -> list[tuple[str, Any]]:
    """Modules that hold rotary frequencies, by path."""
    return [
        (name, module)
        for name, module in model.named_modules()
        if "rotary" in type(module).__name__.lower() and list_tables(module)
    ]


def list_tables(module: Any) -> list[str]:
    """Names of a rotary module's frequencies: one, or one for each kind of layer."""
    return [n for n in module._buffers if n.endswith("inv_freq") and "original" not in n]
