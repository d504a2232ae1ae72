"""qwen3_omni_moe_text: the thinker's experts, softmax over all.

Shared by the model types qwen3_omni_moe_text, qwen3_omni_moe, qwen3_omni_moe_thinker.
"""

from __future__ import annotations

from assay.spec.markers import key, when
from assay.spec.moe import MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    GATE_UP,
    ITERABLE_THEN_FUSED,
    LLAMA_NAMES,
    experts,
    per_expert_or_fused,
    softmax_router,
)

__all__ = ["QWEN3_OMNI_MOE_MOE"]


QWEN3_OMNI_MOE_MOE = MoESpec(
    block_names=("Qwen3OmniMoeThinkerTextSparseMoeBlock",),
    expert_linear_names=LLAMA_NAMES,
    gate_up_pair=GATE_UP,
    layouts=ITERABLE_THEN_FUSED,
    router=softmax_router(normalize=when(key("norm_topk_prob"), "sum", "none")),
    experts=experts("num_experts"),
    files=per_expert_or_fused(),
    sparse_layers=SparseLayers(dense_key="mlp_only_layers", step_key="decoder_sparse_step"),
)
