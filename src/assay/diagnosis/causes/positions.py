"""What goes wrong with positions: rope's base, scaling, pairing, width."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from assay.diagnosis.hypothesis import Hypothesis, Variant, attribute

if TYPE_CHECKING:
    import torch

__all__ = ["CAUSES"]

_LIKELY_THETA = (10000.0, 500000.0, 1000000.0)


def _rotaries(model: torch.nn.Module) -> list[tuple[str, Any]]:
    return [
        (name, module)
        for name, module in model.named_modules()
        if "rotary" in type(module).__name__.lower() and _tables(module)
    ]


def _tables(module: Any) -> list[str]:
    return [n for n in module._buffers if n.endswith("inv_freq") and "original" not in n]


def _inverse(theta: float, like: torch.Tensor) -> torch.Tensor:
    import torch

    pairs = like.shape[-1]
    exponent = torch.arange(0, 2 * pairs, 2, dtype=torch.int64).float() / (2 * pairs)
    return (1.0 / theta**exponent).to(like)


def _find_theta(config: Any) -> float:
    text = config.get_text_config()
    for source in (getattr(text, "rope_parameters", None), getattr(text, "rope_scaling", None)):
        if isinstance(source, dict):
            nested = [v for v in source.values() if isinstance(v, dict)] or [source]
            for entry in nested:
                if isinstance(entry.get("rope_theta"), (int, float)):
                    return float(entry["rope_theta"])
    return float(getattr(text, "rope_theta", None) or 10000.0)


def _replace_tables(module: Any, table: str, theta: float, *, attention: float | None) -> Any:
    @contextlib.contextmanager
    def change() -> Iterator[None]:
        saved = module._buffers[table]
        scaling = {n: getattr(module, n) for n in dir(module) if n.endswith("attention_scaling")}
        kinds = dict(getattr(module, "__dict__", {}))
        try:
            module._buffers[table] = _inverse(theta, saved)
            if attention is not None:
                for name in scaling:
                    setattr(module, name, attention)
                if isinstance(getattr(module, "rope_type", None), str):
                    module.rope_type = "default"
            yield
        finally:
            module._buffers[table] = saved
            for name, value in scaling.items():
                setattr(module, name, value)
            if isinstance(kinds.get("rope_type"), str):
                module.rope_type = kinds["rope_type"]

    return change


def _theta(model: torch.nn.Module) -> Iterator[Variant]:
    tables = [
        (name, module, table) for name, module in _rotaries(model) for table in _tables(module)
    ]
    for name, module, table in tables:
        place = name if table == "inv_freq" else f"{name} ({table.removesuffix('_inv_freq')})"
        current = module._buffers[table]
        own = _own_theta(current, model.config)
        near = [shift(own) for _, shift in _NEAR]
        for theta in dict.fromkeys((*_LIKELY_THETA, *near)):
            if theta != own and _differs(current, _inverse(theta, current)):
                change = _replace_tables(module, table, theta, attention=None)
                yield Variant(place, f"theta {theta:g}", change)
    for what, shift in _NEAR if len(tables) > 1 else ():
        changes = [
            _replace_tables(m, t, shift(_own_theta(m._buffers[t], model.config)), attention=None)
            for _, m, t in tables
        ]
        yield Variant("*rotary_emb", f"every theta {what}", _together(changes))


_NEAR: tuple[tuple[str, Callable[[float], float]], ...] = (
    ("plus 1", lambda theta: theta + 1),
    ("minus 1", lambda theta: theta - 1),
    ("times 1.0001", lambda theta: theta * 1.0001),
    ("by 1.0001", lambda theta: theta / 1.0001),
)


def _together(changes: list[Any]) -> Any:
    @contextlib.contextmanager
    def change() -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for one in changes:
                stack.enter_context(one())
            yield

    return change


def _own_theta(table: torch.Tensor, config: Any) -> float:
    """The base that an unscaled table was made with; the config's for a scaled one."""
    pairs = table.shape[-1]
    if pairs > 1:
        theta = float(table[1].double()) ** -pairs
        nearest = float(round(theta))
        for value in (nearest, theta):
            if value > 1 and not _differs(table, _inverse(value, table)):
                return value
    return _find_theta(config)


def _differs(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool(((a - b).abs() > 1e-7 * a.abs()).any())


def _scaling(model: torch.nn.Module) -> Iterator[Variant]:
    own = _find_theta(model.config)
    for name, module in _rotaries(model):
        for table in _tables(module):
            current = module._buffers[table]
            if not _differs(current, _inverse(own, current)):
                continue
            change = _replace_tables(module, table, own, attention=1.0)
            yield Variant(name, "rope scaling ignored", change)


def _pairing(model: torch.nn.Module) -> Iterator[Variant]:
    modeling = sys.modules.get(type(model).__module__)
    rotate = getattr(modeling, "rotate_half", None)
    if modeling is None or rotate is None:
        return
    interleaved = "..., ::2" in _source(rotate) or "0::2" in _source(rotate)
    other = _rotate_halves if interleaved else None
    if other is None:
        yield Variant("*.self_attn", "pairs of neighbours for halves", _as_pairs(modeling))
    else:
        yield Variant("*.self_attn", "halves for pairs of neighbours", _as_halves(modeling))


def _source(function: Any) -> str:
    import inspect

    try:
        return inspect.getsource(function)
    except OSError:
        return ""


def _as_pairs(modeling: Any) -> Any:
    import torch

    original = modeling.apply_rotary_pos_emb

    def rotate(x: torch.Tensor) -> torch.Tensor:
        return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)

    def apply(q: Any, k: Any, cos: Any, sin: Any, *args: Any, **kwargs: Any) -> Any:
        half = cos.shape[-1] // 2
        cos = cos[..., :half].repeat_interleave(2, -1)
        sin = sin[..., :half].repeat_interleave(2, -1)
        saved = modeling.rotate_half
        modeling.rotate_half = rotate
        try:
            return original(q, k, cos, sin, *args, **kwargs)
        finally:
            modeling.rotate_half = saved

    return attribute([(modeling, "apply_rotary_pos_emb", apply)])


def _as_halves(modeling: Any) -> Any:
    return attribute([(modeling, "rotate_half", _rotate_halves)])


def _rotate_halves(x: torch.Tensor) -> torch.Tensor:
    import torch

    left, right = x.chunk(2, -1)
    return torch.cat((-right, left), -1)


def _no_rope(model: torch.nn.Module) -> Iterator[Variant]:
    modeling = sys.modules.get(type(model).__module__)
    if modeling is None or not hasattr(modeling, "apply_rotary_pos_emb"):
        return
    change = attribute([(modeling, "apply_rotary_pos_emb", lambda q, k, *_, **__: (q, k))])
    yield Variant("*.self_attn", "no rotation at all", change)


CAUSES = (
    Hypothesis(
        "rope_theta",
        "an error that grows with the position",
        "take rope_theta from the config (of the layer's own type)",
        _theta,
    ),
    Hypothesis(
        "rope_scaling_ignored",
        "an error that grows with the position",
        "apply rope_scaling: frequencies, and the factor on cos and sin",
        _scaling,
    ),
    Hypothesis(
        "rope_pairing",
        "a large error that grows with the position",
        "rotate the pairs that the model rotates, or permute q and k rows once",
        _pairing,
    ),
    Hypothesis("rope_missing", "token order hardly matters", "rotate q and k", _no_rope),
)
