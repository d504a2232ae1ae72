"""nemotron: LayerNorms that store w - 1, a squared-ReLU MLP, rotary on half of each head."""

from assay.spec import ConfigSpec, ExportSpec, ModelSpec, RuntimeSpec, WeightsSpec, register
from assay.spec.export_section import attention_fuse_rule
from assay.spec.markers import key
from assay.spec.patterns import LLAMA_IGNORED, attention, decoder, layer_norm, plain_mlp
from assay.spec.rope import rope_from_config
from assay.spec.rules import HEAD_DIM
from assay.spec.vocabulary import Branch

EPS = key("norm_eps")

register(
    ModelSpec(
        model_type="nemotron",
        architectures=("NemotronForCausalLM",),
        config_spec=ConfigSpec(
            defaults={
                "vocab_size": 256000,
                "hidden_size": 6144,
                "intermediate_size": 24576,
                "num_hidden_layers": 32,
                "num_attention_heads": 48,
                "num_key_value_heads": None,
                "head_dim": None,
                "hidden_act": "relu2",
                "max_position_embeddings": 4096,
                "norm_eps": 1e-5,
                "attention_bias": False,
                "mlp_bias": False,
                "tie_word_embeddings": False,
            },
            aliases={"rope_percent": "partial_rotary_factor"},
        ),
        weights_spec=WeightsSpec(ignored=LLAMA_IGNORED),
        decoder_spec=decoder(
            Branch(
                norm=layer_norm("input_layernorm", eps=EPS, offset=1.0),
                mixer=attention(
                    bias=key("attention_bias"),
                    rope=rope_from_config(
                        head_dim=HEAD_DIM,
                        fraction_keys=("partial_rotary_factor",),
                        default_fraction=0.5,
                    ),
                ),
            ),
            Branch(
                norm=layer_norm("post_attention_layernorm", eps=EPS, offset=1.0),
                mixer=plain_mlp("up_proj", "down_proj", bias=key("mlp_bias")),
            ),
            final_norm=layer_norm("model.norm", eps=EPS, offset=1.0),
        ),
        export_spec=ExportSpec(
            pqs_fuse_rules=(attention_fuse_rule("NemotronAttention"),),
            weight_plus_one_norm_names=("NemotronLayerNorm1P",),
        ),
        runtime_spec=RuntimeSpec(genai_model_type="nemotron"),
    )
)
