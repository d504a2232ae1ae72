"""The words in which a decoder is described.

Each class is one fact sheet; a field's value is either the fact itself or a marker
(`markers.py`) saying where the config holds it. After `resolve_decoder` no marker is left, and
the same classes describe the decoder of one checkpoint. Names of modules are Hugging Face's,
relative to the part that holds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LAYER = "{layer}"  # stands for the layer's number in a module path


@dataclass(frozen=True, kw_only=True)
class Norm:
    """A normalization: RMS (no mean) or LayerNorm.

    name: module path relative to its holder; None where the file holds no tensor for it.
    offset: what the file leaves out of the weight (1.0 where it stores w - 1).
    scope: what one statistic spans. `hidden` is the residual width; for q and k norms `head` is
    one head with a weight shared by all heads, `each_head` one head with its own weight (name
    holds `{head}`), `projection` the full width before heads are split.
    """

    name: str | None
    kind: Literal["rms", "layer"]
    eps: float
    weight: bool = True
    bias: bool = False
    offset: float = 0.0
    scope: Literal["hidden", "head", "each_head", "projection"] = "hidden"


@dataclass(frozen=True, kw_only=True)
class Linear:
    """One projection as the file holds it; `transposed` means [in, out] (GPT-2's Conv1D)."""

    name: str
    bias: bool = False
    transposed: bool = False


@dataclass(frozen=True, kw_only=True)
class SplitQkv:
    """Three tensors for q, k and v."""

    q: Linear
    k: Linear
    v: Linear


@dataclass(frozen=True, kw_only=True)
class FusedQkv:
    """One tensor for q, k and v.

    rows: how its output rows lie. `q|k|v` is three contiguous blocks; `per_head` is q, k and v
    of head 0, then of head 1, and so on (equal head counts); `per_group` is, for each kv head,
    its q heads, then its k, then its v.
    """

    linear: Linear
    rows: Literal["q|k|v", "per_head", "per_group"]


@dataclass(frozen=True, kw_only=True)
class Rope:
    """Rotary position embedding of one layer, resolved from the config.

    kind: transformers' rope_type. dim: how many channels of a head rotate, from the first on.
    pairing: `halves` rotates (i, i + dim/2), `pairs` rotates (2i, 2i + 1).
    The scaling facts have the meaning of the same names in transformers' rope_parameters;
    those that the kind doesn't use are None.
    """

    kind: Literal["default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional"]
    theta: float
    dim: int
    head_dim: int
    max_position_embeddings: int
    pairing: Literal["halves", "pairs"] = "halves"
    rotated_fraction: float = 1.0
    factor: float | None = None
    original_max_position_embeddings: int | None = None
    attention_factor: float | None = None
    beta_fast: float | None = None
    beta_slow: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    low_freq_factor: float | None = None
    high_freq_factor: float | None = None
    short_factor: tuple[float, ...] | None = None
    long_factor: tuple[float, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Causal self-attention over num_kv_heads key and value heads.

    scale: what multiplies q.k. window: how many keys a query sees, itself included.
    softcap: scores become c * tanh(scores / c). clip_qkv: q, k and v are clamped to +-clip.
    Order: project, norm where `qk_norm_before_rope`, clip, rotate, norm otherwise, attend.
    """

    name: str
    num_heads: int
    num_kv_heads: int
    head_dim: int
    qkv: SplitQkv | FusedQkv
    o_proj: Linear
    scale: float
    rope: Rope | None = None
    window: int | None = None
    softcap: float | None = None
    clip_qkv: float | None = None
    q_norm: Norm | None = None
    k_norm: Norm | None = None
    qk_norm_before_rope: bool = True


@dataclass(frozen=True, kw_only=True)
class Mlp:
    """A feed-forward block: down(act(gate(x)) * up(x)), or down(act(up(x))) without a gate.

    gate_up: one tensor with the gate's rows first, instead of `gate` and `up`.
    activation: transformers' name.
    """

    name: str
    width: int
    activation: str
    down: Linear
    gate: Linear | None = None
    up: Linear | None = None
    gate_up: Linear | None = None


@dataclass(frozen=True, kw_only=True)
class Branch:
    """One addition to the residual stream: x + multiplier * post_norm(mixer(norm(x)))."""

    mixer: Attention | Mlp
    norm: Norm | None = None
    post_norm: Norm | None = None
    multiplier: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Residual branches, one after the other, or side by side on the same input.

    shared_norm: where branches lie side by side, the one norm that feeds them all.
    """

    branches: tuple[Branch, ...]
    parallel: bool = False
    shared_norm: Norm | None = None


@dataclass(frozen=True, kw_only=True)
class LearnedPositions:
    """A table of position vectors added to the embedding; row = position + offset."""

    name: str
    num_positions: int
    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """Token embedding: scale * table[id] (+ a position vector)."""

    name: str
    scale: float = 1.0
    positions: LearnedPositions | None = None


@dataclass(frozen=True, kw_only=True)
class Head:
    """From the final hidden state to logits: softcap(multiplier * (W h + b)).

    tied: W is the embedding table.
    """

    name: str
    tied: bool
    bias: bool = False
    multiplier: float = 1.0
    softcap: float | None = None


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """A text decoder as its spec tells it; `layer` is resolved once for each layer.

    layers_name: module path with `{layer}`. layer_types: one name per layer, for by_layer_type.
    """

    vocab_size: int
    hidden_size: int
    num_layers: int
    max_position_embeddings: int
    embedding: Embedding
    layers_name: str
    layer: Layer
    final_norm: Norm | None
    head: Head
    layer_types: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class DecoderPlan:
    """The decoder of one checkpoint: a `Decoder` with every marker resolved, layer by layer."""

    vocab_size: int
    hidden_size: int
    max_position_embeddings: int
    embedding: Embedding
    layers_name: str
    layers: tuple[Layer, ...]
    final_norm: Norm | None
    head: Head
