"""What goes wrong in a mixture of experts: the router's choice, its weights, the experts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from assay.diagnosis.hypothesis import (
    Hypothesis,
    Variant,
    attribute,
    generalize,
    group_by_site,
    hooked,
    list_sites,
    replaced,
    rolled,
    values,
)

if TYPE_CHECKING:
    import torch

__all__ = ["CAUSES"]

_TOP_K = ("top_k", "num_experts_per_tok", "moe_k", "moe_top_k")
_NORMALISE = ("norm_topk_prob", "norm_topk", "normalize_expert_weights", "route_norm")
_SCALING = ("routed_scaling_factor", "router_scaling_factor", "route_scale", "moe_router_scale")
_GROUPS = ("n_group", "topk_group", "num_expert_group")
_CORRECTION = ("e_score_correction_bias", "expert_bias", "moe_statics")
_SHARED = ("shared_expert", "shared_experts", "shared_mlp", "shared_linear")
_MOST_PAIRS = 64


def _vary(
    model: torch.nn.Module,
    names: tuple[str, ...],
    kinds: tuple[type, ...],
    others: Callable[[Any], list[Any]],
) -> Iterator[tuple[str, str, list[tuple[Any, str, Any]]]]:
    """Other values of attributes that modules in the layers have: (place, what, targets)."""
    for name in names:
        sites = list_sites(model, _holding(name, kinds))
        for value in others(getattr(sites[0][1], name)) if sites else ():
            targets = [(module, name, value) for _, module in sites]
            yield generalize(sites[0][0]), f"{name} {value}", targets


def _holding(name: str, kinds: tuple[type, ...]) -> Callable[[str, Any], bool]:
    def holds(_: str, module: Any) -> bool:
        value = module.__dict__.get(name)
        return isinstance(value, kinds) and isinstance(value, bool) == (bool in kinds)

    return holds


def _top_k(model: torch.nn.Module) -> Iterator[Variant]:
    def others(k: int) -> list[int]:
        return [n for n in (k - 1, k + 1, 1, 2 * k) if n > 0 and n != k]

    for place, what, targets in _vary(model, _TOP_K, (int,), others):
        yield Variant(place, what, attribute(targets))


def _normalisation(model: torch.nn.Module) -> Iterator[Variant]:
    for place, what, targets in _vary(model, _NORMALISE, (bool,), lambda flag: [not flag]):
        yield Variant(place, what, attribute(targets))
    routers = _find_routers(model)
    if routers:
        place = generalize(routers[0][0])
        for what, hook in (
            ("weights normalised over the chosen", _normalised),
            ("weights not normalised over the chosen", _of_all),
        ):
            yield Variant(place, what, hooked([(module, hook) for _, module in routers]))


def _find_routers(model: torch.nn.Module) -> list[tuple[str, Any]]:
    return list_sites(model, lambda name, m: "router" in type(m).__name__.lower())


def _split_output(output: Any) -> tuple[Any, Any, Any]:
    """Logits, weights of the chosen, and which: as transformers 5's routers return them."""
    if not (isinstance(output, tuple) and len(output) == 3):
        raise ValueError("not a router that returns logits, weights and indices")
    return output


def _normalised(_: Any, __: Any, ___: Any, output: Any) -> Any:
    logits, weights, chosen = _split_output(output)
    return logits, weights / weights.sum(-1, keepdim=True).clamp(min=1e-20), chosen


def _of_all(_: Any, __: Any, ___: Any, output: Any) -> Any:
    logits, weights, chosen = _split_output(output)
    scores = logits if bool((logits >= 0).all()) else logits.softmax(-1)
    return logits, scores.gather(-1, chosen).to(weights), chosen


def _scaling(model: torch.nn.Module) -> Iterator[Variant]:
    for place, what, targets in _vary(model, _SCALING, (int, float), lambda _: [1.0]):
        if any(getattr(owner, name) != 1.0 for owner, name, _ in targets):
            yield Variant(place, what, attribute(targets))


def _groups(model: torch.nn.Module) -> Iterator[Variant]:
    found = list(_vary(model, _GROUPS, (int,), lambda _: [1]))
    targets = [t for _, _, some in found for t in some]
    if any(getattr(owner, name) != 1 for owner, name, _ in targets):
        yield Variant(found[0][0], "groups of experts ignored", attribute(targets))


def _correction(model: torch.nn.Module) -> Iterator[Variant]:
    sites = list_sites(model, lambda _, m: any(hasattr(m, n) for n in _CORRECTION))
    tensors = []
    for _, module in sites:
        held = next(getattr(module, n) for n in _CORRECTION if hasattr(module, n))
        held = getattr(held, "e_score_correction_bias", held)
        if hasattr(held, "data"):
            tensors.append(held)
    if tensors:
        change = values([(t, lambda x: x * 0) for t in tensors])
        yield Variant(generalize(sites[0][0]), "correction bias dropped", change)


def _shared(model: torch.nn.Module) -> Iterator[Variant]:
    def silence(_: Any, __: Any, ___: Any, output: Any) -> Any:
        return output * 0

    def open_wide(_: Any, __: Any, ___: Any, output: Any) -> Any:
        return output * 0 + 40.0  # the sigmoid of it is one

    for names, hook, what in (
        (_SHARED, silence, "shared expert left out"),
        (("shared_expert_gate",), open_wide, "shared expert's gate left out"),
    ):
        sites = list_sites(model, _named(names))
        if sites:
            change = hooked([(module, hook) for _, module in sites])
            yield Variant(generalize(sites[0][0]), what, change)


