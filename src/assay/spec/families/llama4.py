"""llama4_text: the best logits' sigmoids multiply the experts' inputs; stored [in, out].

Shared by the model types llama4_text, llama4.
"""

from __future__ import annotations

from assay.spec.moe import FUSED_TRANSPOSED, MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    FUSED_NAMES,
    GATE_UP,
    experts,
    fused_files,
    per_expert_files,
    shared,
    softmax_router,
)
from assay.spec.vocabulary import Linear

__all__ = ["LLAMA4_MOE"]


LLAMA4_MOE = MoESpec(
    block_names=("Llama4TextMoe",),
    expert_linear_names=FUSED_NAMES,
    gate_up_pair=GATE_UP,
    layouts=(("4.57.0", FUSED_TRANSPOSED),),
    router=softmax_router(
        linear=Linear(name="router"), score="sigmoid", order="choose_first", weight_on="input"
    ),
    experts=experts("num_local_experts", "intermediate_size"),
    # Tools that quantize linears split the experts first.
    files=(fused_files("feed_forward", transposed=True), per_expert_files("feed_forward")),
    shared=shared("shared_expert", "intermediate_size"),
    sparse_layers=SparseLayers(listed_key="moe_layers", step_key="interleave_moe_layer_step"),
)
