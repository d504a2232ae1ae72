"""Which spec a live module belongs to, and whether it is a mixture of experts.

Nothing here imports torch. A `model_type` is a strict filter: only its own spec is asked. None
asks all of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from assay.spec.model_spec import ModelSpec
from assay.spec.moe import MoESpec, class_names
from assay.spec.observed import observed_expert_layout
from assay.spec.registry import check_not_broken, get_specs, has_spec

__all__ = [
    "find_model_type",
    "is_moe",
    "list_all_possible",
    "match_moe_block",
]

# Whole endings of class names, so that an MLP or a router inside a MoE model doesn't match.
_GENERIC_ENDINGS = ("sparsemoeblock", "moelayer")
_ROUTERS = ("gate", "router")


def find_model_type(config: Any, module: Any = None) -> str | None:
    """Return the model type by which a module is looked up; None where no spec has it.

    Asked in this order: the root config, its text config, the module's own config. A config is
    transformers' object or a parsed config.json; the first that names a registered type counts.
    BrokenSpecError where a type that is asked for has a specs.py that can't be imported.
    """
    text = _read(config, "text_config")
    for candidate in (config, text, getattr(module, "config", None)):
        name = _read(candidate, "model_type")
        if not isinstance(name, str):
            continue
        check_not_broken(name)
        if has_spec(name):
            return name
    return None


def match_moe_block(module: Any, model_type: str | None = None) -> ModelSpec | None:
    """Return the spec whose MoE block a module is, by the class names in its MRO; else None.

    Where several match, the one whose class is nearest in the MRO, and of those that share that
    class (they share the layout) the first by name. BrokenSpecError as in find_model_type.
    """
    nearest: tuple[int, ModelSpec] | None = None
    for spec in _candidates(model_type):
        distance = spec.moe_spec.find_distance(module) if spec.moe_spec is not None else None
        if distance is not None and (nearest is None or distance < nearest[0]):
            nearest = (distance, spec)
    return nearest[1] if nearest is not None else None


def is_moe(module: Any, model_type: str | None = None) -> bool:
    """Whether a module is a mixture-of-experts block: a router and the experts it chooses from.

    The model's own spec is asked first; then the generic block names; then the structure.
    """
    if match_moe_block(module, model_type) is not None:
        return True
    if any(name.endswith(_GENERIC_ENDINGS) for name in class_names(module)):
        return True
    return _has_router(module) and observed_expert_layout(module) is not None


def list_all_possible(field: str) -> tuple[Any, ...]:
    """Return the union, without repeats, of a tuple field over all specs, in order of model type.

    field: of ModelSpec, MoESpec or ExportSpec, such as `block_names`. `gate_up_pair` counts as one
    entry, not as two. For callers that have no model type. ValueError for any other field.
    """
    if field not in _tuple_fields():
        raise ValueError(f"{field!r} is no tuple field of a spec: {', '.join(_tuple_fields())}")
    found: dict[Any, None] = {}
    for spec in get_specs():
        for section in (spec, spec.moe_spec, spec.export_spec):
            value = getattr(section, field, None)
            if value is not None:
                found.update(dict.fromkeys([value] if field == "gate_up_pair" else value))
    return tuple(found)


def _tuple_fields() -> tuple[str, ...]:
    from assay.spec.export_section import ExportSpec

    return tuple(
        field.name
        for section in (ModelSpec, MoESpec, ExportSpec)
        for field in dataclasses.fields(section)
        if str(field.type).startswith("tuple[")
    )


def _candidates(model_type: str | None) -> Iterator[ModelSpec]:
    if model_type is not None:
        check_not_broken(model_type)
    for spec in get_specs():
        if model_type is None or spec.model_type == model_type:
            yield spec


def _has_router(module: Any) -> bool:
    if not hasattr(module, "named_children"):
        return False
    return any(name in _ROUTERS for name, _ in module.named_children())


def _read(config: Any, name: str) -> Any:
    if isinstance(config, Mapping):
        return config.get(name)
    return getattr(config, name, None)
