"""What a block computes, against what its spec says of router, experts and shared experts."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from assay.spec import ModelSpec
from assay.spec.experts import MlpRouter
from assay.spec.moe import MoESpec
from tests.registry.blocks import (
    Block,
    draw_hard_tokens,
    draw_tokens,
    is_layer,
    is_vision,
    list_own_blocks,
    run_block,
)
from tests.registry.identity_check import find_text_spec
from tests.registry.interpret import compute_block, compute_shared, find_score_router, resolve_part
from tests.registry.tiny import OLD, build

__all__ = ["OTHER_MODULE_NAMES", "TOLERANCE", "check_arithmetic"]

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
        owner = find_text_spec(spec, block.config)
        if is_vision(block):
            if moe.second_experts is not None and "vision_tower" not in block.path:
                wrong += _check_second(owner, block, moe)
            continue
        wrong += _check_parts(owner, block, moe, model)
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


def _check_second(owner: ModelSpec, block: Block, moe: MoESpec) -> list[str]:
    """The second experts, under a router of their own of the same kind."""
    assert moe.second_experts is not None
    second = dataclasses.replace(moe, experts=moe.second_experts)
    hidden, ids, wanted = run_block(block)
    with torch.no_grad():
        found = compute_block(owner, block.module, block.config, block.layer, hidden, ids, second)
    error = _measure(found, wanted)
    return [] if error < TOLERANCE else [f"{block.path}: second experts off by {error:.2g}"]


def _check_parts(owner: ModelSpec, block: Block, moe: MoESpec, model: Any) -> list[str]:
    """What the block's output doesn't show: idle router rows and names, experts outside it."""
    router, experts, shared = (
        resolve_part(owner, part, block.config, block.layer)
        for part in (moe.router, moe.experts, moe.shared)
    )
    wrong = []
    held = dict(block.module.named_parameters())
    is_mlp = isinstance(router, MlpRouter)
    if is_mlp and (router.state_scale in held) != (block.layer > 0):
        wrong.append(f"{block.path}: {router.state_scale} is absent or there")
    if shared is None or shared.combine != "weighted":
        last = router.out if is_mlp else find_score_router(router).linear
        rows = held[f"{last.name}.weight"].shape[int(last.transposed)]
        if rows != experts.count + experts.null_count:
            wrong.append(f"{block.path}: the router has {rows} rows")
    outside = _find_outside(model, block)
    if (outside is not None) != (shared is not None and shared.outside):
        wrong.append(f"{block.path}: beside it stands {outside}")
    elif outside is not None:
        holder, name = outside
        hidden = draw_tokens()[0][0]
        with torch.no_grad():
            wanted = holder.get_submodule(name)(hidden)
            found = compute_shared(holder, shared, experts, hidden)
        if shared.name != name or not _measure(found, wanted) < TOLERANCE:
            wrong.append(f"{block.path}: {shared.name} beside it computes something else")
    return wrong


def _find_outside(model: Any, block: Block) -> tuple[Any, str] | None:
    """The layer and the name of an MLP that stands in it beside the block, if there is one."""
    holder: Any = block.module
    if not is_layer(holder):
        holder = model.get_submodule(block.path.rpartition(".")[0])
    for name, child in holder.named_children():
        is_list = isinstance(child, torch.nn.ModuleList)
        if name.endswith("mlp") and child is not block.module and not is_list:
            linears = [m for m in child.modules() if isinstance(m, torch.nn.Linear)]
            if sum(linear.weight.numel() for linear in linears):
                return holder, name
    return None


def _measure(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm().clamp(min=1e-3))