def _named(names: tuple[str, ...]) -> Callable[[str, Any], bool]:
    return lambda own, _: own in names


def _stacks(model: torch.nn.Module) -> dict[str, list[Any]]:
    """Parameters that stack experts, by place."""
    found = [
        (name, parameter)
        for name, parameter in model.named_parameters()
        if parameter.ndim == 3 and ".experts" in name
    ]
    return group_by_site(found)


def _order(model: torch.nn.Module) -> Iterator[Variant]:
    """Two experts in each other's place, with all their weights or with one of them."""
    stacks = _stacks(model)
    if not stacks:
        return
    count = next(iter(stacks.values()))[0].shape[0]
    pairs = list(itertools.combinations(range(count), 2))
    if len(pairs) > _MOST_PAIRS:
        pairs = [(i, i + 1) for i in range(count - 1)]
    place = next(iter(stacks)).rsplit(".", 1)[0]
    groups = [(place, [p for members in stacks.values() for p in members]), *stacks.items()]
    for where, parameters in groups:
        for a, b in pairs:
            order = list(range(count))
            order[a], order[b] = b, a
            change = values([(p, _ordered(order)) for p in parameters])
            yield Variant(where, f"experts {a} and {b} exchanged", change)
        reverse = values([(p, lambda w: w.flip(0)) for p in parameters])
        yield Variant(where, "experts in reverse order", reverse)
        turned = values([(p, rolled(1)) for p in parameters])
        yield Variant(where, "experts one off", turned)


def _ordered(order: list[int]) -> Callable[[Any], Any]:
    return lambda stack: stack[order]


def _router_order(model: torch.nn.Module) -> Iterator[Variant]:
    routers = [
        (path, module)
        for path, module in list_sites(model, lambda name, _: name in ("gate", "router"))
        if getattr(module, "weight", None) is not None
    ]
    if routers:
        place = generalize(routers[0][0])
        weights = [module.weight for _, module in routers]
        flipped = values([(w, lambda t: t.flip(0)) for w in weights])
        yield Variant(place, "rows in reverse order", flipped)
        yield Variant(place, "rows one off", values([(w, rolled(1)) for w in weights]))


def _gate_up(model: torch.nn.Module) -> Iterator[Variant]:
    import torch

    def halves(axis: int) -> Any:
        return lambda w: torch.cat(w.chunk(2, axis)[::-1], axis)

    def in_turns(axis: int) -> Any:
        def order(w: torch.Tensor) -> torch.Tensor:
            index = torch.arange(w.shape[axis])
            return w.index_select(axis, torch.cat((index[::2], index[1::2])))

        return order

    def apart(axis: int) -> Any:
        def order(w: torch.Tensor) -> torch.Tensor:
            index = torch.arange(w.shape[axis]).reshape(2, -1).T.reshape(-1)
            return w.index_select(axis, index)

        return order

    for place, parameters in _stacks(model).items():
        if not place.endswith(("gate_up_proj", "input_linear.weight")):
            continue
        for axis in (1, 2):
            for what, order in (
                ("gate and up exchanged", halves(axis)),
                ("rows of gate and up taken in turns", in_turns(axis)),
                ("rows of gate and up taken for halves", apart(axis)),
            ):
                yield Variant(place, what, values([(p, order) for p in parameters]))
    linears = list_sites(model, lambda _, m: hasattr(m, "w1") and hasattr(m, "w3"))
    if linears:
        targets: list[tuple[Any, str, Any]] = []
        for _, module in linears:
            targets += [(module, "w1", module.w3), (module, "w3", module.w1)]
        yield Variant(generalize(linears[0][0]), "w1 and w3 exchanged", attribute(targets))


def _constants(model: torch.nn.Module) -> Iterator[Variant]:
    """alpha and limit of a clamped SwiGLU."""
    for name, other in (("alpha", 1.0), ("limit", 1e9), ("swiglu_limit", 1e9)):
        for place, what, targets in _vary(model, (name,), (int, float), replaced([other])):
            yield Variant(place, what, attribute(targets))


CAUSES = (
    Hypothesis(
        "router_top_k", "an error in every sparse layer", "choose as many as the config", _top_k
    ),
    Hypothesis(
        "router_normalisation",
        "sparse layers add too much or too little",
        "normalise the chosen weights if and only if the model does",
        _normalisation,
    ),
    Hypothesis(
        "router_scaling",
        "sparse layers add too little",
        "multiply by routed_scaling_factor",
        _scaling,
    ),
    Hypothesis(
        "router_groups", "other experts for some tokens", "choose groups of experts first", _groups
    ),
    Hypothesis(
        "router_correction",
        "other experts for some tokens",
        "add the correction bias where experts are chosen, not to their weights",
        _correction,
    ),
    Hypothesis(
        "router_order",
        "other experts for every token",
        "keep the router's rows in the experts' order",
        _router_order,
    ),
    Hypothesis("shared_expert", "an error in every sparse layer", "add the shared expert", _shared),
    Hypothesis(
        "expert_order",
        "wrong for tokens that meet these experts",
        "store the experts in the router's order",
        _order,
    ),
    Hypothesis(
        "expert_gate_up",
        "a large error in every sparse layer",
        "halves or turns of gate and up as the operator reads them, the gate activated",
        _gate_up,
    ),
    Hypothesis(
        "expert_activation",
        "an error where gate or up are large",
        "alpha, beta and limit of the model's activation",
        _constants,
    ),
)
