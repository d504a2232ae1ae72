"""dots3_note_text: DeepSeek-V3's experts; the shared ones have a width of their own.

Shared by the model types dots3_note_text, dots3_note.
"""

from __future__ import annotations

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

__all__ = ["DOTS3_NOTE_MOE"]


DOTS3_NOTE_MOE = MoESpec(
    block_names=("Dots3NoteTextMoE",),
    expert_linear_names=FUSED_NAMES,
    gate_up_pair=GATE_UP,
    layouts=ONLY_FUSED,
    router=sigmoid_router(),
    experts=experts("n_routed_experts"),
    files=per_expert_or_fused(),
    shared=shared("shared_experts", times("shared_experts_intermediate_size", "n_shared_experts")),
    sparse_layers=SparseLayers(
        types_key="mlp_layer_types", first_dense_key="first_k_dense_replace", first_dense=1
    ),
)
