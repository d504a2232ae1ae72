"""Parts that many decoders have in common, as constructors with the usual names filled in."""

from __future__ import annotations

from typing import Any

from assay.spec.markers import key
from assay.spec.rules import HEAD_DIM, HEADS, KV_HEADS, inverse_sqrt, size
from assay.spec.vocabulary import (
    LAYER,
    Attention,
    Branch,
    Decoder,
    Embedding,
    Head,
    Layer,
    Linear,
    Mlp,
    Norm,
    SplitQkv,
)

__all__ = [
    "LLAMA_IGNORED",
    "attention",
    "decoder",
    "gated_mlp",
    "layer_norm",
    "plain_mlp",
    "rms_norm",
    "split_qkv",
]

# Buffers that old files hold and that every implementation recomputes.
LLAMA_IGNORED = (("*.rotary_emb.inv_freq", "recomputed from the config"),)


def rms_norm(
    name: str | None, *, eps: Any = None, offset: float = 0.0, scope: str = "hidden"
) -> Norm:
    """RMSNorm with a weight; eps from rms_norm_eps."""
    return Norm(
        name=name,
        kind="rms",
        eps=key("rms_norm_eps") if eps is None else eps,
        offset=offset,
        scope=scope,  # type: ignore[arg-type]
    )


def layer_norm(
    name: str | None,
    *,
    eps: Any,
    bias: bool = True,
    weight: bool = True,
    offset: float = 0.0,
    scope: str = "hidden",
) -> Norm:
    """LayerNorm, by default with weight and bias."""
    return Norm(
        name=name,
        kind="layer",
        eps=eps,
        weight=weight,
        bias=bias,
        offset=offset,
        scope=scope,  # type: ignore[arg-type]
    )


def split_qkv(bias: Any = False) -> SplitQkv:
    """q_proj, k_proj and v_proj, with or without biases."""
    return SplitQkv(
        q=Linear(name="q_proj", bias=bias),
        k=Linear(name="k_proj", bias=bias),
        v=Linear(name="v_proj", bias=bias),
    )


def attention(*, bias: Any = False, o_bias: Any = None, **facts: Any) -> Attention:
    """llama's attention: grouped-query, split projections, scale head_dim ** -0.5.

    bias: of q, k and v, and of o unless `o_bias` says otherwise. facts: whatever differs.
    """
    head_dim = facts.get("head_dim", HEAD_DIM)
    llama: dict[str, Any] = {
        "name": "self_attn",
        "num_heads": HEADS,
        "num_kv_heads": KV_HEADS,
        "head_dim": head_dim,
        "qkv": split_qkv(bias),
        "o_proj": Linear(name="o_proj", bias=bias if o_bias is None else o_bias),
        "scale": inverse_sqrt(head_dim),
    }
    return Attention(**{**llama, **facts})


def gated_mlp(*, activation: Any = None, bias: Any = False) -> Mlp:
    """llama's MLP: down_proj(act(gate_proj(x)) * up_proj(x))."""
    return Mlp(
        name="mlp",
        width=size("intermediate_size"),
        activation=key("hidden_act") if activation is None else activation,
        gate=Linear(name="gate_proj", bias=bias),
        up=Linear(name="up_proj", bias=bias),
        down=Linear(name="down_proj", bias=bias),
    )


def plain_mlp(up: str, down: str, *, bias: Any, activation: Any = None) -> Mlp:
    """down(act(up(x))), under the names given."""
    return Mlp(
        name="mlp",
        width=size("intermediate_size"),
        activation=key("hidden_act") if activation is None else activation,
        up=Linear(name=up, bias=bias),
        down=Linear(name=down, bias=bias),
    )


def decoder(*branches: Branch, **facts: Any) -> Decoder:
    """llama's frame around the branches: names, sizes, final RMSNorm, head tied by the config."""
    llama: dict[str, Any] = {
        "vocab_size": size("vocab_size"),
        "hidden_size": size("hidden_size"),
        "num_layers": size("num_hidden_layers"),
        "max_position_embeddings": size("max_position_embeddings"),
        "embedding": Embedding(name="model.embed_tokens"),
        "layers_name": f"model.layers.{LAYER}",
        "final_norm": rms_norm("model.norm"),
        "head": Head(name="lm_head", tied=key("tie_word_embeddings")),
    }
    if branches:
        llama["layer"] = Layer(branches=branches)
    return Decoder(**{**llama, **facts})
