"""Faults of the plan: our export describes another model than the checkpoint's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from assay.spec.vocabulary import (
    Attention,
    Branch,
    DecoderPlan,
    Embedding,
    Head,
    Layer,
    Linear,
    Mlp,
    Norm,
    Rope,
    Sum,
)
from tests.diagnosis.planting.fault import Fault, NothingError
from tests.twins.plan_change import change_parts

__all__ = ["PLAN_FAULTS"]

Change = Callable[[DecoderPlan], DecoderPlan]
ONE = 1  # the layer of faults that only one layer has
ATTENTION = r"attn|attention"
IN_ONE = rf"\.{ONE}\b"


def _on(kind: type, change: Callable[[Any], Any]) -> Change:
    def apply(plan: DecoderPlan) -> DecoderPlan:
        changed = change_parts(plan, kind, change)
        if changed == plan:
            raise NothingError
        return changed

    return apply


def _in_one(change: Change) -> Change:
    """The change in one layer only; nothing outside of layers."""

    def apply(plan: DecoderPlan) -> DecoderPlan:
        whole = change(plan)
        layers = list(plan.layers)
        layers[ONE] = whole.layers[ONE]
        if layers[ONE] == plan.layers[ONE]:
            raise NothingError
        return replace(plan, layers=tuple(layers))

    return apply


def _field(name: str, other: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Another value of a field; the part as it is where the field holds nothing."""

    def change(part: Any) -> Any:
        value = getattr(part, name)
        return part if value is None else replace(part, **{name: other(value)})

    return change


def _drop(name: str) -> Callable[[Any], Any]:
    return lambda part: replace(part, **{name: None})


def _unscaled(rope: Rope) -> Rope:
    return replace(rope, kind="default", factor=None) if rope.kind != "default" else rope


def _whole(rope: Rope) -> Rope:
    return replace(rope, dim=rope.head_dim)


def _qk_norm_late(attention: Attention) -> Attention:
    if attention.q_norm is None or attention.rope is None:
        return attention
    if attention.q_norm.scope == "projection":  # which can only be before heads are split
        return attention
    return replace(attention, qk_norm_before_rope=not attention.qk_norm_before_rope)


def _exchanged(mlp: Mlp) -> Mlp:
    return mlp if mlp.gate is None else replace(mlp, gate=mlp.up, up=mlp.gate)


def _other_activation(mlp: Mlp) -> Mlp:
    return replace(mlp, activation="relu" if mlp.activation != "relu" else "silu")


def _near_activation(mlp: Mlp) -> Mlp:
    near = {"gelu": "gelu_pytorch_tanh", "gelu_pytorch_tanh": "gelu", "gelu_new": "gelu"}
    return replace(mlp, activation=near.get(mlp.activation, mlp.activation))


def _rotated(plan: DecoderPlan) -> DecoderPlan:
    """Layers without rotation rotate as the others do."""
    ropes = [a.rope for a in plan.attentions if a.rope is not None]
    if not ropes or len(ropes) == len(plan.attentions):
        raise NothingError
    return _on(Attention, lambda a: replace(a, rope=a.rope or ropes[0]))(plan)


def _narrowed(plan: DecoderPlan) -> DecoderPlan:
    """Full layers of a mixed model get the window."""
    windows = [a.window for a in plan.attentions if a.window]
    if not windows or len(windows) == len(plan.attentions):
        raise NothingError
    return _on(Attention, lambda a: replace(a, window=a.window or windows[0]))(plan)


def _without_layer(plan: DecoderPlan) -> DecoderPlan:
    silent = [replace(branch, multiplier=0.0) for branch in plan.layers[ONE].branches]
    layers = list(plan.layers)
    layers[ONE] = replace(layers[ONE], branches=tuple(silent))
    return replace(plan, layers=tuple(layers))


def _in_sequence(layer: Layer) -> Layer:
    """Branches that lie side by side, one after the other."""
    if len(layer.branches) != 1 or not isinstance(layer.branches[0].mixer, Sum):
        return layer
    outer = layer.branches[0]
    inner = outer.mixer.branches
    own = [replace(b, norm=b.norm or outer.norm, multiplier=outer.multiplier) for b in inner]
    return replace(layer, branches=tuple(own))


def _silent(number: int) -> Callable[[Layer], Layer]:
    def change(layer: Layer) -> Layer:
        if len(layer.branches) < 2:
            return layer
        branches = list(layer.branches)
        branches[number] = replace(branches[number], multiplier=0.0)
        return replace(layer, branches=tuple(branches))

    return change


def _tied(plan: DecoderPlan) -> DecoderPlan:
    if plan.head.tied or plan.head.bias:
        raise NothingError
    return replace(plan, head=replace(plan.head, tied=True))


def _both(
    name: str, causes: str, change: Change, place: str = "", std: float = 0.12
) -> list[Fault]:
    """In all layers, and in one."""
    ids = tuple(causes.split())
    alone = rf"{IN_ONE}.*({place})" if place else IN_ONE
    return [
        Fault(name, ids, place, plan=change, std=std),
        Fault(f"{name}, one layer", ids, alone, plan=_in_one(change), std=std),
    ]


def _only(name: str, causes: str, change: Change, place: str = "") -> list[Fault]:
    return [Fault(name, tuple(causes.split()), place, plan=change)]


