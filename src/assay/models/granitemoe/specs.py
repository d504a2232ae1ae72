"""granitemoe: the best logits, then their softmax; files hold fused tensors."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.moe import FUSED, ExpertFiles, MoESpec
from assay.spec.moe_patterns import GATE_UP, experts, fused_files, softmax_router
from assay.spec.vocabulary import Linear

LINEAR_FILES = ExpertFiles(
    gate_up=("block_sparse_moe.input_linear.weight",),
    down="block_sparse_moe.output_linear.weight",
    layout=FUSED,
    renames=(("block_sparse_moe.router", "block_sparse_moe.router.layer"),),
)


register(
    ModelSpec(
        model_type="granitemoe",
        architectures=("GraniteMoeForCausalLM",),
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "intermediate_size": 11008,
                "num_experts_per_tok": 2,
                "num_local_experts": 8,
            }
        ),
        moe_spec=MoESpec(
            block_names=("GraniteMoeMoE",),
            expert_linear_names=("input_linear", "output_linear"),
            gate_up_pair=GATE_UP,
            layouts=(("4.57.0", FUSED), ("5.0.0", FUSED)),
            router=softmax_router(linear=Linear(name="router"), order="choose_first"),
            experts=experts("num_local_experts", "intermediate_size"),
            files=(
                LINEAR_FILES,
                fused_files("block_sparse_moe"),
            ),
        ),
    )
)
