"""qwen3_5_moe_text: softmax over all experts, always normalized; a shared expert with a gate.

Shared by the model types qwen3_5_moe_text, qwen3_5_moe.
"""

from __future__ import annotations

from assay.spec.moe import MoESpec
from assay.spec.moe_patterns import (
    FUSED_NAMES,
    GATE_UP,
    ONLY_FUSED,
    experts,
    fused_files,
    gated_shared,
    per_expert_files,
    softmax_router,
)

__all__ = ["QWEN3_5_MOE_MOE"]


QWEN3_5_MOE_MOE = MoESpec(
    block_names=("Qwen3_5MoeSparseMoeBlock",),
    expert_linear_names=FUSED_NAMES,
    gate_up_pair=GATE_UP,
    layouts=ONLY_FUSED,
    router=softmax_router(normalize="sum"),
    experts=experts("num_experts"),
    files=(
        per_expert_files(),
        fused_files(),
    ),
    shared=gated_shared(),
)
