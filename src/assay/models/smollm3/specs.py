"""smollm3: llama without rotary on every fourth layer (no_rope_layers: 1 means that it rotates)."""

from assay.spec import ConfigSpec, ModelSpec, RuntimeSpec, WeightsSpec, register
from assay.spec.markers import by_layer, by_layer_type, key, or_else, rule, when
from assay.spec.patterns import LLAMA_IGNORED, attention, decoder, gated_mlp, rms_norm
from assay.spec.resolve import Context
from assay.spec.rope import rope_from_config
from assay.spec.rules import HEAD_DIM, layer_types_or
from assay.spec.vocabulary import Branch


def every_nth_without(context: Context) -> tuple[int, ...]:
    """0 for every no_rope_layer_interval-th layer, 1 for the others."""
    interval = context.config.get_size("no_rope_layer_interval")
    layers = context.config.get_size("num_hidden_layers")
    return tuple(int((index + 1) % interval != 0) for index in range(layers))


def slide_without_rope(context: Context) -> tuple[str, ...]:
    """Layers without rotary slide, where a window is switched on."""
    config = context.config
    used = config.get("use_sliding_window") and config.get("sliding_window") is not None
    return tuple(
        "sliding_attention" if used and not rotates else "full_attention"
        for rotates in context.resolve(ROTATES)
    )


ROTATES = or_else(key("no_rope_layers"), rule(every_nth_without))

register(
    ModelSpec(
        model_type="smollm3",
        architectures=("SmolLM3ForCausalLM",),
        config_spec=ConfigSpec(
            defaults={
                "vocab_size": 128256,
                "hidden_size": 2048,
                "intermediate_size": 11008,
                "num_hidden_layers": 36,
                "num_attention_heads": 16,
                "num_key_value_heads": 4,
                "head_dim": None,
                "hidden_act": "silu",
                "max_position_embeddings": 32768,
                "rms_norm_eps": 1e-6,
                "attention_bias": False,
                "mlp_bias": False,
                "use_sliding_window": False,
                "sliding_window": None,
                "no_rope_layers": None,
                "no_rope_layer_interval": 4,
                "tie_word_embeddings": True,
            },
            neutral={"max_window_layers": "read by no release"},
        ),
        weights_spec=WeightsSpec(ignored=LLAMA_IGNORED),
        decoder_spec=decoder(
            Branch(
                norm=rms_norm("input_layernorm"),
                mixer=attention(
                    bias=key("attention_bias"),
                    rope=when(
                        by_layer(ROTATES),
                        rope_from_config(head_dim=HEAD_DIM, default_theta=2e6),
                        None,
                    ),
                    window=by_layer_type(
                        full_attention=None, sliding_attention=key("sliding_window")
                    ),
                ),
            ),
            Branch(
                norm=rms_norm("post_attention_layernorm"), mixer=gated_mlp(bias=key("mlp_bias"))
            ),
            layer_types=layer_types_or(rule(slide_without_rope)),
        ),
        runtime_spec=RuntimeSpec(genai_model_type="smollm3"),
    )
)
