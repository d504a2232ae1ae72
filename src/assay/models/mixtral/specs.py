"""mixtral: softmax over all experts, always normalized."""

from __future__ import annotations

from assay.spec import ConfigSpec, ExportSpec, ModelSpec, register
from assay.spec.export_section import attention_fuse_rule, mlp_fuse_rule
from assay.spec.moe import MoESpec
from assay.spec.moe_patterns import (
    ITERABLE_THEN_FUSED,
    MIXTRAL_NAMES,
    W1_W3,
    experts,
    fused_files,
    per_expert_files,
    softmax_router,
)

register(
    ModelSpec(
        model_type="mixtral",
        architectures=("MixtralForCausalLM",),
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "intermediate_size": 14336,
                "num_experts_per_tok": 2,
                "num_local_experts": 8,
            },
            aliases={"num_experts": "num_local_experts"},
        ),
        moe_spec=MoESpec(
            block_names=("MixtralSparseMoeBlock",),
            expert_linear_names=MIXTRAL_NAMES,
            gate_up_pair=W1_W3,
            layouts=ITERABLE_THEN_FUSED,
            router=softmax_router(normalize="sum"),
            experts=experts("num_local_experts", "intermediate_size"),
            files=(
                per_expert_files("block_sparse_moe", MIXTRAL_NAMES, module="mlp"),
                fused_files(),
            ),
        ),
        export_spec=ExportSpec(
            grouped_expert_export=True,
            pqs_fuse_rules=(
                attention_fuse_rule("MixtralAttention"),
                mlp_fuse_rule("MixtralBlockSparseTop2MLP", into="w3", source="w2"),
            ),
        ),
    )
)
