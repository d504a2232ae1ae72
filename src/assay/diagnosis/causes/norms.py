"""What goes wrong in norms: eps, the offset of the weight, the kind, a norm left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from assay.diagnosis.hypothesis import (
    Hypothesis,
    Variant,
    attribute,
    group_by_site,
    list_layers,
    replaced,
    values,
)

if TYPE_CHECKING:
    import torch

__all__ = ["CAUSES", "change_eps", "find_norms"]

_EPS_NAMES = ("variance_epsilon", "eps", "epsilon")
_FIXED_EPS = 1e-5
_LIKELY_EPS = (1e-6, 1e-5, 1e-8, 1e-12, 1e-3, 0.0)

Groups = dict[str, list[Any]]


def find_norms(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """Normalizing modules by path."""
    return {
        name: module
        for name, module in model.named_modules()
        if "norm" in type(module).__name__.lower() and not any(True for _ in module.children())
    }


def _group(model: torch.nn.Module) -> tuple[Groups, str]:
    """Norms by place: all of them, those of q and k, each site; and the final norm's path."""
    norms = find_norms(model)
    layers = next((path for path, _ in list_layers(model)), "")
    every = f"{layers.rsplit('.', 1)[0]}.*" if layers else "*"
    own = [name for name in norms if not name.startswith(f"{layers.rsplit('.', 1)[0]}.")]
    groups: Groups = {every: list(norms.values())} if norms else {}
    qk = [m for n, m in norms.items() if _is_qk(n)]
    if qk:
        groups[f"{every}.self_attn.{{q,k}}_norm"] = qk
    groups |= group_by_site(list(norms.items()))
    return groups, own[-1] if own else ""


def _is_qk(name: str) -> bool:
    return name.rsplit(".", 1)[-1] in ("q_norm", "k_norm", "q_layernorm", "k_layernorm")


def _eps_name(module: Any) -> str:
    return next((n for n in _EPS_NAMES if isinstance(getattr(module, n, None), float)), "")


def change_eps(norms: list[Any], eps: float) -> list[tuple[Any, str, Any]]:
    """Targets of a change that gives norms another eps, also where it is written out in code."""
    targets: list[tuple[Any, str, Any]] = []
    for module in norms:
        name = _eps_name(module)
        if name and getattr(module, name) != eps:
            targets.append((module, name, eps))
        elif not name and eps != _FIXED_EPS:
            targets.append(
                (module, "forward", _as_kind(module, eps, centred=_subtracts_mean(module)))
            )
    return targets


def _eps(model: torch.nn.Module) -> Iterator[Variant]:
    groups, final = _group(model)
    for place, norms in groups.items():
        for eps in _LIKELY_EPS:
            if targets := change_eps(norms, eps):
                yield Variant(place, f"eps {eps:g}", attribute(targets), final)


def _offset(model: torch.nn.Module) -> Iterator[Variant]:
    groups, final = _group(model)
    for place, norms in groups.items():
        weighted = [m for m in norms if getattr(m, "weight", None) is not None]
        if not weighted:
            continue
        has_offset = _adds_one(weighted[0])
        shift, what = (-1.0, "w taken for 1 + w") if has_offset else (1.0, "1 + w taken for w")
        change = values([(m.weight, _shift(shift)) for m in weighted])
        yield Variant(place, what, change, final)


def _shift(by: float) -> Callable[[Any], Any]:
    return lambda weight: weight + by


def _adds_one(module: Any) -> bool:
    """Whether a weight of zero leaves something of the input: asked of the module itself."""
    import torch

    shape = module.weight.shape
    probe = torch.linspace(-1.0, 1.0, shape[-1]).expand(shape)
    with torch.no_grad(), values([(module.weight, torch.zeros_like)])():
        return bool((module(probe) - module(probe.flip(-1) + 1)).abs().max() > 0)


