"""What goes wrong in norms: eps, the offset of the weight, the kind, a norm left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.diagnosis.hypothesis import Hypothesis, Variant, attribute, values

if TYPE_CHECKING:
    import torch

__all__ = ["CAUSES", "find_norms"]

_EPS_NAMES = ("variance_epsilon", "eps", "epsilon")
_FIXED_EPS = 1e-5
_LIKELY_EPS = (1e-6, 1e-5, 1e-8, 1e-12, 1e-3, 0.0)


def find_norms(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """Normalizing modules by path."""
    return {
        name: module
        for name, module in model.named_modules()
        if "norm" in type(module).__name__.lower() and not any(True for _ in module.children())
    }


def _eps_name(module: Any) -> str:
    return next((n for n in _EPS_NAMES if isinstance(getattr(module, n, None), float)), "")


def _eps(model: torch.nn.Module) -> Iterator[Variant]:
    norms = find_norms(model)
    qk = {n: m for n, m in norms.items() if _is_qk(n)}
    for what, group in (("*norm*", norms), ("*.q_norm, *.k_norm", qk)):
        for eps in _LIKELY_EPS if group else ():
            targets: list[tuple[Any, str, Any]] = [
                (m, _eps_name(m), eps)
                for m in group.values()
                if _eps_name(m) and getattr(m, _eps_name(m)) != eps
            ]
            targets += [
                (m, "forward", _as_kind(m, eps, centred=_subtracts_mean(m)))
                for m in group.values()
                if not _eps_name(m) and eps != _FIXED_EPS
            ]
            if targets:
                yield Variant(what, f"eps {eps:g}", attribute(targets))


def _is_qk(name: str) -> bool:
    return name.rsplit(".", 1)[-1] in ("q_norm", "k_norm", "q_layernorm", "k_layernorm")


def _offset(model: torch.nn.Module) -> Iterator[Variant]:
    norms = {n: m for n, m in find_norms(model).items() if getattr(m, "weight", None) is not None}
    if not norms:
        return
    has_offset = _adds_one(next(iter(norms.values())))
    shift, what = (-1.0, "w taken for 1 + w") if has_offset else (1.0, "1 + w taken for w")
    groups: dict[str, list[torch.nn.Module]] = {"*norm*": list(norms.values())}
    for name, module in norms.items():
        groups.setdefault(_generalize(name), []).append(module)
    for place, modules in groups.items():
        yield Variant(place, what, values([(m.weight, lambda w: w + shift) for m in modules]))  # type: ignore[misc]


def _adds_one(module: Any) -> bool:
    """Whether a weight of zero leaves something of the input: asked of the module itself."""
    import torch

    shape = module.weight.shape
    probe = torch.linspace(-1.0, 1.0, shape[-1]).expand(shape)
    with torch.no_grad(), values([(module.weight, torch.zeros_like)])():
        return bool((module(probe) - module(probe.flip(-1) + 1)).abs().max() > 0)


def _generalize(name: str) -> str:
    """A module path with `*` for the layer's number."""
    return ".".join("*" if part.isdigit() else part for part in name.split("."))


def _kind(model: torch.nn.Module) -> Iterator[Variant]:
    norms = find_norms(model)
    if not norms:
        return
    other = "RMS" if _subtracts_mean(next(iter(norms.values()))) else "LayerNorm"
    own = {_read_eps(module) for module in norms.values()}
    for eps in (None, *(e for e in (1e-5, 1e-6) if own != {e})):
        targets: list[tuple[Any, str, Any]] = [
            (
                m,
                "forward",
                _as_kind(m, _read_eps(m) if eps is None else eps, centred=not _subtracts_mean(m)),
            )
            for m in norms.values()
        ]
        what = f"{other} instead" + ("" if eps is None else f", with eps {eps:g}")
        yield Variant("*norm*", what, attribute(targets))


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
    groups: dict[str, list[torch.nn.Module]] = {}
    for name, module in find_norms(model).items():
        groups.setdefault(_generalize(name), []).append(module)
    for place, modules in groups.items():
        targets: list[tuple[Any, str, Any]] = [
            (m, "forward", lambda x, *_, **__: x) for m in modules
        ]
        yield Variant(place, "left out", attribute(targets))


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
)
