"""glm4v_moe_text: DeepSeek-V3's experts.

Shared by the model types glm4v_moe_text, glm4v_moe.
"""

from __future__ import annotations

from assay.spec.moe import MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    GATE_UP,
    ITERABLE_THEN_FUSED,
    LLAMA_NAMES,
    experts,
    fused_files,
    per_expert_files,
    shared,
    sigmoid_router,
    times,
)

__all__ = ["GLM4V_MOE_MOE"]


GLM4V_MOE_MOE = MoESpec(
    block_names=("Glm4vMoeTextMoE",),
    expert_linear_names=LLAMA_NAMES,
    gate_up_pair=GATE_UP,
    layouts=ITERABLE_THEN_FUSED,
    router=sigmoid_router(),
    experts=experts("n_routed_experts"),
    files=(
        per_expert_files(),
        fused_files(),
    ),
    shared=shared("shared_experts", times("moe_intermediate_size", "n_shared_experts")),
    sparse_layers=SparseLayers(first_dense_key="first_k_dense_replace"),
)
