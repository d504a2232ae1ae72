"""phi: attention and MLP side by side on one LayerNorm, rotary on half of each head."""

from assay.spec import ConfigSpec, ExportSpec, ModelSpec, RuntimeSpec, WeightsSpec, register
from assay.spec.export_section import attention_fuse_rule
from assay.spec.markers import key, when
from assay.spec.patterns import LLAMA_IGNORED, attention, decoder, layer_norm, plain_mlp
from assay.spec.rope import rope_from_config
from assay.spec.rules import HEAD_DIM
from assay.spec.vocabulary import Branch, Head, Linear, Sum

EPS = key("layer_norm_eps")

register(
    ModelSpec(
        model_type="phi",
        architectures=("PhiForCausalLM",),
        config_spec=ConfigSpec(
            defaults={
                "vocab_size": 51200,
                "hidden_size": 2048,
                "intermediate_size": 8192,
                "num_hidden_layers": 24,
                "num_attention_heads": 32,
                "num_key_value_heads": None,
                "head_dim": None,
                "hidden_act": "gelu_new",
                "max_position_embeddings": 2048,
                "layer_norm_eps": 1e-5,
                "qk_layernorm": False,
                "tie_word_embeddings": False,
            },
        ),
        weights_spec=WeightsSpec(ignored=LLAMA_IGNORED),
        decoder_spec=decoder(
            Branch(
                norm=layer_norm("input_layernorm", eps=EPS),
                mixer=Sum(
                    branches=(
                        Branch(
                            mixer=attention(
                                bias=True,
                                o_proj=Linear(name="dense", bias=True),
                                q_norm=when(
                                    key("qk_layernorm"),
                                    layer_norm("q_layernorm", eps=EPS, scope="head"),
                                    None,
                                ),
                                k_norm=when(
                                    key("qk_layernorm"),
                                    layer_norm("k_layernorm", eps=EPS, scope="head"),
                                    None,
                                ),
                                rope=rope_from_config(
                                    head_dim=HEAD_DIM,
                                    fraction_keys=("partial_rotary_factor",),
                                    default_fraction=0.5,
                                ),
                            )
                        ),
                        Branch(mixer=plain_mlp("fc1", "fc2", bias=True)),
                    )
                ),
            ),
            final_norm=layer_norm("model.final_layernorm", eps=EPS),
            head=Head(name="lm_head", tied=key("tie_word_embeddings"), bias=True),
        ),
        export_spec=ExportSpec(
            pqs_fuse_rules=(attention_fuse_rule("PhiAttention", output="dense"),)
        ),
        runtime_spec=RuntimeSpec(genai_model_type="phi"),
    )
)
