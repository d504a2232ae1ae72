"""gpt_neox: q, k, v interleaved head by head in one tensor, both branches on the layer's input."""

from assay.spec import ConfigSpec, ModelSpec, RuntimeSpec, WeightsSpec, register
from assay.spec.markers import key, when
from assay.spec.patterns import attention, decoder, layer_norm, plain_mlp
from assay.spec.rope import rope_from_config
from assay.spec.rules import HIDDEN_PER_HEAD, size
from assay.spec.vocabulary import LAYER, Branch, Embedding, FusedQkv, Head, Layer, Linear, Sum

EPS = key("layer_norm_eps")
BRANCHES = (
    Branch(
        norm=layer_norm("input_layernorm", eps=EPS),
        mixer=attention(
            name="attention",
            num_kv_heads=size("num_attention_heads"),
            head_dim=HIDDEN_PER_HEAD,
            qkv=FusedQkv(
                linear=Linear(name="query_key_value", bias=key("attention_bias")),
                rows="per_head",
            ),
            o_proj=Linear(name="dense", bias=key("attention_bias")),
            rope=rope_from_config(
                head_dim=HIDDEN_PER_HEAD,
                theta_keys=("rotary_emb_base", "rope_theta"),
                fraction_keys=("rotary_pct", "partial_rotary_factor"),
                default_fraction=0.25,
            ),
        ),
    ),
    Branch(
        norm=layer_norm("post_attention_layernorm", eps=EPS),
        mixer=plain_mlp("dense_h_to_4h", "dense_4h_to_h", bias=True),
    ),
)

register(
    ModelSpec(
        model_type="gpt_neox",
        architectures=("GPTNeoXForCausalLM",),
        config_spec=ConfigSpec(
            defaults={
                "vocab_size": 50432,
                "hidden_size": 6144,
                "intermediate_size": 24576,
                "num_hidden_layers": 44,
                "num_attention_heads": 64,
                "hidden_act": "gelu",
                "max_position_embeddings": 2048,
                "layer_norm_eps": 1e-5,
                "use_parallel_residual": True,
                "attention_bias": True,
                "tie_word_embeddings": False,
            },
        ),
        weights_spec=WeightsSpec(
            renames=(("embed_out.", "lm_head."),),
            ignored=(
                ("gpt_neox.layers.*.attention.bias", "the causal mask, a buffer of old files"),
                ("gpt_neox.layers.*.attention.masked_bias", "a constant of the causal mask"),
                ("*.rotary_emb.inv_freq", "recomputed from the config"),
            ),
        ),
        decoder_spec=decoder(
            layer=when(
                key("use_parallel_residual"),
                Layer(branches=(Branch(mixer=Sum(branches=BRANCHES)),)),
                Layer(branches=BRANCHES),
            ),
            embedding=Embedding(name="gpt_neox.embed_in"),
            layers_name=f"gpt_neox.layers.{LAYER}",
            final_norm=layer_norm("gpt_neox.final_layer_norm", eps=EPS),
            head=Head(name="lm_head", tied=key("tie_word_embeddings")),
        ),
        runtime_spec=RuntimeSpec(genai_model_type="decoder"),
    )
)
