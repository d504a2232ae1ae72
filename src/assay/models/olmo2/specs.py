"""olmo2: norms on what a branch adds, none on what it reads; q/k norms over the full width."""

from assay.spec import ConfigSpec, ExportSpec, ModelSpec, RuntimeSpec, WeightsSpec, register
from assay.spec.export_section import attention_fuse_rule, mlp_fuse_rule
from assay.spec.markers import key
from assay.spec.patterns import LLAMA_IGNORED, attention, decoder, gated_mlp, rms_norm
from assay.spec.rope import rope_from_config
from assay.spec.rules import HEAD_DIM
from assay.spec.vocabulary import Branch

register(
    ModelSpec(
        model_type="olmo2",
        architectures=("Olmo2ForCausalLM",),
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
                "rms_norm_eps": 1e-5,
                "attention_bias": False,
                "tie_word_embeddings": False,
            },
        ),
        weights_spec=WeightsSpec(ignored=LLAMA_IGNORED),
        decoder_spec=decoder(
            Branch(
                mixer=attention(
                    bias=key("attention_bias"),
                    q_norm=rms_norm("q_norm", scope="projection"),
                    k_norm=rms_norm("k_norm", scope="projection"),
                    rope=rope_from_config(head_dim=HEAD_DIM),
                ),
                post_norm=rms_norm("post_attention_layernorm"),
            ),
            Branch(mixer=gated_mlp(), post_norm=rms_norm("post_feedforward_layernorm")),
        ),
        export_spec=ExportSpec(
            pqs_fuse_rules=(attention_fuse_rule("Olmo2Attention"), mlp_fuse_rule("Olmo2MLP"))
        ),
        runtime_spec=RuntimeSpec(genai_model_type="olmo"),
    )
)
