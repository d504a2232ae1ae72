"""The words in which a mixture of experts is described: how experts are chosen and what they do.

Fact sheets as in `vocabulary.py`: a value is the fact or a marker saying where the config holds
it. Names of modules are those of the newest transformers, relative to the block; what files call
them stands in `ExpertFiles`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from assay.spec.vocabulary import Count, Index, Linear, Norm, NotNegative, Positive

__all__ = [
    "Experts",
    "Glu",
    "HashRouter",
    "LowRank",
    "MlpRouter",
    "Router",
    "RouterGroups",
    "SharedExpert",
    "SparseMixer",
]


@dataclass(frozen=True, kw_only=True)
class RouterGroups:
    """Experts in groups, of which the best are kept before the choice.

    score: of a group, its best expert's or the sum of its best two. masked: what the scores of
    the groups left out become for the choice.
    """

    count: Count
    keep: Count
    score: Literal["max", "top_2_sum"] = "top_2_sum"
    masked: Literal["minus_infinity", "zero"] = "minus_infinity"


@dataclass(frozen=True, kw_only=True)
class Router:
    """Scores, the choice of top_k, and the weights that come of it.

    order: `score_first` scores all experts and chooses; `choose_first` chooses by logits and
    scores the chosen ones alone. choice_bias: a tensor added for the choice alone, to scores or
    logits as bias_on says. normalize: chosen weights divided by their sum + eps, by their sum but
    at least eps, or by the sum with the shared experts' weights; power p takes the p-norm for
    the sum. scale: of all weights, or of the routed sum (scale_on; it shows in half precision).
    weight_on: whether a weight multiplies its expert's output or its input.
    reads: the block's normed input, or the residual stream (then through `norm`, a learned scale
    a channel and hidden_size ** -0.5). softcap: logits become c * tanh(logits / c).
    math: `float32` computes logits and scores in float32, `scores` the logits in the model's
    dtype and the scores in float32, `model` all in the model's dtype.
    """

    linear: Linear
    top_k: Count
    score: Literal["softmax", "sigmoid", "sqrt_softplus"]
    order: Literal["score_first", "choose_first"] = "score_first"
    choice_bias: str | None = None
    bias_on: Literal["score", "logit"] = "score"
    groups: RouterGroups | None = None
    normalize: Literal["none", "sum", "sum_at_least", "sum_with_shared"] = "none"
    normalize_eps: NotNegative = 0.0
    normalize_power: Positive = 1.0
    scale: float = 1.0
    scale_on: Literal["weights", "sum"] = "weights"
    scale_name: str | None = None  # a learned factor for all weights
    expert_scale: str | None = None  # a learned factor for each expert
    logit_scale: float = 1.0
    softcap: Positive | None = None
    weight_on: Literal["output", "input"] = "output"
    reads: Literal["normed", "stream"] = "normed"
    norm: Norm | None = None
    channel_scale: str | None = None
    math: Literal["float32", "scores", "model"] = "scores"


@dataclass(frozen=True, kw_only=True)
class MlpRouter:
    """out(act(fc2(act(fc1(norm(down(x) + state_scale * state of the layer before)))))).

    The scores are a softmax; choice_bias is added for the choice alone. A chosen expert that is
    null gives nothing. state_scale is absent in the first layer.
    """

    down: Linear
    state_scale: str
    norm: Norm
    layers: tuple[Linear, ...]
    out: Linear
    activation: str
    choice_bias: str
    top_k: Count


@dataclass(frozen=True, kw_only=True)
class HashRouter:
    """Experts by token id from a table [vocab, top_k] in some layers, by score in the others.

    layer_types_key: the config's list of a type a layer; hashed: the type that uses the table.
    """

    table: str
    layer_types_key: str
    hashed: str
    by_score: Router


@dataclass(frozen=True, kw_only=True)
class SparseMixer:
    """Twice: the best expert, weighted by a softmax over those within a threshold of it.

    The threshold is (best - logit) / max(|logit|, best) <= 2 * jitter, in inference too.
    """

    linear: Linear
    jitter: NotNegative
    top_k: Count


@dataclass(frozen=True, kw_only=True)
class Glu:
    """act(gate) * (up + up_shift), with gate and up cut or soft-capped; None cuts nothing.

    activation: transformers' name; with alpha, silu is x * sigmoid(alpha * x).
    limit_as: `clamp` takes act(min(gate, g)) and up within +-u; `after` takes min(act(gate), g);
    `tanh` takes cap(gate, g) * sigmoid(gate) * cap(up, u), where cap(x, c) = c * tanh(x / c).
    """

    activation: str
    alpha: float = 1.0
    gate_limit: Positive | None = None
    up_limit: Positive | None = None
    up_shift: float = 0.0
    limit_as: Literal["clamp", "after", "tanh"] = "clamp"


@dataclass(frozen=True, kw_only=True)
class LowRank:
    """Projections around the routed part: experts work on `width` channels."""

    down: Linear
    up: Linear
    width: Count
    norm: Norm | None = None


@dataclass(frozen=True, kw_only=True)
class Experts:
    """What all experts of a layer compute: down(glu(gate(x), up(x))), or down(act(up(x))).

    activation: transformers' name, or a gated unit with its constants. output_bias: a tensor
    added once to the sum. norm: after each expert's down projection, before its weight;
    norm_order says whether the norm's weight multiplies after or before the statistic is taken.
    null: what the null_count rows of the router beyond `count` stand for.
    """

    count: Count
    width: Count
    activation: str | Glu
    gated: bool = True
    bias: bool = False
    output_bias: str | None = None
    norm: Norm | None = None
    norm_order: Literal["norm_first", "scale_first"] = "norm_first"
    latent: LowRank | None = None
    null: Literal["none", "identity", "zero"] = "none"
    null_count: Index = 0


@dataclass(frozen=True, kw_only=True)
class SharedExpert:
    """What every token gets besides: an MLP of its own.

    name: its module; outside: it stands in the layer beside the block, not inside it.
    gate: sigmoid(gate(x)) multiplies it. combine: added, averaged with the routed part, or each
    of `count` experts weighted by the router. packed: one tensor with the gate's rows first.
    activation: None for that of the experts.
    """

    name: str
    width: Count
    activation: str | Glu | None = None
    gated: bool = True
    gate: Linear | None = None
    combine: Literal["add", "mean", "weighted"] = "add"
    count: Count = 1
    packed: bool = False
    outside: bool = False