def _kind(model: torch.nn.Module) -> Iterator[Variant]:
    groups, final = _group(model)
    for place, norms in groups.items():
        other = "RMS" if _subtracts_mean(norms[0]) else "LayerNorm"
        own = {_read_eps(module) for module in norms}
        for eps in (None, *(e for e in (1e-5, 1e-6) if own != {e})):
            targets: list[tuple[Any, str, Any]] = [
                (
                    m,
                    "forward",
                    _as_kind(
                        m, _read_eps(m) if eps is None else eps, centred=not _subtracts_mean(m)
                    ),
                )
                for m in norms
            ]
            what = f"{other} instead" + ("" if eps is None else f", with eps {eps:g}")
            yield Variant(place, what, attribute(targets), final)


def _read_eps(module: Any) -> float:
    """The module's eps; the one that OLMo's class has written out where there is no attribute."""
    name = _eps_name(module)
    return float(getattr(module, name)) if name else _FIXED_EPS


def _subtracts_mean(module: Any) -> bool:
    return (
        "layernorm" in type(module).__name__.lower() and "rms" not in type(module).__name__.lower()
    )


def _as_kind(module: Any, eps: float, *, centred: bool) -> Any:
    """A forward of the other or the same kind, with this module's weight and bias."""
    import torch

    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    plus = 1.0 if weight is not None and _adds_one(module) else 0.0

    def forward(x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        wide = x.float()
        if centred:
            wide = wide - wide.mean(-1, keepdim=True)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
        if weight is not None:
            wide = wide * (weight + plus)
        if bias is not None:
            wide = wide + bias
        return wide.to(x.dtype)

    return forward


def _missing(model: torch.nn.Module) -> Iterator[Variant]:
    groups, final = _group(model)
    for place, modules in list(groups.items())[1:]:
        targets: list[tuple[Any, str, Any]] = [
            (m, "forward", lambda x, *_, **__: x) for m in modules
        ]
        yield Variant(place, "left out", attribute(targets), final)
    sites = {p: m for p, m in list(groups.items())[1:] if not _is_qk(p)}
    sites = {place: norms for place, norms in sites.items() if "*" in place and "{" not in place}
    after = [p for p in sites if "post" in p.rsplit(".", 1)[-1]]
    for chosen in (after, [p for p in sites if p not in after], list(sites)):
        if len(chosen) > 1:
            targets = [(m, "forward", lambda x, *_, **__: x) for p in chosen for m in sites[p]]
            yield Variant(", ".join(chosen), "left out", attribute(targets))


def _weightless(model: torch.nn.Module) -> Iterator[Variant]:
    """Norms whose weight isn't multiplied, and neighbours that have each other's."""
    import torch

    groups, final = _group(model)
    sites = {
        place: norms
        for place, norms in list(groups.items())[1:]
        if all(getattr(m, "weight", None) is not None for m in norms)
    }
    for place, norms in sites.items():
        neutral = torch.zeros_like if _adds_one(norms[0]) else torch.ones_like
        yield Variant(place, "weight left out", values([(m.weight, neutral) for m in norms]), final)
    for a, left in sites.items():
        for b, right in sites.items():
            same = len(left) == len(right) and left[0].weight.shape == right[0].weight.shape
            if a < b and "*" in a and same:
                pairs = list(zip(left, right, strict=True))
                change = [(m.weight, replaced(o.weight.data)) for m, o in pairs]
                change += [(o.weight, replaced(m.weight.data)) for m, o in pairs]
                yield Variant(f"{a}, {b}", "weights exchanged", values(change))
                yield Variant(a, f"the weight of {b}", values(change[: len(pairs)]))
                yield Variant(b, f"the weight of {a}", values(change[len(pairs) :]))


CAUSES = (
    Hypothesis(
        "norm_eps",
        "a small error, larger where activations are small",
        "take the norm's eps from the config key of this model type",
        _eps,
    ),
    Hypothesis(
        "norm_offset",
        "the stream is scaled wrongly from the first norm on",
        "store 1 + w where the model adds one to the weight, w where it doesn't",
        _offset,
    ),
    Hypothesis(
        "norm_kind",
        "a large error from the first layer on",
        "LayerNorm subtracts the mean, RMSNorm doesn't: use the model's own",
        _kind,
    ),
    Hypothesis(
        "norm_missing",
        "a large error at the site of the norm",
        "add the norm at this place",
        _missing,
    ),
    Hypothesis(
        "norm_weight",
        "an error from one norm on",
        "multiply by the weight of this very norm",
        _weightless,
    ),
)
