"""qwen3_vl_moe_text: softmax over all experts, always normalized; files hold [in, out].

Shared by the model types qwen3_vl_moe_text, qwen3_vl_moe.
"""

from __future__ import annotations

from assay.spec.moe import FUSED, FUSED_TRANSPOSED, MoESpec, SparseLayers
from assay.spec.moe_patterns import FUSED_NAMES, GATE_UP, experts, fused_files, softmax_router

__all__ = ["QWEN3_VL_MOE_MOE"]


QWEN3_VL_MOE_MOE = MoESpec(
    block_names=("Qwen3VLMoeTextSparseMoeBlock",),
    expert_linear_names=FUSED_NAMES,
    gate_up_pair=GATE_UP,
    layouts=(("4.57.0", FUSED_TRANSPOSED), ("5.0.0", FUSED)),
    router=softmax_router(normalize="sum"),
    experts=experts("num_local_experts"),
    files=(
        fused_files(transposed=True),
        fused_files(),
    ),
    sparse_layers=SparseLayers(dense_key="mlp_only_layers", step_key="decoder_sparse_step"),
)
