"""A MoE block computed from its spec's facts alone, to be compared with transformers' own."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from packaging.version import Version
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from transformers.activations import ACT2FN

from assay.spec.config import ModelConfig
from assay.spec.experts import (
    Experts,
    Glu,
    HashRouter,
    MlpRouter,
    Router,
    RouterGroups,
    SharedExpert,
    SparseMixer,
)
from assay.spec.model_spec import ConfigSpec, ModelSpec
from assay.spec.moe import ExpertLayout, MoESpec
from assay.spec.observed import observed_expert_layout
from assay.spec.resolve import Context
from assay.spec.vocabulary import Norm
from tests.registry.tiny import OLD, VERSION

__all__ = [
    "ExpertMatrices",
    "compute_block",
    "compute_experts",
    "compute_shared",
    "find_declared_layout",
    "find_declared_release",
    "find_score_router",
    "resolve_part",
    "route",
    "split_experts",
    "split_rows",
]


def find_declared_release(moe: MoESpec) -> str:
    """The release of the layout that a spec declares for the installed transformers."""
    releases = [since for since, _ in moe.layouts if since[0].isdigit()]
    return [since for since in releases if Version(since) <= VERSION][-1]


def find_declared_layout(moe: MoESpec) -> ExpertLayout:
    """The layout that a spec declares for the installed transformers."""
    return dict(moe.layouts)[find_declared_release(moe)]


def resolve_part(spec: ModelSpec, part: Any, config: Any, layer: int | None = None) -> Any:
    """A part of a spec with every marker replaced, read from a transformers config."""
    config_spec = spec.config_spec or ConfigSpec(defaults={})
    model_config = ModelConfig(config.to_dict(), config_spec, where=spec.model_type)
    return Context(model_config, layer).resolve(part)


def _tensor(block: nn.Module, name: str) -> Tensor:
    value: Any = block
    for part in name.split("."):
        value = getattr(value, part)
    return value if isinstance(value, Tensor) else value.weight


def _linear(block: nn.Module, linear: Any, x: Tensor) -> Tensor:
    bias = None
    if linear.bias:
        holder = block.get_submodule(linear.name)
        bias = holder.bias.to(x.dtype)
    weight = _tensor(block, linear.name).to(x.dtype)
    return F.linear(x, weight.T if linear.transposed else weight, bias)


def _norm(block: nn.Module, norm: Norm, x: Tensor, *, scale_first: bool = False) -> Tensor:
    """In float32 inside, in x's dtype outside, as transformers' norms."""
    assert norm.kind == "rms" and norm.scope == "hidden" and not norm.bias
    weight = _tensor(block, norm.name).float() + norm.offset if norm.name else torch.ones(1)
    inner = x.float()
    if scale_first:
        inner, weight = inner * weight, torch.ones(1)
    out = inner * torch.rsqrt(inner.pow(2).mean(-1, keepdim=True) + norm.eps) * weight
    return out.to(x.dtype)


def _score(logits: Tensor, kind: str) -> Tensor:
    if kind == "softmax":
        return logits.softmax(-1)
    return logits.sigmoid() if kind == "sigmoid" else F.softplus(logits).sqrt()


def _keep_groups(scores: Tensor, groups: RouterGroups) -> Tensor:
    by_group = scores.view(len(scores), groups.count, -1)
    best = by_group.topk(1 if groups.score == "max" else 2, dim=-1)[0].sum(-1)
    kept = torch.zeros_like(best, dtype=torch.bool)
    kept.scatter_(1, best.topk(groups.keep, dim=-1)[1], True)
    # transformers 4 fills with 0 everywhere, 5 where the type's own code does; facts are 5's.
    fill = 0.0 if groups.masked == "zero" or OLD else float("-inf")
    return by_group.masked_fill(~kept[..., None], fill).view_as(scores)


def find_score_router(router: Any) -> Any:
    """A router, or what a hashing one does by score."""
    return router.by_score if isinstance(router, HashRouter) else router


def route(
    block: nn.Module,
    router: Router,
    x: Tensor,
    shared_rows: int = 0,
    chosen: Tensor | None = None,
    math: str | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Indices and weights [tokens, top_k], and the shared experts' weights where they have any.

    chosen: the choice, where it isn't by score. math: instead of the router's own.
    """
    math = math or router.math
    dtype = x.dtype
    if router.norm is not None:
        x = _norm(block, router.norm, x)
    if router.channel_scale is not None:
        x = x * _tensor(block, router.channel_scale) * x.shape[-1] ** -0.5
    logits = _linear(block, router.linear, x.float() if math == "float32" else x)
    logits = logits * router.logit_scale
    if math == "scores":
        logits = logits.float()
    if router.softcap is not None:
        logits = torch.tanh(logits / router.softcap) * router.softcap
    logits, shared = logits[:, : logits.shape[1] - shared_rows], logits[:, -shared_rows:]
    bias: Any = _tensor(block, router.choice_bias).view(-1) if router.choice_bias else 0.0
    if router.order == "choose_first":
        best, index = (logits + bias).topk(router.top_k, dim=-1)
        weights = _score(best, router.score)
    else:
        scores = _score(logits, router.score)
        by = logits if router.bias_on == "logit" else scores
        candidates = by + bias
        if router.groups is not None:
            candidates = _keep_groups(candidates, router.groups)
        index = candidates.topk(router.top_k, dim=-1)[1] if chosen is None else chosen
        weights = scores.gather(1, index)
    shared_weights = None
    if router.normalize == "sum_with_shared":
        both = torch.cat([weights, _score(shared, router.score)], -1)
        both = both / (both.sum(-1, keepdim=True) + router.normalize_eps)
        weights, shared_weights = both[:, : router.top_k], both[:, router.top_k :]
    elif router.normalize != "none":
        p = router.normalize_power
        total = weights.sum(-1, keepdim=True) if p == 1 else weights.norm(p=p, dim=-1, keepdim=True)
        eps = router.normalize_eps
        weights = weights / (
            total.clamp(min=eps) if router.normalize == "sum_at_least" else total + eps
        )
    factor: Any = router.scale
    if router.scale_name is not None:
        factor = factor * _tensor(block, router.scale_name)
    if router.expert_scale is not None:
        weights = weights * _tensor(block, router.expert_scale)[index]
    shared_weights = None if shared_weights is None else shared_weights * factor
    return index, (weights * factor).to(dtype if math == "model" else weights.dtype), shared_weights


