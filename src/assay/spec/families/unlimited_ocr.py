"""unlimited_ocr_text: DeepSeek-V2's experts behind a vision encoder.

Shared by the model types unlimited_ocr_text, unlimited_ocr.
"""

from __future__ import annotations

from assay.spec.experts import RouterGroups
from assay.spec.markers import key, rule
from assay.spec.moe import MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    FUSED_NAMES,
    GATE_UP,
    ONLY_FUSED,
    experts,
    per_expert_or_fused,
    shared,
    softmax_router,
    times,
)
from assay.spec.resolve import Context

__all__ = ["UNLIMITED_OCR_MOE"]


def _groups(context: Context) -> RouterGroups | None:
    """Only group_limited_greedy looks at groups."""
    if context.config.get("topk_method") != "group_limited_greedy":
        return None
    return RouterGroups(count=key("n_group"), keep=key("topk_group"), score="max", masked="zero")


UNLIMITED_OCR_MOE = MoESpec(
    block_names=("UnlimitedOcrTextMoe",),
    expert_linear_names=FUSED_NAMES,
    gate_up_pair=GATE_UP,
    layouts=ONLY_FUSED,
    router=softmax_router(groups=rule(_groups), scale=key("routed_scaling_factor"), math="float32"),
    experts=experts("n_routed_experts"),
    files=per_expert_or_fused(),
    shared=shared("shared_experts", times("moe_intermediate_size", "n_shared_experts")),
    sparse_layers=SparseLayers(
        types_key="mlp_layer_types", first_dense_key="first_k_dense_replace", first_dense=1
    ),
)
