"""inkling2_loop_text: inkling2_text's experts.

Shared by the model types inkling2_loop_text, inkling2_loop.
"""

from __future__ import annotations

from assay.spec.experts import Glu
from assay.spec.markers import key
from assay.spec.moe import ExpertFiles, ExpertLayout, MoESpec
from assay.spec.moe_patterns import (
    FUSED_NAMES,
    GATE_UP,
    ONLY_FUSED,
    experts,
    fused_files,
    sigmoid_router,
)

__all__ = ["INKLING2_LOOP_MOE"]


INTERLEAVED_FILES = ExpertFiles(
    gate_up=("mlp.experts.w13_weight",),
    down="mlp.experts.w2_weight",
    layout=ExpertLayout(kind="fused", is_concatenated=False),
    renames=(("mlp.gate.e_score_correction_bias", "mlp.gate.bias"),),
)


SOFTCAPPED = Glu(
    activation="silu",
    gate_limit=key("mlp_gate_softcap"),
    up_limit=key("mlp_up_softcap"),
    limit_as="tanh",
)


INKLING2_LOOP_MOE = MoESpec(
    block_names=("Inkling2LoopSparseMoeBlock",),
    expert_linear_names=FUSED_NAMES,
    gate_up_pair=GATE_UP,
    layouts=ONLY_FUSED,
    router=sigmoid_router(
        score=key("scoring_func"), groups=None, normalize="sum", scale=key("route_scale")
    ),
    experts=experts("n_routed_experts", activation=SOFTCAPPED),
    files=(
        INTERLEAVED_FILES,
        fused_files(),
    ),
)
