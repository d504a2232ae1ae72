"""gemma: norms that store w - 1, embeddings scaled by sqrt(hidden_size), a tied head."""

from assay.spec import ConfigSpec, ExportSpec, ModelSpec, RuntimeSpec, WeightsSpec, register
from assay.spec.export_section import attention_fuse_rule, mlp_fuse_rule
from assay.spec.markers import key
from assay.spec.patterns import LLAMA_IGNORED, attention, decoder, gated_mlp, rms_norm
from assay.spec.rope import rope_from_config
from assay.spec.rules import renamed, size, sqrt
from assay.spec.vocabulary import Branch, Embedding

register(
    ModelSpec(
        model_type="gemma",
        architectures=("GemmaForCausalLM",),
        config_spec=ConfigSpec(
            defaults={
                "vocab_size": 256000,
                "hidden_size": 3072,
                "intermediate_size": 24576,
                "num_hidden_layers": 28,
                "num_attention_heads": 16,
                "num_key_value_heads": 16,
                "head_dim": 256,
                "hidden_act": "gelu_pytorch_tanh",
                "max_position_embeddings": 8192,
                "rms_norm_eps": 1e-6,
                "attention_bias": False,
                "tie_word_embeddings": True,
            },
            only={"use_bidirectional_attention": (False, None)},
            neutral={"hidden_activation": "read by no release since 4.40; hidden_act counts"},
        ),
        weights_spec=WeightsSpec(ignored=LLAMA_IGNORED),
        decoder_spec=decoder(
            Branch(
                norm=rms_norm("input_layernorm", offset=1.0),
                mixer=attention(
                    head_dim=size("head_dim"),
                    bias=key("attention_bias"),
                    rope=rope_from_config(head_dim=size("head_dim")),
                ),
            ),
            Branch(
                norm=rms_norm("post_attention_layernorm", offset=1.0),
                # The first files say "gelu" and mean its tanh form.
                mixer=gated_mlp(activation=renamed("hidden_act", gelu="gelu_pytorch_tanh")),
            ),
            embedding=Embedding(name="model.embed_tokens", scale=sqrt(size("hidden_size"))),
            final_norm=rms_norm("model.norm", offset=1.0),
        ),
        export_spec=ExportSpec(
            pqs_fuse_rules=(attention_fuse_rule("GemmaAttention"), mlp_fuse_rule("GemmaMLP")),
            weight_plus_one_norm_names=("GemmaRMSNorm",),
        ),
        runtime_spec=RuntimeSpec(genai_model_type="gemma"),
    )
)