NEAR = 1.0001
PLAN_FAULTS: tuple[Fault, ...] = tuple(
    fault
    for group in (
        _both(
            "eps of another config key",
            "norm_eps",
            _on(Norm, lambda n: replace(n, eps=1e-5 if n.eps < 3e-6 else 1e-6)),
            std=0.02,
        ),
        _both("an odd eps", "norm_eps", _on(Norm, lambda n: replace(n, eps=3e-5)), std=0.02),
        _both(
            "offset of the norm's weight",
            "norm_offset",
            _on(Norm, lambda n: replace(n, offset=1.0 - n.offset) if n.weight else n),
        ),
        _both("norm before a branch left out", "norm_missing", _on(Branch, _drop("norm"))),
        _both("norm after a branch left out", "norm_missing", _on(Branch, _drop("post_norm"))),
        _both(
            "theta a little off",
            "rope_theta",
            _on(Rope, _field("theta", lambda t: t * NEAR)),
            rf"rotary|{ATTENTION}",
        ),
        _both(
            "an odd theta",
            "rope_theta",
            _on(Rope, _field("theta", lambda _: 7777.0)),
            rf"rotary|{ATTENTION}",
        ),
        _both(
            "rope scaling ignored",
            "rope_scaling_ignored rope_scaling",
            _on(Rope, _unscaled),
            rf"rotary|{ATTENTION}",
        ),
        _both(
            "rope factor",
            "rope_scaling",
            _on(Rope, _field("factor", lambda f: f * 2)),
            rf"rotary|{ATTENTION}",
        ),
        _both(
            "pairs of rotation",
            "rope_pairing",
            _on(
                Rope,
                _field("pairing", lambda p: "pairs" if p == "halves" else "halves"),
            ),
            ATTENTION,
        ),
        _both("width of rotation", "rope_width", _on(Rope, _whole), rf"rotary|{ATTENTION}"),
        _both("no rotation", "rope_missing", _on(Attention, _drop("rope")), ATTENTION),
        _only("rotation added", "rope_added", _rotated, ATTENTION),
        _both("window dropped", "sliding_window", _on(Attention, _drop("window")), ATTENTION),
        _both(
            "window one wider",
            "sliding_window",
            _on(Attention, _field("window", lambda w: w + 1)),
            ATTENTION,
        ),
        _both(
            "window one narrower",
            "sliding_window",
            _on(Attention, _field("window", lambda w: w - 1)),
            ATTENTION,
        ),
        _only("window on full layers", "sliding_window", _narrowed, ATTENTION),
        _both(
            "scores not scaled",
            "attention_scale",
            _on(Attention, lambda a: replace(a, scale=1.0)),
            ATTENTION,
        ),
        _both(
            "an odd scale of scores",
            "attention_scale",
            _on(Attention, lambda a: replace(a, scale=1.3 * a.scale)),
            ATTENTION,
        ),
        _both("softcap dropped", "attention_softcap", _on(Attention, _drop("softcap")), ATTENTION),
        _both(
            "an odd softcap",
            "attention_softcap",
            _on(Attention, _field("softcap", lambda c: c * 0.6)),
            ATTENTION,
        ),
        _both("q, k, v not clipped", "clip_dropped", _on(Attention, _drop("clip_qkv")), ATTENTION),
        _both(
            "q and k norms dropped",
            "qk_norm_dropped norm_missing",
            _on(Attention, lambda a: replace(a, q_norm=None, k_norm=None)),
            ATTENTION,
        ),
        _both("q and k norms after rotation", "qk_norm_order", _on(Attention, _qk_norm_late)),
        _both("another activation", "activation", _on(Mlp, _other_activation), "mlp|fc|act"),
        _both("approximation of gelu", "activation", _on(Mlp, _near_activation), "mlp|fc|act"),
        _both("gate and up exchanged", "gate_up_order", _on(Mlp, _exchanged), "mlp"),
        _both(
            "biases dropped",
            "bias_dropped",
            _on(Linear, lambda part: replace(part, bias=False)),
        ),
        _both(
            "multiplier of branches left out",
            "multiplier_missing",
            _on(Branch, lambda b: replace(b, multiplier=1.0)),
        ),
        _both(
            "an odd multiplier of branches",
            "multiplier_missing output_scale",
            _on(Branch, lambda b: replace(b, multiplier=0.9 * b.multiplier)),
        ),
        _only("layer without effect", "layer_missing", _without_layer, IN_ONE),
        _both("attention without effect", "branch_missing", _on(Layer, _silent(0)), ATTENTION),
        _both("MLP without effect", "branch_missing", _on(Layer, _silent(1)), "mlp|fc"),
        _both("branches in sequence", "residual_wiring", _on(Layer, _in_sequence)),
        _only(
            "embedding not scaled",
            "multiplier_missing",
            _on(Embedding, lambda e: replace(e, scale=1.0)),
            "embed",
        ),
        _only(
            "an odd scale of the embedding",
            "multiplier_missing output_scale",
            _on(Embedding, lambda e: replace(e, scale=1.1 * e.scale)),
            "embed|wte",
        ),
        _only(
            "logits not scaled",
            "multiplier_missing",
            _on(Head, lambda h: replace(h, multiplier=1.0)),
            "lm_head",
        ),
        _only(
            "an odd scale of logits",
            "multiplier_missing output_scale",
            _on(Head, lambda h: replace(h, multiplier=1.1 * h.multiplier)),
            "lm_head|embed_out",
        ),
        _only("logits not capped", "final_softcap", _on(Head, _drop("softcap")), "lm_head"),
        _only(
            "logits capped elsewhere",
            "final_softcap",
            _on(Head, _field("softcap", lambda c: 0.6 * c)),
            "lm_head",
        ),
        _only("head tied", "head_tied", _tied, "lm_head|embed_out"),
    )
    for fault in group
)
