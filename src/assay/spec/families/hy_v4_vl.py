"""hy_v4_vl_text: hy_v4's experts.

Shared by the model types hy_v4_vl_text, hy_v4_vl.
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
    fused_files,
    shared,
    sigmoid_router,
    times,
)

__all__ = ["HY_V4_VL_MOE"]


CLAMPED = Glu(activation="silu", gate_limit=key("swiglu_limit"), up_limit=key("swiglu_limit"))


HY_V4_VL_MOE = MoESpec(
    block_names=("HYV4VLMoE",),
    expert_linear_names=FUSED_NAMES,
    gate_up_pair=GATE_UP,
    layouts=ONLY_FUSED,
    router=sigmoid_router(),
    experts=experts("n_routed_experts", activation=CLAMPED),
    files=(
        fused_files(renames=(("mlp.shared_experts.gate_proj", "mlp.shared_experts.linear_gate"),)),
    ),
    shared=shared(
        "shared_experts",
        times("moe_intermediate_size", "n_shared_experts"),
        activation=key("hidden_act"),
    ),
    sparse_layers=SparseLayers(types_key="mlp_layer_types", first_dense=1),
)
