"""Which layers have experts: by the config, by variants of it, and where a file has no list."""

from __future__ import annotations

from typing import Any

from assay.spec import ModelSpec
from assay.spec.moe import MoESpec
from tests.registry.blocks import list_text_blocks
from tests.registry.tiny import build, make_config

__all__ = ["check_sparse_layers", "compare_layers"]


def check_sparse_layers(spec: ModelSpec, moe: MoESpec) -> list[str]:
    """The layers with experts are those that have a block, with and without the config's list."""
    if not list_text_blocks(spec, moe):
        return ["no block"]
    values = _find_config(spec).to_dict()
    wrong = compare_layers(spec, moe)
    for key in (moe.sparse_layers.types_key, moe.sparse_layers.listed_key):
        if key is not None and key not in values:
            wrong.append(f"no config key {key}")
    return wrong + _check_without_list(spec, moe)


def compare_layers(spec: ModelSpec, moe: MoESpec, variant: str = "{}") -> list[str]:
    """The layers that a config says against those of an instance that have a block."""
    config = _find_config(spec, variant)
    count = getattr(config, "num_layers", None) or config.num_hidden_layers
    wanted = tuple(sorted({block.layer for block in list_text_blocks(spec, moe, variant)}))
    found = moe.sparse_layers.find(config.to_dict(), count)
    return [] if found == wanted else [f"layers {found}, not {wanted}"]


def _find_config(spec: ModelSpec, variant: str = "{}") -> Any:
    """The text decoder's config of a tiny instance."""
    model: Any = build(spec.model_type, variant)
    return model.config.get_text_config()


# Keys by which a class makes its list of layers, where a file has none; and the lists' keys.
_LIST_FACTS: tuple[dict[str, Any], ...] = (
    {},
    {"first_k_dense_replace": 2},
    {"num_dense_layers": 2},
    {"interleave_moe_layer_step": 3},
)
_LISTS = ("mlp_layer_types", "layers_block_type", "moe_layers")


def _check_without_list(spec: ModelSpec, moe: MoESpec) -> list[str]:
    """Files may lack the list of layers; the class then derives it, and so must the spec.

    Where the class has none of its own, no number stands in for it.
    """
    rule, wrong = moe.sparse_layers, []
    cls = type(make_config(spec.model_type).get_text_config())
    for facts in _LIST_FACTS:
        try:
            config = cls(num_hidden_layers=6, **facts).to_dict()
        except Exception:  # noqa: BLE001  (a class that can't be built from so little)
            continue
        key = next((key for key in _LISTS if key in config), None)
        if key is None:
            continue
        listed = config[key]
        if key == "moe_layers":
            said = tuple(listed)
        elif listed and len(listed) == 6:
            said = tuple(i for i, name in enumerate(listed) if name in rule.types)
        else:
            said = tuple(range(6))
        file = {name: value for name, value in config.items() if name != key} | facts
        if key in (rule.types_key, rule.listed_key) and rule.find(file, 6) != said:
            wrong.append(f"without {key}, {facts}: {rule.find(file, 6)}, not {said}")
    return wrong
