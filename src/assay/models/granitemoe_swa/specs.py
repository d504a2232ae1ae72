"""granitemoe_swa: granitemoe's experts; files have transformers 5's names."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.experts import SharedExpert
from assay.spec.markers import rule
from assay.spec.moe import MoESpec
from assay.spec.moe_patterns import (
    FUSED_NAMES,
    GATE_UP,
    ONLY_FUSED,
    experts,
    fused_files,
    shared,
    softmax_router,
)
from assay.spec.resolve import Context
from assay.spec.vocabulary import Linear


def _shared(context: Context) -> SharedExpert | None:
    """None where the config gives it no width."""
    if not context.config.get("shared_intermediate_size"):
        return None
    return shared("shared_mlp", "shared_intermediate_size", packed=True, outside=True)


register(
    ModelSpec(
        model_type="granitemoe_swa",
        architectures=("GraniteMoeSWAForCausalLM",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "intermediate_size": 11008,
                "num_experts_per_tok": 2,
                "num_local_experts": 8,
                "shared_intermediate_size": 0,
            }
        ),
        moe_spec=MoESpec(
            block_names=("GraniteMoeSWAMoE",),
            expert_linear_names=FUSED_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ONLY_FUSED,
            router=softmax_router(linear=Linear(name="router"), order="choose_first"),
            experts=experts("num_local_experts", "intermediate_size"),
            files=(fused_files("block_sparse_moe"),),
            shared=rule(_shared),
        ),
    )
)