def _route_by_mlp(block: nn.Module, router: MlpRouter, x: Tensor) -> tuple[Tensor, Tensor]:
    state = _norm(block, router.norm, _linear(block, router.down, x))
    for linear in router.layers:
        state = ACT2FN[router.activation](_linear(block, linear, state))
    scores = _linear(block, router.out, state).softmax(-1)
    index = (scores + _tensor(block, router.choice_bias)).topk(router.top_k, dim=-1)[1]
    return index, scores.gather(1, index)


def _route_sparsely(block: nn.Module, router: SparseMixer, x: Tensor) -> tuple[Tensor, Tensor]:
    logits = _linear(block, router.linear, x)
    left, indices, weights = logits, [], []
    for _ in range(router.top_k):
        best, index = left.max(-1, keepdim=True)
        far = (best - logits) / logits.abs().clamp(min=best) > 2 * router.jitter
        scores = left.masked_fill(far, float("-inf")).softmax(-1)
        indices.append(index)
        weights.append(scores.gather(1, index))
        left = left.scatter(1, index, float("-inf"))
    return torch.cat(indices, 1), torch.cat(weights, 1)


def _activate(activation: str | Glu, gate: Tensor, up: Tensor) -> Tensor:
    if isinstance(activation, str):
        return ACT2FN[activation](gate) * up
    glu = activation
    g, u = glu.gate_limit, glu.up_limit
    if glu.limit_as == "tanh":
        assert g and u
        return g * torch.tanh(gate / g) * gate.sigmoid() * (u * torch.tanh(up / u) + glu.up_shift)
    if u is not None:
        up = up.clamp(-u, u)
    if glu.limit_as == "clamp" and g is not None:
        gate = gate.clamp(max=g)
    if glu.alpha != 1.0:
        assert glu.activation == "silu"
        gate = gate * torch.sigmoid(glu.alpha * gate)
    else:
        gate = ACT2FN[glu.activation](gate)
    if glu.limit_as == "after" and g is not None:
        gate = gate.clamp(max=g)
    return gate * (up + glu.up_shift)


