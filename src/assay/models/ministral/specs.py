"""ministral: mistral with the window chosen layer by layer."""

from assay.spec import ConfigSpec, ExportSpec, ModelSpec, RuntimeSpec, WeightsSpec, register
from assay.spec.export_section import attention_fuse_rule, mlp_fuse_rule
from assay.spec.markers import by_layer_type, key
from assay.spec.patterns import LLAMA_IGNORED, attention, decoder, gated_mlp, rms_norm
from assay.spec.rope import rope_from_config
from assay.spec.rules import HEAD_DIM, every_layer_slides, layer_types_or
from assay.spec.vocabulary import Branch

register(
    ModelSpec(
        model_type="ministral",
        architectures=("MinistralForCausalLM",),
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
                    rope=rope_from_config(head_dim=HEAD_DIM),
                    window=by_layer_type(
                        full_attention=None, sliding_attention=key("sliding_window")
                    ),
                ),
            ),
            Branch(norm=rms_norm("post_attention_layernorm"), mixer=gated_mlp()),
            layer_types=layer_types_or(every_layer_slides),
        ),
        export_spec=ExportSpec(
            pqs_fuse_rules=(
                attention_fuse_rule("MinistralAttention"),
                mlp_fuse_rule("MinistralMLP"),
            )
        ),
        runtime_spec=RuntimeSpec(genai_model_type="mistral"),
    )
)
