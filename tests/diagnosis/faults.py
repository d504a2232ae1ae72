"""Faults to plant: changes of a resolved plan, each with the cause that must be named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from assay.spec.vocabulary import (
    Attention,
    Branch,
    DecoderPlan,
    Embedding,
    Head,
    Mlp,
    Norm,
    Rope,
)
from tests.twins.plan_change import change_parts

__all__ = ["FAULTS", "Fault"]


@dataclass(frozen=True)
class Fault:
    """cause: the id to be named. std: of the twin's weights, where the usual hides the fault."""

    name: str
    cause: str
    change: Callable[[DecoderPlan], DecoderPlan]
    std: float = 0.12


def _on(kind: type, change: Callable[[Any], Any]) -> Callable[[DecoderPlan], DecoderPlan]:
    return lambda plan: change_parts(plan, kind, change)


def _exchange(mlp: Mlp) -> Mlp:
    return mlp if mlp.gate is None else replace(mlp, gate=mlp.up, up=mlp.gate)


def _other_eps(norm: Norm) -> Norm:
    return replace(norm, eps=1e-5 if norm.eps < 3e-6 else 1e-6)


def _other_offset(norm: Norm) -> Norm:
    return replace(norm, offset=1.0 - norm.offset) if norm.weight else norm


def _other_pairing(rope: Rope) -> Rope:
    return replace(rope, pairing="pairs" if rope.pairing == "halves" else "halves")


def _widen(attention: Attention) -> Attention:
    window = attention.window
    return attention if window is None else replace(attention, window=window + 1)


def _other_activation(mlp: Mlp) -> Mlp:
    return replace(mlp, activation="relu" if mlp.activation != "relu" else "silu")


FAULTS = (
    Fault("eps", "norm_eps", _on(Norm, _other_eps), 0.02),
    Fault("offset", "norm_offset", _on(Norm, _other_offset)),
    Fault("theta", "rope_theta", _on(Rope, lambda r: replace(r, theta=r.theta * 1.0001))),
    Fault("pairing", "rope_pairing", _on(Rope, _other_pairing)),
    Fault("no rope", "rope_missing", _on(Attention, lambda a: replace(a, rope=None))),
    Fault("no window", "sliding_window", _on(Attention, lambda a: replace(a, window=None))),
    Fault("window + 1", "sliding_window", _on(Attention, _widen)),
    Fault("scale", "attention_scale", _on(Attention, lambda a: replace(a, scale=1.0))),
    Fault("softcap", "attention_softcap", _on(Attention, lambda a: replace(a, softcap=None))),
    Fault("activation", "activation", _on(Mlp, _other_activation)),
    Fault("gate and up", "gate_up_order", _on(Mlp, _exchange)),
    Fault(
        "residual multiplier",
        "multiplier_missing",
        _on(Branch, lambda b: replace(b, multiplier=1.0)),
    ),
    Fault("embedding", "multiplier_missing", _on(Embedding, lambda e: replace(e, scale=1.0))),
    Fault("logits", "multiplier_missing", _on(Head, lambda h: replace(h, multiplier=1.0))),
    Fault("final softcap", "final_softcap", _on(Head, lambda h: replace(h, softcap=None))),
)
