"""glm5_next_text: DeepSeek-V3's router, clamped experts.

Shared by the model types glm5_next_text, glm5_next.
"""

from __future__ import annotations

from assay.spec.experts import Glu
from assay.spec.markers import key
from assay.spec.moe import MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    FUSED_NAMES,
    GATE_UP,
    ONLY_FUSED,
    experts,
    per_expert_or_fused,
    shared,
    sigmoid_router,
    times,
)

__all__ = ["GLM5_NEXT_MOE"]


LIMITS = {"gate_limit": key("swiglu_limit"), "up_limit": key("swiglu_limit")}


GLM5_NEXT_MOE = MoESpec(
    block_names=("Glm5NextTextMoE",),
    expert_linear_names=FUSED_NAMES,
    gate_up_pair=GATE_UP,
    layouts=ONLY_FUSED,
    router=sigmoid_router(),
    experts=experts("n_routed_experts", activation=Glu(activation="silu", **LIMITS)),
    files=per_expert_or_fused(),
    shared=shared(
        "shared_experts",
        times("moe_intermediate_size", "n_shared_experts"),
        activation=Glu(activation=key("hidden_act"), **LIMITS),
    ),
    sparse_layers=SparseLayers(types_key="mlp_layer_types", first_dense=3),
)
