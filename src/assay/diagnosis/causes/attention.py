"""What goes wrong in attention: window, scale, softcap, biases, q/k norm, sharing of heads."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.diagnosis.hypothesis import Hypothesis, Variant, attribute, list_layers, values

if TYPE_CHECKING:
    import torch

__all__ = ["CAUSES"]

_NO_WINDOW = 1 << 20


def _attentions(model: torch.nn.Module) -> list[tuple[str, Any]]:
    found = []
    for path, layer in list_layers(model):
        for name, module in layer.named_modules():
            if "attention" in type(module).__name__.lower() and hasattr(module, "forward"):
                found.append((f"{path}.{name}", module))
    return found


def _window(model: torch.nn.Module) -> Iterator[Variant]:
    config: Any = model.config
    text = config.get_text_config()
    size = getattr(text, "sliding_window", None)
    if not isinstance(size, int):
        return
    for other, what in (
        (_NO_WINDOW, "window dropped"),
        (size + 1, "window one token too wide"),
        (size - 1, "window one token too narrow"),
    ):
        targets: list[tuple[Any, str, Any]] = [(text, "sliding_window", other)]
        targets += [
            (module, "sliding_window", other)
            for _, module in _attentions(model)
            if isinstance(getattr(module, "sliding_window", None), int)
        ]
        yield Variant("*.self_attn", what, attribute(targets))


def _scale(model: torch.nn.Module) -> Iterator[Variant]:
    modules = [(n, m) for n, m in _attentions(model) if isinstance(getattr(m, "scaling", 0), float)]
    if not modules:
        return
    head_dim = getattr(modules[0][1], "head_dim", None)
    likely = {1.0}
    if isinstance(head_dim, int):
        likely |= {head_dim**-0.5, 1.0 / head_dim}
    for value in sorted(likely):
        if abs(value - modules[0][1].scaling) < 1e-9:
            continue
        targets: list[tuple[Any, str, Any]] = [(m, "scaling", value) for _, m in modules]
        yield Variant("*.self_attn", f"scores times {value:.4g}", attribute(targets))


def _softcap(model: torch.nn.Module) -> Iterator[Variant]:
    targets: list[tuple[Any, str, Any]] = [
        (m, "attn_logit_softcapping", None)
        for _, m in _attentions(model)
        if getattr(m, "attn_logit_softcapping", None)
    ]
    if targets:
        yield Variant("*.self_attn", "scores not capped", attribute(targets))


def _bias(model: torch.nn.Module) -> Iterator[Variant]:
    groups: dict[str, list[tuple[str, torch.nn.Parameter]]] = {}
    for name, parameter in model.named_parameters():
        if name.endswith(".bias") and parameter.abs().max() > 0:
            place = ".".join("*" if p.isdigit() else p for p in name.split("."))
            groups.setdefault(place.removesuffix(".bias"), []).append((name, parameter))
    for place, members in groups.items():
        yield Variant(place, "bias dropped", values([(p, _zero) for _, p in members]))
        for name, parameter in members if len(members) > 1 else ():
            yield Variant(name.removesuffix(".bias"), "bias dropped", values([(parameter, _zero)]))
    everything = [p for members in groups.values() for _, p in members]
    if len(groups) > 1:
        yield Variant("*", "all biases dropped", values([(p, _zero) for p in everything]))
    qkv = [
        p
        for place, members in groups.items()
        for _, p in members
        if place.endswith(("q_proj", "k_proj", "v_proj"))
    ]
    if qkv:
        change = values([(p, _zero) for p in qkv])
        yield Variant("*.self_attn.{q,k,v}_proj", "biases dropped", change)


def _zero(tensor: torch.Tensor) -> torch.Tensor:
    return tensor * 0


def _qk_norm(model: torch.nn.Module) -> Iterator[Variant]:
    norms = [
        m
        for n, m in model.named_modules()
        if n.rsplit(".", 1)[-1] in ("q_norm", "k_norm", "q_layernorm", "k_layernorm")
    ]
    if norms:
        targets: list[tuple[Any, str, Any]] = [(m, "forward", lambda x, *_: x) for m in norms]
        yield Variant("*.self_attn", "q and k norms dropped", attribute(targets))


def _sharing(model: torch.nn.Module) -> Iterator[Variant]:
    modeling = sys.modules.get(type(model).__module__)
    if modeling is None or not hasattr(modeling, "repeat_kv"):
        return

    def tile(states: torch.Tensor, times: int) -> torch.Tensor:
        return states.repeat(1, times, 1, 1)

    change = attribute([(modeling, "repeat_kv", tile)])
    yield Variant("*.self_attn", "key/value heads tiled, not repeated", change)


CAUSES = (
    Hypothesis(
        "sliding_window",
        "right up to the window, wrong past it",
        "set the window of the config on the layers that have one",
        _window,
    ),
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
        "kv_head_order",
        "a large error with grouped heads",
        "query head i reads key/value head i // (heads / kv_heads)",
        _sharing,
    ),
)
