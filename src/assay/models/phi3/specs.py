"""phi3: llama with q, k, v in one tensor and gate, up in another; longrope for long contexts."""

from assay.spec import ConfigSpec, ModelSpec, RuntimeSpec, WeightsSpec, register
from assay.spec.markers import key
from assay.spec.patterns import LLAMA_IGNORED, attention, decoder, rms_norm
from assay.spec.rope import rope_from_config
from assay.spec.rules import HEAD_DIM, size
from assay.spec.vocabulary import Branch, FusedQkv, Linear, Mlp

register(
    ModelSpec(
        model_type="phi3",
        architectures=("Phi3ForCausalLM",),
        config_spec=ConfigSpec(
            defaults={
                "vocab_size": 32064,
                "hidden_size": 3072,
                "intermediate_size": 8192,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "num_key_value_heads": None,
                "head_dim": None,
                "hidden_act": "silu",
                "max_position_embeddings": 4096,
                "original_max_position_embeddings": 4096,
                "rms_norm_eps": 1e-5,
                "sliding_window": None,
                "tie_word_embeddings": False,
            },
            only={"attention_bias": (False,), "embd_layer_norm": (False, None)},
        ),
        weights_spec=WeightsSpec(ignored=LLAMA_IGNORED),
        decoder_spec=decoder(
            Branch(
                norm=rms_norm("input_layernorm"),
                mixer=attention(
                    qkv=FusedQkv(linear=Linear(name="qkv_proj"), rows="q|k|v"),
                    rope=rope_from_config(
                        head_dim=HEAD_DIM,
                        fraction_keys=("partial_rotary_factor",),
                        kind_names=(("su", "longrope"), ("yarn", "longrope")),
                    ),
                    window=key("sliding_window"),
                ),
            ),
            Branch(
                norm=rms_norm("post_attention_layernorm"),
                mixer=Mlp(
                    name="mlp",
                    width=size("intermediate_size"),
                    activation=key("hidden_act"),
                    gate_up=Linear(name="gate_up_proj"),
                    down=Linear(name="down_proj"),
                ),
            ),
        ),
        runtime_spec=RuntimeSpec(genai_model_type="phi3"),
    )
)
