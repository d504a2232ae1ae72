"""gpt2: learned positions, q, k, v in one tensor, every weight stored [in, out] (Conv1D)."""

from assay.spec import ConfigSpec, ModelSpec, RuntimeSpec, WeightsSpec, register
from assay.spec.markers import key, or_else, rule
from assay.spec.patterns import attention, decoder, layer_norm
from assay.spec.resolve import Context
from assay.spec.rules import HIDDEN_PER_HEAD, size
from assay.spec.vocabulary import (
    LAYER,
    Branch,
    Embedding,
    FusedQkv,
    Head,
    LearnedPositions,
    Linear,
    Mlp,
)

EPS = key("layer_norm_epsilon")


def four_times_hidden(context: Context) -> int:
    """The MLP's width where n_inner is null."""
    return 4 * context.config.get_size("hidden_size")


def scale(context: Context) -> float:
    """head_dim ** -0.5 unless switched off; divided by layer number + 1 where asked."""
    config = context.config
    value = 1.0
    if config.get_flag("scale_attn_weights"):
        value = float(context.resolve(HIDDEN_PER_HEAD)) ** -0.5
    if config.get_flag("scale_attn_by_inverse_layer_idx"):
        assert context.layer_index is not None
        value /= context.layer_index + 1
    return value


register(
    ModelSpec(
        model_type="gpt2",
        architectures=("GPT2LMHeadModel",),
        config_spec=ConfigSpec(
            defaults={
                "vocab_size": 50257,
                "hidden_size": 768,
                "n_inner": None,
                "num_hidden_layers": 12,
                "num_attention_heads": 12,
                "activation_function": "gelu_new",
                "max_position_embeddings": 1024,
                "layer_norm_epsilon": 1e-5,
                "scale_attn_weights": True,
                "scale_attn_by_inverse_layer_idx": False,
                "tie_word_embeddings": True,
            },
            aliases={
                "n_embd": "hidden_size",
                "n_positions": "max_position_embeddings",
                "n_head": "num_attention_heads",
                "n_layer": "num_hidden_layers",
            },
            neutral={
                "n_ctx": "an old copy of n_positions",
                "reorder_and_upcast_attn": "precision only",
                **dict.fromkeys(
                    (
                        "summary_type",
                        "summary_use_proj",
                        "summary_activation",
                        "summary_proj_to_labels",
                        "summary_first_dropout",
                    ),
                    "belongs to another task head",
                ),
            },
        ),
        weights_spec=WeightsSpec(
            renames=(
                ("transformer.", "transformer."),
                ("lm_head.", "lm_head."),
                ("", "transformer."),
            ),
            ignored=(
                ("transformer.h.*.attn.bias", "the causal mask, a buffer of old files"),
                ("transformer.h.*.attn.masked_bias", "a constant of the causal mask"),
            ),
        ),
        decoder_spec=decoder(
            Branch(
                norm=layer_norm("ln_1", eps=EPS),
                mixer=attention(
                    name="attn",
                    num_kv_heads=size("num_attention_heads"),
                    head_dim=HIDDEN_PER_HEAD,
                    qkv=FusedQkv(
                        linear=Linear(name="c_attn", bias=True, transposed=True), rows="q|k|v"
                    ),
                    o_proj=Linear(name="c_proj", bias=True, transposed=True),
                    scale=rule(scale),
                ),
            ),
            Branch(
                norm=layer_norm("ln_2", eps=EPS),
                mixer=Mlp(
                    name="mlp",
                    width=or_else(key("n_inner"), rule(four_times_hidden)),
                    activation=key("activation_function"),
                    up=Linear(name="c_fc", bias=True, transposed=True),
                    down=Linear(name="c_proj", bias=True, transposed=True),
                ),
            ),
            embedding=Embedding(
                name="transformer.wte",
                positions=LearnedPositions(
                    name="transformer.wpe", num_positions=size("max_position_embeddings")
                ),
            ),
            layers_name=f"transformer.h.{LAYER}",
            final_norm=layer_norm("transformer.ln_f", eps=EPS),
            head=Head(name="lm_head", tied=key("tie_word_embeddings")),
        ),
        runtime_spec=RuntimeSpec(genai_model_type="gpt2"),
    )
)
