"""aria_text: the best logits, then their softmax; experts stored [in, out].

Shared by the model types aria_text, aria.
"""

from __future__ import annotations

from assay.spec.markers import key
from assay.spec.moe import FUSED_TRANSPOSED, ExpertFiles, MoESpec
from assay.spec.moe_patterns import GATE_UP, experts, fused_files, shared, softmax_router, times
from assay.spec.vocabulary import Linear

__all__ = ["ARIA_MOE"]


ARIA_MOE = MoESpec(
    block_names=("AriaTextMoELayer",),
    expert_linear_names=("fc1", "fc2"),
    gate_up_pair=GATE_UP,
    layouts=(("4.57.0", FUSED_TRANSPOSED), ("5.0.0", FUSED_TRANSPOSED)),
    router=softmax_router(
        linear=Linear(name="router"), top_k=key("moe_topk"), order="choose_first", math="model"
    ),
    experts=experts("moe_num_experts", "intermediate_size", activation="silu"),
    files=(
        ExpertFiles(
            gate_up=("mlp.experts.fc1.weight",),
            down="mlp.experts.fc2.weight",
            layout=FUSED_TRANSPOSED,
        ),
        fused_files(transposed=True),
    ),
    shared=shared(
        "shared_experts",
        times("intermediate_size", "moe_num_shared_experts"),
        activation=key("hidden_act"),
    ),
)
