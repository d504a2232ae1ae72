"""glm4_moe: DeepSeek-V3's experts.

Shared by the model types glm4_moe, sarvam_moe.
"""

from __future__ import annotations

from assay.spec.moe import MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    GATE_UP,
    ITERABLE_THEN_FUSED,
    LLAMA_NAMES,
    experts,
    per_expert_or_fused,
    shared,
    sigmoid_router,
    times,
)

__all__ = ["GLM4_MOE_MOE"]


GLM4_MOE_MOE = MoESpec(
    block_names=("Glm4MoeMoE",),
    expert_linear_names=LLAMA_NAMES,
    gate_up_pair=GATE_UP,
    layouts=ITERABLE_THEN_FUSED,
    router=sigmoid_router(),
    experts=experts("n_routed_experts"),
    files=per_expert_or_fused(),
    shared=shared("shared_experts", times("moe_intermediate_size", "n_shared_experts")),
    sparse_layers=SparseLayers(first_dense_key="first_k_dense_replace"),
)