def _mlp(
    activation: str | Glu, gated: bool, first: list[Tensor], down: Tensor, x: Tensor
) -> Tensor:
    if gated:
        inner = _activate(activation, F.linear(x, first[0]), F.linear(x, first[1]))
    else:
        assert isinstance(activation, str)
        inner = ACT2FN[activation](F.linear(x, first[0]))
    return F.linear(inner, down)


@dataclass(frozen=True)
class ExpertMatrices:
    """One expert's weights [out, in] and biases: gate and up (or up alone), and down."""

    first: list[Tensor]
    down: Tensor
    biases: list[Any]


def split_experts(block: nn.Module, moe: MoESpec, experts: Experts) -> list[ExpertMatrices]:
    """Take a block's experts apart, as its spec says they lie.

    Names and kind come from the module, orientation and which of gate and up is which from the
    spec.
    """
    seen = observed_expert_layout(block)
    assert seen is not None and seen.num_experts == experts.count
    declared = find_declared_layout(moe)
    assert declared.kind == seen.kind
    container = block.get_submodule(seen.path)
    found = []
    for number in range(experts.count):
        biases: list[Any] = [None, None, None]
        if seen.kind == "fused":
            *first, down = (_tensor(container, name)[number] for name in seen.names)
            if declared.is_transposed:
                *first, down = (weight.T for weight in (*first, down))
            if experts.gated and len(first) == 1:
                first = split_rows(first[0], declared)
            if experts.bias:
                both = getattr(container, f"{seen.names[0]}_bias")[number]
                biases = [
                    *split_rows(both, declared),
                    getattr(container, f"{seen.names[1]}_bias")[number],
                ]
        elif seen.kind == "flat":
            size = experts.width
            held = [_tensor(container, n)[number * size : (number + 1) * size] for n in seen.names]
            first, down = held[:2], held[2].T
        else:
            expert = next(c for n, c in container.named_children() if n.endswith(str(number)))
            pair = moe.gate_up_pair or (moe.expert_linear_names[0],)
            first = [_tensor(expert, name) for name in pair]
            down = _tensor(expert, next(n for n in moe.expert_linear_names if n not in pair))
        assert down.shape[-1] == experts.width
        found.append(ExpertMatrices(first, down, biases))
    return found


def split_rows(both: Tensor, layout: ExpertLayout) -> list[Tensor]:
    """Gate's and up's rows of a packed weight or bias."""
    rows = both.shape[0] // 2
    return [both[:rows], both[rows:]] if layout.is_concatenated else [both[::2], both[1::2]]


def compute_experts(block: nn.Module, moe: MoESpec, experts: Experts, x: Tensor) -> Tensor:
    """Outputs of all experts for all tokens [experts, tokens, hidden], as the spec says."""
    outputs = []
    for expert in split_experts(block, moe, experts):
        if experts.bias:
            gate, up = (
                F.linear(x, weight, bias)
                for weight, bias in zip(expert.first, expert.biases, strict=False)
            )
            inner = _activate(experts.activation, gate, up)
            out = F.linear(inner, expert.down, expert.biases[2])
        else:
            out = _mlp(experts.activation, experts.gated, expert.first, expert.down, x)
        if experts.norm is not None:
            out = _norm(block, experts.norm, out, scale_first=experts.norm_order == "scale_first")
        outputs.append(out)
    if experts.null_count:
        null = x if experts.null == "identity" else torch.zeros_like(x)
        outputs += [null] * experts.null_count
    return torch.stack(outputs)


