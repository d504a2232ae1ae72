"""llama: the reference that most others are told against."""

from assay.spec import ConfigSpec, ExportSpec, ModelSpec, RuntimeSpec, WeightsSpec, register
from assay.spec.export_section import attention_fuse_rule, mlp_fuse_rule
from assay.spec.markers import key
from assay.spec.patterns import LLAMA_IGNORED, attention, decoder, gated_mlp, rms_norm
from assay.spec.rope import rope_from_config
from assay.spec.rules import HEAD_DIM
from assay.spec.vocabulary import Branch

register(
    ModelSpec(
        model_type="llama",
        architectures=("LlamaForCausalLM",),
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
                "tie_word_embeddings": False,
            },
            only={"rope_interleaved": (False,)},
            neutral={"is_llama_config": "bookkeeping of the file"},
        ),
        weights_spec=WeightsSpec(ignored=LLAMA_IGNORED),
        decoder_spec=decoder(
            Branch(
                norm=rms_norm("input_layernorm"),
                mixer=attention(
                    bias=key("attention_bias"), rope=rope_from_config(head_dim=HEAD_DIM)
                ),
            ),
            Branch(
                norm=rms_norm("post_attention_layernorm"), mixer=gated_mlp(bias=key("mlp_bias"))
            ),
        ),
        export_spec=ExportSpec(
            pqs_fuse_rules=(attention_fuse_rule("LlamaAttention"), mlp_fuse_rule("LlamaMLP"))
        ),
        runtime_spec=RuntimeSpec(genai_model_type="llama"),
    )
)
