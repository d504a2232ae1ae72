"""The words in which a decoder is described.

Each class is one fact sheet; a field's value is either the fact itself or a marker
(`markers.py`) saying where the config holds it. After `resolve_decoder` no marker is left, and
the same classes describe the decoder of one checkpoint. Names of modules are Hugging Face's,
relative to the part that holds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from assay.spec.kinds import Above, AtLeast

LAYER = "{layer}"  # stands for the layer's number in a module path

Count = Annotated[int, AtLeast(1)]
Index = Annotated[int, AtLeast(0)]
Positive = Annotated[float, Above(0)]
NotNegative = Annotated[float, AtLeast(0)]


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
    eps: NotNegative
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
    theta: Positive
    dim: Count
    head_dim: Count
    max_position_embeddings: Count
    pairing: Literal["halves", "pairs"] = "halves"
    rotated_fraction: Positive = 1.0
    factor: Positive | None = None
    original_max_position_embeddings: Count | None = None
    attention_factor: Positive | None = None
    beta_fast: Positive | None = None
    beta_slow: Positive | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    low_freq_factor: Positive | None = None
    high_freq_factor: Positive | None = None
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
    num_heads: Count
    num_kv_heads: Count
    head_dim: Count
    qkv: SplitQkv | FusedQkv
    o_proj: Linear
    scale: float
    rope: Rope | None = None
    window: Count | None = None
    softcap: Positive | None = None
    clip_qkv: Positive | None = None
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
    width: Count
    activation: str
    down: Linear
    gate: Linear | None = None
    up: Linear | None = None
    gate_up: Linear | None = None


@dataclass(frozen=True, kw_only=True)
class Sum:
    """A mixer made of branches side by side: each reads the same input, and their outputs add up.

    A norm for all of them stands on the branch that holds the sum; a norm for one, on its own.
    """

    branches: tuple[Branch, ...]


Mixer = Attention | Mlp | Sum


@dataclass(frozen=True, kw_only=True)
class Branch:
    """multiplier * post_norm(mixer(norm(x))): in a layer, added to the residual stream x."""

    mixer: Attention | Mlp | Sum
    norm: Norm | None = None
    post_norm: Norm | None = None
    multiplier: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Residual branches, one after the other."""

    branches: tuple[Branch, ...]


@dataclass(frozen=True, kw_only=True)
class LearnedPositions:
    """A table of position vectors added to the embedding; row = position + offset."""

    name: str
    num_positions: Count
    offset: Index = 0


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
    softcap: Positive | None = None


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """A text decoder as its spec tells it; `layer` is resolved once for each layer.

    layers_name: module path with `{layer}`. layer_types: one name per layer, for by_layer_type.
    """

    vocab_size: Count
    hidden_size: Count
    num_layers: Count
    max_position_embeddings: Count
    embedding: Embedding
    layers_name: str
    layer: Layer
    final_norm: Norm | None
    head: Head
    layer_types: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class DecoderPlan:
    """The decoder of one checkpoint: a `Decoder` with every marker resolved, layer by layer."""

    vocab_size: Count
    hidden_size: Count
    max_position_embeddings: Count
    embedding: Embedding
    layers_name: str
    layers: tuple[Layer, ...]
    final_norm: Norm | None
    head: Head

    @property
    def attentions(self) -> tuple[Attention, ...]:
        """Every attention, in the order of the cache slots."""
        return tuple(
            mixer
            for layer in self.layers
            for mixer in walk_mixers(layer.branches)
            if isinstance(mixer, Attention)
        )


def walk_mixers(branches: tuple[Branch, ...]) -> Iterator[Attention | Mlp]:
    """Yield the mixers of branches in order, those inside a `Sum` in its place."""
    for branch in branches:
        if isinstance(branch.mixer, Sum):
            yield from walk_mixers(branch.mixer.branches)
        else:
            yield branch.mixer
