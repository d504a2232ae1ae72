"""What goes wrong in attention: scale, softcap, biases, q/k norm, sharing of heads, exchanges."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.diagnosis.causes.sites import find_attentions, place_attention
from assay.diagnosis.hypothesis import (
    Hypothesis,
    Variant,
    attribute,
    group_by_site,
    list_sites,
    values,
)

if TYPE_CHECKING:
    import torch

__all__ = ["CAUSES"]

_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "dense", "out_proj")


def _scale(model: torch.nn.Module) -> Iterator[Variant]:
    modules = [m for _, m in find_attentions(model) if isinstance(getattr(m, "scaling", 0), float)]
    if not modules:
        return
    text: Any = model.config.get_text_config()  # type: ignore[union-attr,operator]
    likely = {1.0}
    for size in (getattr(modules[0], "head_dim", None), getattr(text, "hidden_size", None)):
        if isinstance(size, int):
            likely |= {size**-0.5, 1.0 / size}
    for value in sorted(likely):
        targets: list[tuple[Any, str, Any]] = [
            (m, "scaling", value) for m in modules if abs(value - m.scaling) > 1e-9
        ]
        if targets:
            yield Variant(place_attention(model), f"scores times {value:.4g}", attribute(targets))


def _softcap(model: torch.nn.Module) -> Iterator[Variant]:
    targets: list[tuple[Any, str, Any]] = [
        (m, "attn_logit_softcapping", None)
        for _, m in find_attentions(model)
        if getattr(m, "attn_logit_softcapping", None)
    ]
    if targets:
        yield Variant(place_attention(model), "scores not capped", attribute(targets))


def _bias(model: torch.nn.Module) -> Iterator[Variant]:
    biases = [
        (name.removesuffix(".bias"), parameter)
        for name, parameter in model.named_parameters()
        if name.endswith(".bias") and parameter.abs().max() > 0
    ]
    groups = group_by_site(biases)
    for place, members in groups.items():
        yield Variant(place, "bias dropped", values([(p, _zero) for p in members]))
    sites = [place for place in groups if "*" in place]
    linears = [place for place in sites if not _is_norm(place)]
    qkv = [place for place in linears if place.endswith(("q_proj", "k_proj", "v_proj"))]
    projections = [place for place in linears if place.endswith(_PROJECTIONS)]
    for chosen in (qkv, projections, linears, sites):
        if len(chosen) > 1:
            change = values([(p, _zero) for s in chosen for p in groups[s]])
            yield Variant(", ".join(chosen), "biases dropped", change)


def _is_norm(place: str) -> bool:
    name = place.rsplit(".", 1)[-1]
    return "norm" in name or name.startswith("ln_")


def _zero(tensor: torch.Tensor) -> torch.Tensor:
    return tensor * 0


def _is_qk_norm(name: str, _: Any) -> bool:
    return name in ("q_norm", "k_norm", "q_layernorm", "k_layernorm", "query_layernorm")


def _qk_norm(model: torch.nn.Module) -> Iterator[Variant]:
    norms = list_sites(model, _is_qk_norm)
    if norms:
        targets: list[tuple[Any, str, Any]] = [(m, "forward", lambda x, *_: x) for _, m in norms]
        yield Variant(place_attention(model), "q and k norms dropped", attribute(targets))


def _qk_norm_order(model: torch.nn.Module) -> Iterator[Variant]:
    """Norms of q and k after the rotation: left out before it, and put behind it."""
    modeling = sys.modules.get(type(model).__module__)
    norms = list_sites(model, _is_qk_norm)
    if not norms or modeling is None or not hasattr(modeling, "apply_rotary_pos_emb"):
        return
    original = modeling.apply_rotary_pos_emb
    queue: list[Any] = []

    def put_off(module: Any) -> Any:
        forward = module.forward

        def later(x: torch.Tensor, *_: Any) -> torch.Tensor:
            queue.append(forward)
            return x

        return later

    def rotate(q: Any, k: Any, *args: Any, **kwargs: Any) -> Any:
        q, k = original(q, k, *args, **kwargs)
        if len(queue) == 2:
            q, k = queue[0](q), queue[1](k)
        queue.clear()
        return q, k

    targets: list[tuple[Any, str, Any]] = [(m, "forward", put_off(m)) for _, m in norms]
    change = attribute([*targets, (modeling, "apply_rotary_pos_emb", rotate)])
    yield Variant(place_attention(model), "q and k norms after the rotation", change)


def _sharing(model: torch.nn.Module) -> Iterator[Variant]:
    modeling = sys.modules.get(type(model).__module__)
    if modeling is None or not hasattr(modeling, "repeat_kv"):
        return

    def tile(states: torch.Tensor, times: int) -> torch.Tensor:
        return states.repeat(1, times, 1, 1)

    change = attribute([(modeling, "repeat_kv", tile)])
    yield Variant(place_attention(model), "key/value heads tiled, not repeated", change)


def _clip(model: torch.nn.Module) -> Iterator[Variant]:
    config: Any = model.config
    text = config.get_text_config()
    owners = [text, *(m for _, m in find_attentions(model))]
    targets: list[tuple[Any, str, Any]] = [
        (owner, "clip_qkv", None) for owner in owners if getattr(owner, "clip_qkv", None)
    ]
    if targets:
        yield Variant(place_attention(model), "q, k and v not clipped", attribute(targets))


def _sinks(model: torch.nn.Module) -> Iterator[Variant]:
    sinks = [m.sinks for _, m in find_attentions(model) if getattr(m, "sinks", None) is not None]
    if sinks:
        change = values([(s, lambda t: t * 0 - 1e4) for s in sinks])
        yield Variant(place_attention(model), "sinks dropped", change)


CAUSES = (
    Hypothesis(
        "attention_scale",
        "a large error from the first layer on",
        "take the scale that the model takes (query_pre_attn_scalar, attention_multiplier, ...)",
        _scale,
    ),
    Hypothesis(
        "attention_softcap",
        "an error where scores are large",
        "cap the scores: c * tanh(scores / c)",
        _softcap,
    ),
    Hypothesis("bias_dropped", "an error from one projection on", "add the bias", _bias),
    Hypothesis("qk_norm_dropped", "a large error in attention", "normalize q and k", _qk_norm),
    Hypothesis(
        "qk_norm_order",
        "an error in attention that grows with the position",
        "normalize q and k before they are rotated",
        _qk_norm_order,
    ),
    Hypothesis(
        "kv_head_order",
        "a large error with grouped heads",
        "query head i reads key/value head i // (heads / kv_heads)",
        _sharing,
    ),
    Hypothesis("clip_dropped", "an error where q, k or v are large", "clip q, k and v", _clip),
    Hypothesis(
        "sinks_dropped", "attention is too sharp", "add the sinks to the softmax's sum", _sinks
    ),
)
