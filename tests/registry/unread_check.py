"""Facts that nobody reads: where one makes another meaningless, that one keeps its default.

Without this, a reader of a spec couldn't tell a fact from a leftover, nor a check a wrong one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from assay.spec import ModelSpec
from assay.spec.experts import Experts, Glu, Router, RouterGroups, SharedExpert
from assay.spec.export_section import ExportSpec
from assay.spec.markers import Marker, OrElse, When
from assay.spec.moe import ExpertFiles, ExpertLayout, MoESpec, SparseLayers
from assay.spec.vocabulary import Norm

__all__ = ["check_unread"]

Rule = tuple[type, tuple[str, ...], Callable[[Any], bool]]
# Class, fields that keep their defaults, unless.
_UNLESS: tuple[Rule, ...] = (
    (Router, ("bias_on",), lambda r: r.choice_bias is not None and r.order == "score_first"),
    (Router, ("groups",), lambda r: r.order == "score_first"),
    (Router, ("normalize_eps", "normalize_power"), lambda r: r.normalize != "none"),
    (Router, ("scale_on",), lambda r: r.scale != 1.0),
    (Router, ("norm", "channel_scale"), lambda r: r.reads == "stream"),
    (Experts, ("norm_order",), lambda e: e.norm is not None),
    (Experts, ("null_count",), lambda e: e.null != "none"),
    (SharedExpert, ("count",), lambda s: s.combine == "weighted"),
    (SparseLayers, ("types",), lambda s: s.types_key is not None),
    (ExpertLayout, ("is_concatenated",), lambda x: x.kind == "fused" and x.has_gate),
    (Norm, ("offset",), lambda n: n.weight),
)
# Class, what must hold, said in words.
_HOLDS: tuple[tuple[type, Callable[[Any], bool], str], ...] = (
    (
        Router,
        lambda r: "sum_at_least" not in _list_sides(r.normalize) or r.normalize_eps != 0.0,
        "at least 0 is a sum",
    ),
    (
        Router,
        lambda r: not (r.score == "softmax" and r.order == "choose_first") or r.normalize == "none",
        "a softmax over the chosen sums to 1 as it is",
    ),
    (
        Router,
        lambda r: (r.reads == "stream") == (r.norm is not None or r.channel_scale is not None),
        "what reads the residual stream norms or scales it, and nothing else does",
    ),
    (
        Router,
        lambda r: (
            not isinstance(r.groups, RouterGroups)
            or r.choice_bias is not None
            or r.groups.masked == RouterGroups.masked
        ),
        "scores are above 0: without a bias, the scores of the groups left out don't matter",
    ),
    (Experts, lambda e: e.null == "none" or e.null_count != 0, "null experts that nobody counts"),
    (
        Glu,
        lambda g: g.limit_as != "tanh" or (g.activation == "silu" and g.alpha == 1.0),
        "a gate limited by tanh is a silu",
    ),
    (SharedExpert, lambda s: not s.outside or s.combine == "add", "what stands outside is added"),
    (
        SharedExpert,
        lambda s: s.combine != "weighted" or (s.gated and not s.packed),
        "shared experts with weights of their own are stacked, gate and up apart",
    ),
    (
        Router,
        lambda r: "sum_with_shared" not in _list_sides(r.normalize) or r.normalize_power == 1.0,
        "a sum with the shared experts' is a sum",
    ),
    (
        Router,
        lambda r: not isinstance(r.normalize_power, OrElse) or r.normalize_power.second == 1.0,
        "where the config has no power, nothing is normalised",
    ),
    (
        MoESpec,
        lambda m: m.output_norm is None or getattr(m.shared, "combine", "add") == "add",
        "a norm makes a mean of a sum",
    ),
    (Glu, lambda g: g.limit_as == "clamp" or g.gate_limit is not None, "no limit to apply"),
    (Glu, lambda g: g.alpha == 1.0 or g.activation == "silu", "alpha belongs to silu"),
    (ExpertLayout, lambda x: x.is_transposed is not None, "which side is the input isn't said"),
    (Norm, lambda n: n.weight == (n.name is not None), "a weight has a name, and a name a weight"),
    (Norm, lambda n: n.kind == "rms" and not n.bias and n.scope == "hidden", "no MoE has such one"),
    (
        SparseLayers,
        lambda s: (s.period_key is None) == (s.offset_key is None),
        "a period needs its offset",
    ),
    (ExpertFiles, lambda f: len({*f.gate_up}) == len(f.gate_up) in (1, 2), "one name or two"),
    (ExportSpec, lambda e: e != ExportSpec(), "an empty section is None"),
    (MoESpec, lambda m: m.sparse_layers.types != (), "no type of layers has experts"),
)


def check_unread(spec: ModelSpec) -> list[str]:
    """Every part of the MoE and export sections by the rules above."""
    wrong = _check_first_dense(spec)
    for part in (*_walk(spec.moe_spec), *_walk(spec.export_spec)):
        name = type(part).__name__
        defaults = {field.name: field.default for field in dataclasses.fields(part)}
        for cls, fields, is_read in _UNLESS:
            if type(part) is cls and not is_read(part):
                said = [f for f in fields if getattr(part, f) != defaults[f]]
                wrong += [f"{name}.{field}: nothing reads it" for field in said]
        fitting = [(holds, why) for cls, holds, why in _HOLDS if type(part) is cls]
        wrong += [f"{name}: {why}" for holds, why in fitting if not holds(part)]
    return wrong


def _check_first_dense(spec: ModelSpec) -> list[str]:
    """The number is for files without the key; where the class has a default, that one counts."""
    if spec.moe_spec is None or spec.config_spec is None:
        return []
    rule = spec.moe_spec.sparse_layers
    default = spec.config_spec.defaults.get(rule.first_dense_key or "")
    is_read = default is None
    return (
        [] if is_read or rule.first_dense == 0 else ["SparseLayers.first_dense: nothing reads it"]
    )


def _list_sides(value: Any) -> tuple[Any, ...]:
    """A fact, or what a marker makes of it."""
    if isinstance(value, When):
        return (*_list_sides(value.then), *_list_sides(value.otherwise))
    return (value,)


def _walk(value: Any) -> Iterator[Any]:
    """Every fact sheet in a value, on both sides of a marker."""
    if isinstance(value, When):
        yield from (*_walk(value.then), *_walk(value.otherwise))
    elif isinstance(value, OrElse):
        yield from (*_walk(value.first), *_walk(value.second))
    elif isinstance(value, tuple):
        for item in value:
            yield from _walk(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, (type, Marker)):
        yield value
        for field in dataclasses.fields(value):
            yield from _walk(getattr(value, field.name))
