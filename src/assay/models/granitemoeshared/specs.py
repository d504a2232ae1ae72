"""granitemoeshared: granitemoe's experts, and a shared MLP beside the block."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.experts import SharedExpert
from assay.spec.markers import rule
from assay.spec.moe import FUSED, ExpertFiles, MoESpec
from assay.spec.moe_patterns import GATE_UP, experts, fused_files, shared, softmax_router
from assay.spec.resolve import Context
from assay.spec.vocabulary import Linear

LINEAR_FILES = ExpertFiles(
    gate_up=("block_sparse_moe.input_linear.weight",),
    down="block_sparse_moe.output_linear.weight",
    layout=FUSED,
    renames=(("block_sparse_moe.router", "block_sparse_moe.router.layer"),),
)


def _shared(context: Context) -> SharedExpert | None:
    """None where the config gives it no width."""
    if not context.config.get("shared_intermediate_size"):
        return None
    return shared("shared_mlp", "shared_intermediate_size", packed=True, outside=True)


register(
    ModelSpec(
        model_type="granitemoeshared",
        architectures=("GraniteMoeSharedForCausalLM",),
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
            block_names=("GraniteMoeSharedMoE",),
            expert_linear_names=("input_linear", "output_linear"),
            gate_up_pair=GATE_UP,
            layouts=(("4.57.0", FUSED), ("5.0.0", FUSED)),
            router=softmax_router(linear=Linear(name="router"), order="choose_first"),
            experts=experts("num_local_experts", "intermediate_size"),
            files=(
                LINEAR_FILES,
                fused_files("block_sparse_moe"),
            ),
            shared=rule(_shared),
        ),
    )
)
