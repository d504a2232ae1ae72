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
from tests.registry.tiny import (
    CAUSAL_TYPES,
    EXPERT_TYPES,
    NUM_EXPERTS,
    UNBUILT,
    build,
    has_type,
)
from tests.registry.truth import find_blocks

__all__ = [
    "BUILT_TYPES",
    "MOE_TYPES",
    "Block",
    "draw_hard_tokens",
    "draw_tokens",
    "find_moe_blocks",
    "is_layer",
    "is_vision",
    "list_own_blocks",
    "list_text_blocks",
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
LARGE = 8.0  # a gate's standard deviation is 1.7 times that; no published limit is above 10
MOST_OTHER_ROWS = 3  # of a router: shared and null experts

BlockRun = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Block:
    """One MoE block: its path, its layer's number, its module, its experts' parameters."""

    path: str
    layer: int
    module: nn.Module
    parameters: frozenset[str]
    config: Any


@functools.cache
def find_moe_blocks(model_type: str, variant: str = "{}") -> tuple[Block, ...]:
    """The blocks of a tiny instance, found by structure. variant: as in `tiny.build`."""
    model: Any = build(model_type, variant)
    config = model.config.get_text_config()
    use_eager_experts(model)
    found = []
    for path, parameters in find_blocks(model).items():
        numbers = re.findall(r"(?:^|\.)(\d+)(?=\.|$)", path)
        layer = int(numbers[0]) if numbers else 0
        module = model.get_submodule(path)
        found.append(Block(path, layer, module, frozenset(parameters), config))
    return tuple(found)


def list_own_blocks(spec: ModelSpec, moe: MoESpec, variant: str = "{}") -> list[Block]:
    """The blocks of a type's tiny instance that are of the spec's kind."""
    blocks = find_moe_blocks(spec.model_type, variant)
    return [block for block in blocks if moe.matches(block.module)]


def list_text_blocks(spec: ModelSpec, moe: MoESpec, variant: str = "{}") -> list[Block]:
    """Those of them that don't stand in an image encoder."""
    return [block for block in list_own_blocks(spec, moe, variant) if not is_vision(block)]


def is_layer(module: nn.Module) -> bool:
    """Whether a block is a whole layer, with router and experts as its children."""
    return isinstance(getattr(module, "self_attn", None), nn.Module)


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


def draw_hard_tokens(block: Block) -> tuple[Tensor, Tensor]:
    """Hidden states and ids as in draw_tokens, whose numbers reach what plain ones don't.

    In the first half they are large enough for every limit of an activation; in the second, every
    expert's logit is about -2, -4 and so on to -50, so that sums of scores fall below any eps.
    """
    hidden, ids = draw_tokens()
    half = NUM_TOKENS // 2
    hidden = hidden.clone()
    hidden[:, :half] *= LARGE
    weight = _find_router_weight(block)
    if weight is not None:
        levels = torch.linspace(-2.0, -50.0, NUM_TOKENS - half)[:, None]
        logits = levels + 0.3 * hidden[0, half:, : len(weight)]
        hidden[0, half:] = logits @ torch.linalg.pinv(weight.detach().float()).T
    return hidden, ids


def _find_router_weight(block: Block) -> Tensor | None:
    """The block's matrix [experts and null ones, hidden]."""
    count = NUM_EXPERTS
    for name, parameter in block.module.named_parameters():
        if name not in block.parameters and parameter.ndim == 2:
            rows, columns = parameter.shape
            if count <= rows <= count + MOST_OTHER_ROWS and columns == HIDDEN:
                return parameter
    return None


@torch.no_grad()
def run_block(block: Block, tokens: tuple[Tensor, Tensor] | None = None) -> BlockRun:
    """Hidden states, token ids and transformers' own output, all [tokens, ...].

    tokens: instead of those of draw_tokens.
    """
    hidden, ids = tokens or draw_tokens()
    module: Any = block.module
    parameters = inspect.signature(module.forward).parameters
    if is_layer(module):
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
    if is_layer(module):
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
