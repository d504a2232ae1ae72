"""ernie4_5_moe: float32 softmax, a bias for the choice, the sum at least moe_norm_min."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.experts import SharedExpert
from assay.spec.markers import key, rule
from assay.spec.moe import MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    GATE_UP,
    ITERABLE_THEN_FUSED,
    LLAMA_NAMES,
    experts,
    fused_files,
    per_expert_files,
    shared,
    softmax_router,
    times,
)
from assay.spec.resolve import Context


def _shared(context: Context) -> SharedExpert | None:
    """None where the config counts no shared experts."""
    if not context.config.get("moe_num_shared_experts"):
        return None
    return shared("shared_experts", times("moe_intermediate_size", "moe_num_shared_experts"))


register(
    ModelSpec(
        model_type="ernie4_5_moe",
        architectures=("Ernie4_5_MoeForCausalLM",),
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "moe_intermediate_size": 1536,
                "moe_k": 6,
                "moe_layer_end_index": 27,
                "moe_layer_interval": 1,
                "moe_layer_start_index": 1,
                "moe_norm_min": 1e-12,
                "moe_num_experts": 64,
                "moe_num_shared_experts": 2,
            },
            aliases={"num_experts": "moe_num_experts", "num_experts_per_tok": "moe_k"},
        ),
        moe_spec=MoESpec(
            block_names=("Ernie4_5_MoeSparseMoeBlock",),
            expert_linear_names=LLAMA_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ITERABLE_THEN_FUSED,
            router=softmax_router(
                top_k=key("moe_k"),
                choice_bias="gate.moe_statics.e_score_correction_bias",
                normalize="sum_at_least",
                normalize_eps=key("moe_norm_min"),
                math="float32",
            ),
            experts=experts("moe_num_experts"),
            files=(
                per_expert_files(renames=(("mlp.gate.moe_statics", "mlp.moe_statics"),)),
                fused_files(),
            ),
            shared=rule(_shared),
            sparse_layers=SparseLayers(
                step_key="moe_layer_interval",
                start_key="moe_layer_start_index",
                end_key="moe_layer_end_index",
            ),
        ),
    )
)
