"""gemma2: four norms a layer, softcaps on scores and logits, every second layer slides."""

from assay.spec import ConfigSpec, ExportSpec, ModelSpec, RuntimeSpec, WeightsSpec, register
from assay.spec.export_section import attention_fuse_rule, mlp_fuse_rule
from assay.spec.markers import by_layer_type, key
from assay.spec.patterns import LLAMA_IGNORED, attention, decoder, gated_mlp, rms_norm
from assay.spec.rope import rope_from_config
from assay.spec.rules import every_nth_is_full, inverse_sqrt, layer_types_or, size, sqrt
from assay.spec.vocabulary import Branch, Embedding, Head

register(
    ModelSpec(
        model_type="gemma2",
        architectures=("Gemma2ForCausalLM",),
        config_spec=ConfigSpec(
            defaults={
                "vocab_size": 256000,
                "hidden_size": 2304,
                "intermediate_size": 9216,
                "num_hidden_layers": 26,
                "num_attention_heads": 8,
                "num_key_value_heads": 4,
                "head_dim": 256,
                "hidden_activation": "gelu_pytorch_tanh",
                "max_position_embeddings": 8192,
                "rms_norm_eps": 1e-6,
                "attention_bias": False,
                "query_pre_attn_scalar": 256,
                "sliding_window": 4096,
                "final_logit_softcapping": 30.0,
                "attn_logit_softcapping": 50.0,
                "tie_word_embeddings": True,
            },
            only={"use_bidirectional_attention": (False, None)},
            neutral={
                "hidden_act": "hidden_activation counts",
                "cache_implementation": "a default of generate(), not of the forward pass",
                "sliding_window_size": "an old copy of sliding_window that no release reads",
            },
        ),
        weights_spec=WeightsSpec(ignored=LLAMA_IGNORED),
        decoder_spec=decoder(
            Branch(
                norm=rms_norm("input_layernorm", offset=1.0),
                mixer=attention(
                    head_dim=size("head_dim"),
                    bias=key("attention_bias"),
                    scale=inverse_sqrt(key("query_pre_attn_scalar")),
                    softcap=key("attn_logit_softcapping"),
                    rope=rope_from_config(head_dim=size("head_dim")),
                    window=by_layer_type(
                        full_attention=None, sliding_attention=key("sliding_window")
                    ),
                ),
                post_norm=rms_norm("post_attention_layernorm", offset=1.0),
            ),
            Branch(
                norm=rms_norm("pre_feedforward_layernorm", offset=1.0),
                mixer=gated_mlp(activation=key("hidden_activation")),
                post_norm=rms_norm("post_feedforward_layernorm", offset=1.0),
            ),
            layer_types=layer_types_or(every_nth_is_full(2)),
            embedding=Embedding(name="model.embed_tokens", scale=sqrt(size("hidden_size"))),
            final_norm=rms_norm("model.norm", offset=1.0),
            head=Head(
                name="lm_head",
                tied=key("tie_word_embeddings"),
                softcap=key("final_logit_softcapping"),
            ),
        ),
        export_spec=ExportSpec(
            pqs_fuse_rules=(attention_fuse_rule("Gemma2Attention"), mlp_fuse_rule("Gemma2MLP")),
            weight_plus_one_norm_names=("Gemma2RMSNorm",),
        ),
        runtime_spec=RuntimeSpec(genai_model_type="gemma2"),
    )
)
