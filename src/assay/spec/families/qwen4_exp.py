"""qwen4_exp_text: softmax over all experts; a shared expert with a gate of its own.

Shared by the model types qwen4_exp_text, qwen4_exp.
"""

from __future__ import annotations

from assay.spec.markers import key, when
from assay.spec.moe import MoESpec
from assay.spec.moe_patterns import (
    FUSED_NAMES,
    GATE_UP,
    ONLY_FUSED,
    experts,
    gated_shared,
    per_expert_or_fused,
    softmax_router,
)

__all__ = ["QWEN4_EXP_MOE"]


QWEN4_EXP_MOE = MoESpec(
    block_names=("Qwen4ExpTextSparseMoeBlock",),
    expert_linear_names=FUSED_NAMES,
    gate_up_pair=GATE_UP,
    layouts=ONLY_FUSED,
    router=softmax_router(normalize=when(key("norm_topk_prob"), "sum", "none")),
    experts=experts("num_experts"),
    files=per_expert_or_fused(),
    shared=gated_shared(),
)
