"""stablelm: LayerNorms, rotary on a quarter of each head, parallel branches on request."""

from assay.spec import ConfigSpec, ExportSpec, ModelSpec, RuntimeSpec, WeightsSpec, register
from assay.spec.export_section import attention_fuse_rule, mlp_fuse_rule
from assay.spec.markers import key, when
from assay.spec.patterns import LLAMA_IGNORED, attention, decoder, gated_mlp, layer_norm
from assay.spec.rope import rope_from_config
from assay.spec.rules import HIDDEN_PER_HEAD
from assay.spec.vocabulary import Branch, Layer, Norm, Sum

EPS = key("layer_norm_eps")


def per_head(name: str) -> Norm:
    """A LayerNorm without bias for each head, with a weight of its own."""
    return layer_norm(f"{name}.norms.{{head}}", eps=EPS, bias=False, scope="each_head")


ATTENTION = attention(
    head_dim=HIDDEN_PER_HEAD,
    bias=key("use_qkv_bias"),
    o_bias=False,
    q_norm=when(key("qk_layernorm"), per_head("q_layernorm"), None),
    k_norm=when(key("qk_layernorm"), per_head("k_layernorm"), None),
    rope=rope_from_config(
        head_dim=HIDDEN_PER_HEAD, fraction_keys=("partial_rotary_factor",), default_fraction=0.25
    ),
)
INPUT_NORM = layer_norm("input_layernorm", eps=EPS)

register(
    ModelSpec(
        model_type="stablelm",
        architectures=("StableLmForCausalLM",),
        config_spec=ConfigSpec(
            defaults={
                "vocab_size": 50304,
                "hidden_size": 2560,
                "intermediate_size": 6912,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "num_key_value_heads": 32,
                "hidden_act": "silu",
                "max_position_embeddings": 4096,
                "layer_norm_eps": 1e-5,
                "use_qkv_bias": False,
                "qk_layernorm": False,
                "use_parallel_residual": False,
                "tie_word_embeddings": False,
            },
            aliases={"rope_pct": "partial_rotary_factor"},
        ),
        weights_spec=WeightsSpec(ignored=LLAMA_IGNORED),
        decoder_spec=decoder(
            layer=when(
                key("use_parallel_residual"),
                Layer(
                    branches=(
                        Branch(
                            norm=INPUT_NORM,
                            mixer=Sum(
                                branches=(Branch(mixer=ATTENTION), Branch(mixer=gated_mlp()))
                            ),
                        ),
                    )
                ),
                Layer(
                    branches=(
                        Branch(norm=INPUT_NORM, mixer=ATTENTION),
                        Branch(
                            norm=layer_norm("post_attention_layernorm", eps=EPS),
                            mixer=gated_mlp(),
                        ),
                    )
                ),
            ),
            final_norm=layer_norm("model.norm", eps=EPS),
        ),
        export_spec=ExportSpec(
            pqs_fuse_rules=(attention_fuse_rule("StableLmAttention"), mlp_fuse_rule("StableLmMLP"))
        ),
        runtime_spec=RuntimeSpec(genai_model_type="decoder"),
    )
)
