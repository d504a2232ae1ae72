"""starcoder2: LayerNorms, a plain MLP, biases throughout; one window for all layers if set."""

from assay.spec import ConfigSpec, ExportSpec, ModelSpec, RuntimeSpec, WeightsSpec, register
from assay.spec.export_section import attention_fuse_rule
from assay.spec.markers import key
from assay.spec.patterns import LLAMA_IGNORED, attention, decoder, layer_norm, plain_mlp
from assay.spec.rope import rope_from_config
from assay.spec.rules import HEAD_DIM
from assay.spec.vocabulary import Branch

EPS = key("norm_epsilon")

register(
    ModelSpec(
        model_type="starcoder2",
        architectures=("Starcoder2ForCausalLM",),
        config_spec=ConfigSpec(
            defaults={
                "vocab_size": 49152,
                "hidden_size": 3072,
                "intermediate_size": 12288,
                "num_hidden_layers": 30,
                "num_attention_heads": 24,
                "num_key_value_heads": 2,
                "head_dim": None,
                "hidden_act": "gelu_pytorch_tanh",
                "max_position_embeddings": 4096,
                "norm_epsilon": 1e-5,
                "sliding_window": None,
                "use_bias": True,
                "tie_word_embeddings": True,
            },
            only={"mlp_type": ("default",), "norm_type": ("layer_norm",)},
        ),
        weights_spec=WeightsSpec(ignored=LLAMA_IGNORED),
        decoder_spec=decoder(
            Branch(
                norm=layer_norm("input_layernorm", eps=EPS),
                mixer=attention(
                    bias=key("use_bias"),
                    rope=rope_from_config(head_dim=HEAD_DIM),
                    window=key("sliding_window"),
                ),
            ),
            Branch(
                norm=layer_norm("post_attention_layernorm", eps=EPS),
                mixer=plain_mlp("c_fc", "c_proj", bias=key("use_bias")),
            ),
            final_norm=layer_norm("model.norm", eps=EPS),
        ),
        export_spec=ExportSpec(pqs_fuse_rules=(attention_fuse_rule("Starcoder2Attention"),)),
        runtime_spec=RuntimeSpec(genai_model_type="decoder"),
    )
)
