"""What goes wrong when q and k are rotated: the pairs, the width, layers that rotate or don't."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.diagnosis.causes.positions import inverse_frequencies, own_theta, replace_table
from assay.diagnosis.causes.sites import find_attentions, find_rotaries, place_attention
from assay.diagnosis.hypothesis import (
    Hypothesis,
    Variant,
    attribute,
    hooked,
    together,
)

if TYPE_CHECKING:
    import torch

__all__ = ["CAUSES"]


def _pairing(model: torch.nn.Module) -> Iterator[Variant]:
    modeling = sys.modules.get(type(model).__module__)
    rotate = getattr(modeling, "rotate_half", None)
    if modeling is None or rotate is None:
        return
    interleaved = "..., ::2" in _source(rotate) or "0::2" in _source(rotate)
    what, change = "pairs of neighbours for halves", _as_pairs
    if interleaved:
        what, change = "halves for pairs of neighbours", _as_halves
    yield Variant(place_attention(model), what, change(modeling))


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
    yield Variant(place_attention(model), "no rotation at all", change)


def _flipped(model: torch.nn.Module) -> Iterator[Variant]:
    """Layers without rotation rotate."""
    owners = [m for _, m in find_attentions(model) if hasattr(m, "use_rope")]
    targets: list[tuple[Any, str, Any]] = [(m, "use_rope", True) for m in owners if not m.use_rope]
    if targets:
        yield Variant(place_attention(model), "rotated although it isn't", attribute(targets))


def _tables(model: torch.nn.Module) -> Iterator[Variant]:
    """Cos and sin in each other's place, or turned the other way round."""

    def exchanged(_: Any, __: Any, ___: Any, output: Any) -> Any:
        cos, sin = output
        return sin, cos

    def backwards(_: Any, __: Any, ___: Any, output: Any) -> Any:
        cos, sin = output
        return cos, -sin

    rotaries = find_rotaries(model)
    for what, hook in (("cos and sin exchanged", exchanged), ("turned backwards", backwards)):
        if rotaries:
            change = hooked([(module, hook) for _, module in rotaries])
            yield Variant(place_attention(model), what, change, shared=rotaries[0][0])


def _width(model: torch.nn.Module) -> Iterator[Variant]:
    """The whole head rotated where the model rotates a part."""
    attentions = [m for _, m in find_attentions(model)]
    if not attentions:
        return
    first = attentions[0]
    head = getattr(first, "head_dim", None) or getattr(first, "head_size", None)
    for name, module in find_rotaries(model):
        table = module._buffers.get("inv_freq")
        if not isinstance(head, int) or table is None or 2 * table.shape[-1] >= head:
            continue
        theta = own_theta(table, model.config)
        for width, frequencies in (
            ("its own", _spread(head, theta, table)),
            ("the part's", _extended(head, theta, table)),
        ):
            targets: list[tuple[Any, str, Any]] = [
                (m, "rotary_ndims", head) for m in attentions if hasattr(m, "rotary_ndims")
            ]
            swapped = together(
                [attribute(targets), replace_table(module, "inv_freq", frequencies, None)]
            )
            what = f"the whole head rotated, with {width} frequencies"
            yield Variant(place_attention(model), what, swapped, shared=name)


def _spread(head: int, theta: float, like: torch.Tensor) -> torch.Tensor:
    import torch

    return inverse_frequencies(theta, torch.empty(head // 2).to(like))


def _extended(head: int, theta: float, like: torch.Tensor) -> torch.Tensor:
    import torch

    exponent = torch.arange(0, head, 2, dtype=torch.int64).float() / (2 * like.shape[-1])
    return (1.0 / theta**exponent).to(like)


CAUSES = (
    Hypothesis(
        "rope_pairing",
        "a large error that grows with the position",
        "rotate the pairs that the model rotates, or permute q and k rows once",
        _pairing,
    ),
    Hypothesis(
        "rope_direction",
        "a large error in attention",
        "q * cos + rotate_half(q) * sin, with cos and sin of the position",
        _tables,
    ),
    Hypothesis("rope_missing", "token order hardly matters", "rotate q and k", _no_rope),
    Hypothesis(
        "rope_added",
        "wrong in the layers without positions",
        "leave q and k as they are in layers that have no rotation",
        _flipped,
    ),
    Hypothesis(
        "rope_width",
        "an error that grows with the position",
        "rotate the first partial_rotary_factor of each head only",
        _width,
    ),
)
