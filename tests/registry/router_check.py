"""The weights that experts get from a router: in float32, and what half precision tells of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from assay.spec import ModelSpec
from assay.spec.experts import HashRouter, Router, SharedExpert
from assay.spec.moe import MoESpec
from tests.registry.arithmetic_check import TOLERANCE
from tests.registry.blocks import Block, draw_tokens, list_text_blocks, run_router
from tests.registry.identity_check import find_text_spec
from tests.registry.interpret import find_score_router, resolve_part, route
from tests.registry.source_check import find_written_math
from tests.registry.tiny import OLD, build

__all__ = ["check_router"]

MATHS = ("float32", "scores", "model")
# The router's weight stays in float32 whatever the model's dtype is.
KEPT = ("inkling2", "inkling2_text", "inkling2_loop", "inkling2_loop_text")
NO_WEIGHTS = {
    "jetmoe": "experts stand in the block itself, and get no weights",
    **dict.fromkeys(("llama4", "llama4_text"), "weights multiply the experts' inputs"),
}


def check_router(spec: ModelSpec, moe: MoESpec, variants: tuple[str, ...]) -> list[str]:
    """In float32 the weights are as said; in bfloat16, those of the router's own arithmetic.

    Where two kinds of arithmetic give the same in every variant, the source says which it is.
    """
    is_plain = isinstance(moe.router, (Router, HashRouter))
    if OLD or not is_plain or next(build(spec.model_type).parameters()).is_meta:
        return []
    router: Router = find_score_router(moe.router)
    by_variant = {variant: list_text_blocks(spec, moe, variant) for variant in ("{}", *variants)}
    blocks = {variant: found[-1] for variant, found in by_variant.items() if found}
    if not blocks:
        return ["no block"]
    written = find_written_math(next(iter(blocks.values())))
    unlike = [] if router.math == written else [f"math is {router.math}, the source has {written}"]
    if spec.model_type in NO_WEIGHTS:
        return unlike
    alike = True
    for variant, block in blocks.items():
        if _measure(spec, moe, block, torch.float32, ("float32",))["float32"] > TOLERANCE:
            return [f"{variant}: experts get other weights in float32"]
        if spec.model_type in KEPT:
            continue
        errors = _measure(spec, moe, block, torch.bfloat16, MATHS)
        if errors[router.math] > min(errors.values()) or errors[router.math] > 1e-2:
            return [f"{variant}: math is {router.math}, errors are {errors}"]
        alike &= errors["model"] == errors["scores"]
    if spec.model_type in KEPT:
        return [] if router.math == "float32" and _is_kept(spec) else [f"math is {router.math}"]
    return unlike if alike else []


def _is_kept(spec: ModelSpec) -> bool:
    """Whether the model keeps its router in float32, by its own list."""
    model: Any = build(spec.model_type)
    kept = {*(model._keep_in_fp32_modules or ()), *(model._keep_in_fp32_modules_strict or ())}
    return "mlp.gate.weight" in kept


def _measure(
    spec: ModelSpec, moe: MoESpec, block: Block, dtype: torch.dtype, maths: tuple[str, ...]
) -> dict[str, float]:
    """How far the weights that experts get lie from the router's, computed in each way."""
    owner = find_text_spec(spec, block.config)
    router = find_score_router(resolve_part(owner, moe.router, block.config, block.layer))
    shared: SharedExpert | None = resolve_part(owner, moe.shared, block.config, block.layer)
    rows = shared.count if shared is not None and shared.combine == "weighted" else 0
    if router.scale_on == "sum":
        router = dataclasses.replace(router, scale=1.0)
    index, weights, module = run_router(block, dtype)
    hidden, errors = draw_tokens(dtype)[0][0], {}
    for math in maths:
        with torch.no_grad():
            other, others, _ = route(module, router, hidden, rows, math=math)
        errors[math] = _distance(index, weights, other, others.to(weights.dtype))
    return errors


def _distance(index: Tensor, weights: Tensor, other: Tensor, others: Tensor) -> float:
    """How far two choices lie apart as dense weights over experts."""
    size = int(max(index.max(), other.max())) + 1
    dense = torch.zeros(len(index), size).scatter_(1, index, weights.float())
    return float((dense - torch.zeros_like(dense).scatter_(1, other, others.float())).abs().mean())
