"""mistral: llama with a sliding window on every layer, unless the config says null."""

from assay.spec import ConfigSpec, ExportSpec, ModelSpec, RuntimeSpec, WeightsSpec, register
from assay.spec.export_section import attention_fuse_rule, mlp_fuse_rule
from assay.spec.markers import key
from assay.spec.patterns import LLAMA_IGNORED, attention, decoder, gated_mlp, rms_norm
from assay.spec.rope import rope_from_config
from assay.spec.rules import HEAD_DIM
from assay.spec.vocabulary import Branch

register(
    ModelSpec(
        model_type="mistral",
        architectures=("MistralForCausalLM",),
        becomes=(("layer_types", "ministral"),),  # as transformers' AutoConfig does
        config_spec=ConfigSpec(
            defaults={
                "vocab_size": 32000,
                "hidden_size": 4096,
                "intermediate_size": 14336,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "head_dim": None,
                "hidden_act": "silu",
                "max_position_embeddings": 131072,
                "rms_norm_eps": 1e-6,
                "sliding_window": 4096,
                "tie_word_embeddings": False,
            },
        ),
        weights_spec=WeightsSpec(ignored=LLAMA_IGNORED),
        decoder_spec=decoder(
            Branch(
                norm=rms_norm("input_layernorm"),
                mixer=attention(
                    rope=rope_from_config(head_dim=HEAD_DIM), window=key("sliding_window")
                ),
            ),
            Branch(norm=rms_norm("post_attention_layernorm"), mixer=gated_mlp()),
        ),
        export_spec=ExportSpec(
            pqs_fuse_rules=(attention_fuse_rule("MistralAttention"), mlp_fuse_rule("MistralMLP"))
        ),
        runtime_spec=RuntimeSpec(genai_model_type="mistral"),
    )
)
