"""muse_spark_text: sigmoids of scaled logits; experts on a projection, each normed.

Shared by the model types muse_spark_text, muse_spark.
"""

from __future__ import annotations

from assay.spec.experts import LowRank
from assay.spec.markers import key
from assay.spec.moe import MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    FUSED_NAMES,
    GATE_UP,
    ONLY_FUSED,
    experts,
    fused_files,
    sigmoid_router,
)
from assay.spec.patterns import rms_norm
from assay.spec.vocabulary import Linear, Norm

__all__ = ["MUSE_SPARK_MOE"]


MUSE_SPARK_MOE = MoESpec(
    block_names=("MuseSparkMoE",),
    expert_linear_names=FUSED_NAMES,
    gate_up_pair=GATE_UP,
    layouts=ONLY_FUSED,
    router=sigmoid_router(
        groups=None, normalize="sum", normalize_eps=1e-15, logit_scale=key("output_multiplier")
    ),
    experts=experts(
        "num_local_experts",
        norm=Norm(
            name="experts.post_expert_norm", kind="rms", eps=key("post_norm_eps"), offset=1.0
        ),
        norm_order="scale_first",
        latent=LowRank(
            down=Linear(name="pre_expert_proj"),
            up=Linear(name="post_expert_proj"),
            width=key("moe_hidden_size"),
            norm=rms_norm("pre_expert_norm", offset=1.0),
        ),
    ),
    files=(fused_files(),),
    sparse_layers=SparseLayers(types_key="mlp_layer_types"),
)
