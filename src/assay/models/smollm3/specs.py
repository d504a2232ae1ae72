"""smollm3: llama without rotary on every fourth layer (no_rope_layers: 1 means that it rotates)."""

from assay.errors import ConfigError
from assay.spec import ConfigSpec, ExportSpec, ModelSpec, RuntimeSpec, WeightsSpec, register
from assay.spec.export_section import attention_fuse_rule, mlp_fuse_rule
from assay.spec.markers import by_layer, by_layer_type, key, rule, when
from assay.spec.patterns import LLAMA_IGNORED, attention, decoder, gated_mlp, rms_norm
from assay.spec.resolve import Context
from assay.spec.rope import rope_from_config
from assay.spec.rules import HEAD_DIM, layer_types_or
from assay.spec.vocabulary import Branch


def rotates(context: Context) -> tuple[bool, ...]:
    """no_rope_layers, 1 for a layer that rotates; every no_rope_layer_interval-th doesn't."""
    config = context.config
    listed = config.get("no_rope_layers")
    interval = config.get_size("no_rope_layer_interval")
    layers = config.get_size("num_hidden_layers")
    if listed is None:
        return tuple((index + 1) % interval != 0 for index in range(layers))
    if (
        not isinstance(listed, list)
        or len(listed) != layers
        or any(n not in (0, 1) for n in listed)
    ):
        raise ConfigError(
            config.where, f"no_rope_layers is {listed!r}", expected=f"a list of {layers} 0s and 1s"
        )
    return tuple(bool(entry) for entry in listed)


def slide_without_rope(context: Context) -> tuple[str, ...]:
    """Layers without rotary slide, where a window is switched on."""
    config = context.config
    used = config.get_flag("use_sliding_window") and config.get("sliding_window") is not None
    return tuple(
        "sliding_attention" if used and not turns else "full_attention"
        for turns in rotates(context)
    )


ROTATES = rule(rotates)

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
        export_spec=ExportSpec(
            pqs_fuse_rules=(attention_fuse_rule("SmolLM3Attention"), mlp_fuse_rule("SmolLM3MLP"))
        ),
        runtime_spec=RuntimeSpec(genai_model_type="smollm3"),
    )
)