def compute_shared(
    block: nn.Module,
    shared: SharedExpert,
    experts: Experts,
    x: Tensor,
    weights: Tensor | None = None,
) -> Tensor:
    """The shared expert's output [tokens, hidden]; weights: the router's, where it has any."""
    module = block.get_submodule(shared.name)
    held = {name.removesuffix(".weight"): p for name, p in module.named_parameters()}
    activation = shared.activation or experts.activation
    if shared.combine == "weighted":
        assert weights is not None
        return sum(
            weights[:, n : n + 1]
            * _mlp(
                activation,
                True,
                [held["gate_proj"][n], held["up_proj"][n]],
                held["down_proj"][n],
                x,
            )
            for n in range(shared.count)
        )
    down = held["output_linear" if "output_linear" in held else "down_proj"]
    if shared.packed:
        both = held["input_linear" if "input_linear" in held else "gate_up_proj"]
        first = [both[: shared.width], both[shared.width :]]
    else:
        first = [held[name] for name in ("gate_proj", "up_proj") if name in held]
    assert len(first) == 1 + shared.gated
    assert down.shape[1] == shared.width
    out = _mlp(activation, shared.gated, first, down, x)
    if shared.gate is not None:
        out = out * torch.sigmoid(_linear(block, shared.gate, x))
    return out


def compute_block(
    spec: ModelSpec,
    block: nn.Module,
    config: Any,
    layer: int,
    x: Tensor,
    ids: Tensor,
    moe: MoESpec,
) -> Tensor:
    """The block's output [tokens, hidden] from its facts.

    spec: of the text part, whose defaults count. ids: token ids, for hashed choices.
    """
    router = resolve_part(spec, moe.router, config, layer)
    experts: Experts = resolve_part(spec, moe.experts, config, layer)
    shared: SharedExpert | None = resolve_part(spec, moe.shared, config, layer)
    shared_weights = None
    inner = x
    if isinstance(router, MlpRouter):
        index, weights = _route_by_mlp(block, router, x)
    elif isinstance(router, SparseMixer):
        index, weights = _route_sparsely(block, router, x)
    elif isinstance(router, HashRouter):
        chosen = None
        by_score = router.by_score
        if config.to_dict()[router.layer_types_key][layer] == router.hashed:
            chosen = _tensor(block, router.table)[ids]
            by_score = dataclasses.replace(by_score, choice_bias=None)
        index, weights, _ = route(block, by_score, x, chosen=chosen)
    else:
        rows = shared.count if shared is not None and shared.combine == "weighted" else 0
        index, weights, shared_weights = route(block, router, x, shared_rows=rows)
    if experts.latent is not None:
        inner = _linear(block, experts.latent.down, x)
        assert inner.shape[-1] == experts.latent.width
        if experts.latent.norm is not None:
            inner = _norm(block, experts.latent.norm, inner)
    tokens = torch.arange(len(x))[:, None]
    plain = find_score_router(router)
    if isinstance(plain, Router) and plain.weight_on == "input":
        out = torch.zeros_like(x)
        for slot in range(index.shape[1]):
            scaled = compute_experts(block, moe, experts, inner * weights[:, slot : slot + 1])
            out = out + scaled[index[:, slot], torch.arange(len(x))]
    else:
        each = compute_experts(block, moe, experts, inner)
        out = (each[index, tokens] * weights[..., None]).sum(1)
    if experts.output_bias is not None:
        out = out + _tensor(block, experts.output_bias)
    if experts.latent is not None:
        out = _linear(block, experts.latent.up, out)
    if shared is not None and not shared.outside:
        out = out + compute_shared(block, shared, experts, x, shared_weights)
        if shared.combine == "mean":
            out = out / 2
    if moe.output_norm is not None:
        out = _norm(block, resolve_part(spec, moe.output_norm, config, layer), out)
    return out
