"""granite: llama with four multipliers, and an attention scale that is not head_dim ** -0.5."""

from assay.spec import ConfigSpec, ExportSpec, ModelSpec, RuntimeSpec, WeightsSpec, register
from assay.spec.export_section import attention_fuse_rule, mlp_fuse_rule
from assay.spec.markers import key
from assay.spec.patterns import LLAMA_IGNORED, attention, decoder, gated_mlp, rms_norm
from assay.spec.rope import rope_from_config
from assay.spec.rules import HEAD_DIM, reciprocal
from assay.spec.vocabulary import Branch, Embedding, Head

register(
    ModelSpec(
        model_type="granite",
        architectures=("GraniteForCausalLM",),
        config_spec=ConfigSpec(
            defaults={
                "vocab_size": 32000,
                "hidden_size": 4096,
                "intermediate_size": 11008,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "num_key_value_heads": None,
                "head_dim": None,
                "hidden_act": "silu",
                "max_position_embeddings": 2048,
                "rms_norm_eps": 1e-6,
                "attention_bias": False,
                "mlp_bias": False,
                "embedding_multiplier": 1.0,
                "logits_scaling": 1.0,
                "residual_multiplier": 1.0,
                "attention_multiplier": 1.0,
                "tie_word_embeddings": False,
            },
        ),
        weights_spec=WeightsSpec(ignored=LLAMA_IGNORED),
        decoder_spec=decoder(
            Branch(
                norm=rms_norm("input_layernorm"),
                mixer=attention(
                    bias=key("attention_bias"),
                    scale=key("attention_multiplier"),
                    rope=rope_from_config(head_dim=HEAD_DIM),
                ),
                multiplier=key("residual_multiplier"),
            ),
            Branch(
                norm=rms_norm("post_attention_layernorm"),
                mixer=gated_mlp(bias=key("mlp_bias")),
                multiplier=key("residual_multiplier"),
            ),
            embedding=Embedding(name="model.embed_tokens", scale=key("embedding_multiplier")),
            head=Head(
                name="lm_head",
                tied=key("tie_word_embeddings"),
                multiplier=reciprocal(key("logits_scaling")),
            ),
        ),
        export_spec=ExportSpec(
            pqs_fuse_rules=(attention_fuse_rule("GraniteAttention"), mlp_fuse_rule("GraniteMLP"))
        ),
        runtime_spec=RuntimeSpec(genai_model_type="granite"),
    )
)
