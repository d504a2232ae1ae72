"""qwen2: llama with biases on q, k and v; a window on the last layers only if it is switched on."""

from assay.spec import ConfigSpec, ExportSpec, ModelSpec, RuntimeSpec, WeightsSpec, register
from assay.spec.export_section import attention_fuse_rule, mlp_fuse_rule
from assay.spec.markers import by_layer_type
from assay.spec.patterns import LLAMA_IGNORED, attention, decoder, gated_mlp, rms_norm
from assay.spec.rope import rope_from_config
from assay.spec.rules import HEAD_DIM, layer_types_or, window_from_layer, window_if_used
from assay.spec.vocabulary import Branch

register(
    ModelSpec(
        model_type="qwen2",
        architectures=("Qwen2ForCausalLM",),
        config_spec=ConfigSpec(
            defaults={
                "vocab_size": 151936,
                "hidden_size": 4096,
                "intermediate_size": 22016,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "num_key_value_heads": 32,
                "head_dim": None,
                "hidden_act": "silu",
                "max_position_embeddings": 32768,
                "rms_norm_eps": 1e-6,
                "use_sliding_window": False,
                "sliding_window": 4096,
                "max_window_layers": 28,
                "tie_word_embeddings": False,
            },
        ),
        weights_spec=WeightsSpec(ignored=LLAMA_IGNORED),
        decoder_spec=decoder(
            Branch(
                norm=rms_norm("input_layernorm"),
                mixer=attention(
                    bias=True,
                    o_bias=False,
                    rope=rope_from_config(head_dim=HEAD_DIM),
                    window=by_layer_type(full_attention=None, sliding_attention=window_if_used),
                ),
            ),
            Branch(norm=rms_norm("post_attention_layernorm"), mixer=gated_mlp()),
            layer_types=layer_types_or(window_from_layer),
        ),
        export_spec=ExportSpec(
            pqs_fuse_rules=(attention_fuse_rule("Qwen2Attention"), mlp_fuse_rule("Qwen2MLP"))
        ),
        runtime_spec=RuntimeSpec(genai_model_type="qwen2"),
    )
)
