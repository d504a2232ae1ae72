"""Other configs of a tiny instance: each key that a fact reads has another value once.

Which keys those are comes from the registry as it is imported, all types together, so that a fact
that a changed spec no longer reads is still asked for.
"""

from __future__ import annotations

import functools
import json
from typing import Any

from assay.spec import ModelSpec, get_specs
from assay.spec.moe import MoESpec
from tests.registry.arithmetic_check import check_arithmetic
from tests.registry.layers_check import compare_layers
from tests.registry.names_check import check_keys, list_keys
from tests.registry.router_check import check_router
from tests.registry.tiny import FACTS, build, make_config

__all__ = ["check_variants", "list_variants"]

# Keys that no fact names because a rule reads them.
_IN_RULES = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "topk_method")
_DBRX_FFN = FACTS["dbrx"]["ffn_config"]
_KEYS = frozenset(
    key for spec in get_specs() for key in list_keys(spec.moe_spec)
) | frozenset(_IN_RULES)  # fmt: skip
# All of a group's experts, so that what stands for the others' scores shows.
_GROUPED = {"topk_group": 1, "num_experts_per_tok": 3}
# What a key becomes instead of what a rule below makes of it.
_OTHER: dict[str, tuple[dict[str, Any], ...]] = {
    "n_group": ({"n_group": 2, **_GROUPED},),
    "num_expert_group": ({"num_expert_group": 2, **_GROUPED},),
    "num_experts_per_tok": ({"num_experts_per_tok": 3}, {"num_experts_per_tok": 1}),
    "top_k_experts": ({"top_k_experts": 3},),
    "moe_k": ({"moe_k": 3},),
    "moe_topk": ({"moe_topk": 3},),
    "n_shared_experts": ({"n_shared_experts": 2},),
    "num_shared_experts": ({"num_shared_experts": 2},),
    "moe_num_shared_experts": ({"moe_num_shared_experts": 2},),
    "shared_intermediate_size": ({"shared_intermediate_size": 0},),
    "first_k_dense_replace": ({"first_k_dense_replace": 2},),
    "num_dense_layers": ({"num_dense_layers": 2},),
    "decoder_sparse_step": ({"decoder_sparse_step": 2, "mlp_only_layers": []},),
    "mlp_only_layers": ({"mlp_only_layers": [1]},),
    "interleave_moe_layer_step": ({"moe_layers": None, "interleave_moe_layer_step": 2},),
    "moe_layers": ({"moe_layers": [0, 3]},),
    "moe_layer_interval": ({"moe_layer_interval": 2},),
    "moe_layer_start_index": ({"moe_layer_start_index": 2}, {"moe_layer_start_index": 0}),
    "moe_layer_end_index": ({"moe_layer_end_index": 2},),
    "expert_layer_offset": (
        {"expert_layer_period": 3, "expert_layer_offset": 2},
        {"expert_layer_period": 2, "expert_layer_offset": 0},
    ),
    "mlp_layer_types": ({"mlp_layer_types": ["sparse", "dense"] * 2},),
    "moe_renormalize": ({"moe_renormalize": False},),
    "hidden_act": ({"hidden_act": "relu"},),
    "hidden_activation": ({"hidden_activation": "relu"},),
    "mlp_hidden_act": ({"mlp_hidden_act": "silu"},),
    "expert_selection_fn": (
        {"expert_selection_fn": "softmax"},
        {"expert_selection_fn": "sigmoid", "norm_topk_prob": True},
        {"expert_selection_fn": "sigmoid", "norm_topk_prob": False},
    ),
    "scoring_func": ({"scoring_func": "softmax"}, {"scoring_func": "sigmoid"}),
    "topk_method": ({"topk_method": "greedy"}, {"topk_method": "group_limited_greedy", "n_group": 2,
                                              **_GROUPED}),
}  # fmt: skip
# Of one type alone, beside those by key.
_MORE: dict[str, tuple[dict[str, Any], ...]] = {
    "dbrx": ({"ffn_config": {**_DBRX_FFN, "moe_normalize_expert_weights": None}},),
    "granitemoehybrid": ({"num_local_experts": 0},),
}
# Variants that transformers can build and not run, or of which another type's meaning isn't meant.
_BROKEN = {
    ("longcat_flash", '{"num_experts_per_tok": 1}'): "its experts squeeze a dimension of one",
    ("minimax_m3_vl_text", '{"shared_intermediate_size": 0}'): "0 isn't none here, but a width",
}


@functools.cache
def list_variants(model_type: str) -> tuple[str, ...]:
    """The variants of a type that its class can be built with, as JSON.

    Only of a text decoder of its own: a model around one has that one's facts.
    """
    config = make_config(model_type)
    if config.get_text_config() is not config:
        return ()
    values = {**config.to_dict(), **vars(config)}
    names = getattr(type(config), "attribute_map", {})
    wanted = [*_MORE.get(model_type, ())]
    for key in sorted(_KEYS & (values.keys() | names.keys())):
        wanted += _OTHER.get(key) or _change(key, values.get(names.get(key, key)))
    return tuple(
        variant
        for variant in dict.fromkeys(map(json.dumps, wanted))
        if (model_type, variant) not in _BROKEN and _is_buildable(model_type, variant)
    )


def _change(key: str, value: Any) -> tuple[dict[str, Any], ...]:
    """Another value of a switch or a real number; sizes stay as they are."""
    if isinstance(value, bool):
        return ({key: not value},)
    if isinstance(value, float):
        return ({key: 0.375 if value in (0.0, 1.0) else value * 0.4},)
    return ()


def _is_buildable(model_type: str, variant: str) -> bool:
    try:
        build(model_type, variant)
    except Exception:  # noqa: BLE001  (whatever a class thinks of such a config)
        return False
    return True


def check_variants(spec: ModelSpec, moe: MoESpec) -> list[str]:
    """Layers and arithmetic in every variant, and the router's in all of them together."""
    variants = list_variants(spec.model_type)
    wrong = check_keys(spec, moe, ("{}", *variants))
    for variant in variants:
        found = compare_layers(spec, moe, variant) + check_arithmetic(spec, moe, variant)
        wrong += [f"{variant}: {text}" for text in found]
    return wrong + check_router(spec, moe, variants)
