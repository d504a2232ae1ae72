"""gemma4_text: router and experts in the layer, beside a dense MLP.

Shared by the model types gemma4_text, gemma4.
"""

from __future__ import annotations

from assay.spec.markers import key
from assay.spec.moe import MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    FUSED_NAMES,
    GATE_UP,
    ONLY_FUSED,
    experts,
    fused_files,
    shared,
    softmax_router,
)
from assay.spec.vocabulary import Linear, Norm

__all__ = ["GEMMA4_MOE"]


GEMMA4_MOE = MoESpec(
    block_names=("Gemma4TextDecoderLayer",),
    needs="experts",
    expert_linear_names=FUSED_NAMES,
    gate_up_pair=GATE_UP,
    layouts=ONLY_FUSED,
    router=softmax_router(
        linear=Linear(name="router.proj"),
        top_k=key("top_k_experts"),
        reads="stream",
        norm=Norm(name=None, kind="rms", eps=key("rms_norm_eps"), weight=False),
        channel_scale="router.scale",
        normalize="sum",
        expert_scale="router.per_expert_scale",
    ),
    experts=experts("num_experts", activation=key("hidden_activation")),
    files=(fused_files(""),),
    shared=shared("mlp", "intermediate_size", outside=True),
    sparse_layers=SparseLayers(switch_key="enable_moe_block"),
)
