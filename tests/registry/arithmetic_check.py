"""What a block computes, against what its spec says of router, experts and shared experts."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from assay.spec import ModelSpec
from assay.spec.experts import HashRouter, Router, SharedExpert
from assay.spec.moe import MoESpec
from tests.registry.blocks import (
    draw_hard_tokens,
    draw_tokens,
    is_vision,
    list_own_blocks,
    run_block,
    run_router,
)
from tests.registry.identity_check import find_text_spec
from tests.registry.interpret import compute_block, resolve_part, route
from tests.registry.tiny import OLD, build

__all__ = ["NO_DTYPE", "OTHER_MODULE_NAMES", "check_arithmetic", "check_router_dtype"]

TOLERANCE = 1e-5

# Facts name modules as transformers 5 does; in 4.57 these types have other names.
OTHER_MODULE_NAMES = (
    {
        "ernie4_5_moe": "moe_statics stands in the block, not in the gate",
        "granitemoe": "the router is a module with a layer",
        "granitemoehybrid": "the router is a module with a layer",
        "granitemoeshared": "the router is a module with a layer",
        "phimoe": "the router is called gate",
    }
    if OLD
    else {}
)


def check_arithmetic(spec: ModelSpec, moe: MoESpec, variant: str = "{}") -> list[str]:
    """The block computes what router, experts and shared experts say."""
    model = build(spec.model_type, variant)
    if spec.model_type in OTHER_MODULE_NAMES or next(model.parameters()).is_meta:
        return []
    wrong = []
    for block in list_own_blocks(spec, moe, variant):
        if is_vision(block):
            continue
        owner = find_text_spec(spec, block.config)
        for kind, tokens in (("plain", draw_tokens()), ("hard", draw_hard_tokens(block))):
            hidden, ids, wanted = run_block(block, tokens)
            with torch.no_grad():
                found = compute_block(
                    owner, block.module, block.config, block.layer, hidden, ids, moe
                )
            half = len(hidden) // 2
            error = max(
                _measure(found[:half], wanted[:half]), _measure(found[half:], wanted[half:])
            )
            if not error < TOLERANCE:
                wrong.append(f"{block.path}: off by {error:.2g} on {kind} tokens")
    return wrong


def _measure(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm().clamp(min=1e-3))


def check_router_dtype(spec: ModelSpec, moe: MoESpec, variant: str = "{}") -> list[str]:
    """In bfloat16, the weights are those of the router's own arithmetic, and of no other."""
    model: Any = build(spec.model_type, variant)
    plain = isinstance(moe.router, (Router, HashRouter))
    if OLD or not plain or next(model.parameters()).is_meta or spec.model_type in NO_DTYPE:
        return []
    blocks = [b for b in list_own_blocks(spec, moe, variant) if not is_vision(b)]
    if not blocks:
        return ["no block"]
    block = blocks[-1]
    owner = find_text_spec(spec, block.config)
    router = resolve_part(owner, moe.router, block.config, block.layer)
    shared: SharedExpert | None = resolve_part(owner, moe.shared, block.config, block.layer)
    router = router.by_score if isinstance(router, HashRouter) else router
    rows = shared.count if shared is not None and shared.combine == "weighted" else 0
    on_sum = router.scale_on == "sum"
    unscaled = dataclasses.replace(router, scale=1.0) if on_sum else router
    index, weights, module = run_router(block, torch.bfloat16)
    hidden = draw_tokens(torch.bfloat16)[0][0]
    errors = {}
    for math in ("float32", "scores", "model"):
        with torch.no_grad():
            i, w, _ = route(module, unscaled, hidden, rows, math=math)
        errors[math] = _distance(index, weights, i, w.to(weights.dtype))
    if errors[router.math] > min(errors.values()) or errors[router.math] > 1e-2:
        return [f"math is {router.math}, errors are {errors}"]
    return []


_KEPT = "the router's weight stays in float32 whatever the model's dtype is"
NO_DTYPE: dict[str, str] = {
    **dict.fromkeys(("inkling2", "inkling2_text"), _KEPT),
    **dict.fromkeys(("inkling2_loop", "inkling2_loop_text"), _KEPT),
    "jetmoe": "experts stand in the block itself, and get no weights",
    **dict.fromkeys(("llama4", "llama4_text"), "weights multiply the experts' inputs"),
}


def _distance(index: Tensor, weights: Tensor, other: Tensor, others: Tensor) -> float:
    """How far two choices lie apart as dense weights over experts."""
    size = int(max(index.max(), other.max())) + 1
    dense = torch.zeros(len(index), size).scatter_(1, index, weights.float())
    return float((dense - torch.zeros_like(dense).scatter_(1, other, others.float())).abs().mean())
