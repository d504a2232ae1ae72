"""The MoE blocks of the tiny instances, as the checks need them."""

from __future__ import annotations

import copy
import functools
import inspect
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import assay.models  # noqa: F401  (registers every spec)
from assay.spec import ModelSpec, get_specs
from assay.spec.moe import MoESpec
from tests.registry.tiny import CAUSAL_TYPES, EXPERT_TYPES, UNBUILT, build, has_type
from tests.registry.truth import find_blocks

__all__ = [
    "BUILT_TYPES",
    "MOE_TYPES",
    "Block",
    "draw_tokens",
    "find_moe_blocks",
    "is_vision",
    "list_own_blocks",
    "run_block",
    "run_router",
]

# Every causal language model, and whatever else mentions experts.
BUILT_TYPES = tuple(name for name in sorted({*CAUSAL_TYPES, *EXPERT_TYPES}) if name not in UNBUILT)
# Registered MoE types that the installed transformers can build.
MOE_TYPES = tuple(
    spec.model_type
    for spec in get_specs()
    if spec.moe_spec is not None and has_type(spec.model_type) and spec.model_type not in UNBUILT
)
# Blocks that run on image tokens alone: same layout, sizes of their own.
VISION_BLOCKS = ("vision_moe", "vision_tower")
HIDDEN = 32
NUM_TOKENS = 40


@dataclass(frozen=True)
class Block:
    """One MoE block: its path, its layer's number, its module, its experts' parameters."""

    path: str
    layer: int
    module: nn.Module
    parameters: frozenset[str]
    config: Any


@functools.cache
def find_moe_blocks(model_type: str) -> tuple[Block, ...]:
    """The blocks of a tiny instance, found by structure."""
    model: Any = build(model_type)
    config = model.config.get_text_config()
    use_eager_experts(model)
    found = []
    for path, parameters in find_blocks(model).items():
        numbers = re.findall(r"(?:^|\.)(\d+)(?=\.|$)", path)
        layer = int(numbers[0]) if numbers else 0
        module = model.get_submodule(path)
        found.append(Block(path, layer, module, frozenset(parameters), config))
    return tuple(found)


def list_own_blocks(spec: ModelSpec, moe: MoESpec) -> list[Block]:
    """The blocks of a type's tiny instance that are of the spec's kind."""
    return [block for block in find_moe_blocks(spec.model_type) if moe.matches(block.module)]


def is_vision(block: Block) -> bool:
    """Whether a block stands in an image encoder."""
    return any(part in block.path for part in VISION_BLOCKS)


def use_eager_experts(model: nn.Module) -> None:
    """Have transformers 5 run experts one after the other, in plain PyTorch."""
    for module in model.modules():
        config = getattr(module, "config", None)
        if config is not None and hasattr(config, "_experts_implementation"):
            config._experts_implementation = "eager"


def draw_tokens(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Hidden states [1, tokens, hidden] and token ids [1, tokens], the same every time."""
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(1, NUM_TOKENS, HIDDEN, generator=generator)
    return hidden.to(dtype), torch.randint(0, 128, (1, NUM_TOKENS), generator=generator)


@torch.no_grad()
def run_block(block: Block) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, token ids and transformers' own output, all [tokens, ...]."""
    hidden, ids = draw_tokens()
    module: Any = block.module
    parameters = inspect.signature(module.forward).parameters
    if isinstance(getattr(module, "self_attn", None), nn.Module):  # router and experts in a layer
        flat = hidden[0]
        _, weights, index = module.router(flat)
        out = module.experts(flat, index, weights)
    else:
        out = module(hidden, ids) if "input_ids" in parameters else module(hidden)
    out = out[0] if isinstance(out, tuple) else out
    return hidden[0], ids[0], out.reshape(NUM_TOKENS, HIDDEN)


@torch.no_grad()
def run_router(block: Block, dtype: torch.dtype) -> tuple[Tensor, Tensor, Any]:
    """Indices and weights [tokens, top_k] that experts get in a dtype, and the block in it."""
    module: Any = copy.deepcopy(block.module).to(dtype)
    hidden, ids = draw_tokens(dtype)
    if isinstance(getattr(module, "self_attn", None), nn.Module):
        _, weights, index = module.router(hidden[0])
        return index, weights, module
    seen: list[tuple[Any, ...]] = []
    hook = module.experts.register_forward_pre_hook(lambda _, inputs: seen.append(inputs))
    try:
        parameters = inspect.signature(module.forward).parameters
        _ = module(hidden, ids) if "input_ids" in parameters else module(hidden)
    finally:
        hook.remove()
    _, index, weights = seen[0]
    return index, weights, module
