"""olmo: LayerNorms without any tensor, and q, k, v clamped after their projections."""

from assay.spec import ConfigSpec, ExportSpec, ModelSpec, RuntimeSpec, WeightsSpec, register
from assay.spec.export_section import mlp_fuse_rule
from assay.spec.markers import key
from assay.spec.patterns import LLAMA_IGNORED, attention, decoder, gated_mlp, layer_norm
from assay.spec.rope import rope_from_config
from assay.spec.rules import HEAD_DIM
from assay.spec.vocabulary import Branch

PLAIN = layer_norm(None, eps=1e-5, weight=False, bias=False)

register(
    ModelSpec(
        model_type="olmo",
        architectures=("OlmoForCausalLM",),
        config_spec=ConfigSpec(
            defaults={
                "vocab_size": 50304,
                "hidden_size": 4096,
                "intermediate_size": 11008,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "num_key_value_heads": None,
                "head_dim": None,
                "hidden_act": "silu",
                "max_position_embeddings": 2048,
                "attention_bias": False,
                "clip_qkv": None,
                "tie_word_embeddings": False,
            },
        ),
        weights_spec=WeightsSpec(ignored=LLAMA_IGNORED),
        decoder_spec=decoder(
            Branch(
                norm=PLAIN,
                mixer=attention(
                    bias=key("attention_bias"),
                    clip_qkv=key("clip_qkv"),
                    rope=rope_from_config(head_dim=HEAD_DIM),
                ),
            ),
            Branch(norm=PLAIN, mixer=gated_mlp()),
            final_norm=PLAIN,
        ),
        export_spec=ExportSpec(pqs_fuse_rules=(mlp_fuse_rule("OlmoMLP"),)),
        runtime_spec=RuntimeSpec(genai_model_type="olmo"),
    )
)
