"""Look-ups about live modules, which never guess: what the registry knows, what a module shows.

Nothing here imports torch. A `model_type` is a strict filter: only its own spec is asked. None
asks all of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from assay.errors import AssayError
from assay.spec.model_spec import ModelSpec
from assay.spec.moe import MoESpec, class_names
from assay.spec.observed import ObservedLayout, find_experts, observed_expert_layout
from assay.spec.registry import check_not_broken, get_specs, has_spec

__all__ = [
    "UnsupportedExpertsError",
    "find_model_type",
    "get_expert_linear_names",
    "get_experts_list",
    "is_moe",
    "list_all_possible",
    "match_moe_block",
]

# Whole endings of class names, so that an MLP or a router inside a MoE model doesn't match.
_GENERIC_ENDINGS = ("sparsemoeblock", "moelayer")
_ROUTERS = ("gate", "router")


class UnsupportedExpertsError(AssayError, NotImplementedError):
    """Nobody has said how this module's experts are called, or they can't be listed."""


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


def get_expert_linear_names(module: Any, model_type: str | None = None) -> tuple[str, ...]:
    """Return the names of the expert linears (or fused parameters) of a MoE block.

    From the spec where the observed layout is the spec's; else, for fused containers, as they
    stand; else UnsupportedExpertsError (a NotImplementedError). Names of iterable experts are
    never taken from the module, since names alone don't say which is the gate.
    """
    spec, moe = _find(module, model_type)
    observed = observed_expert_layout(module)
    if moe is not None and observed is not None and _is_the_specs(moe, observed):
        return moe.expert_linear_names
    if observed is not None and observed.kind == "fused":
        return observed.names
    raise _unsupported(module, spec, observed)


def get_experts_list(module: Any, model_type: str | None = None) -> list[list[Any]]:
    """Return, for each expert linear in the spec's order, that linear of every expert.

    Empty where the spec doesn't set `grouped_expert_export`, and for fused containers, which hold
    no linears. UnsupportedExpertsError where no spec knows the block, or its layout can't be
    listed.
    """
    spec, moe = _find(module, model_type)
    observed = observed_expert_layout(module)
    if spec is None or moe is None or moe.unsupported is not None:
        raise _unsupported(module, spec, observed)
    if spec.export_spec is None or not spec.export_spec.grouped_expert_export:
        return []
    if observed is not None and observed.kind == "fused":
        return []
    names = get_expert_linear_names(module, model_type)
    experts = find_experts(module)
    return [[_get(expert, name, module) for expert in experts] for name in names]


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


def _is_the_specs(moe: MoESpec, observed: ObservedLayout) -> bool:
    """Whether the spec's names hold for what is observed: the kind, and what is fused."""
    if observed.kind != moe.layout.kind:
        return False
    return observed.kind != "fused" or set(observed.names) == set(moe.expert_linear_names)


def _candidates(model_type: str | None) -> Iterator[ModelSpec]:
    if model_type is not None:
        check_not_broken(model_type)
    for spec in get_specs():
        if model_type is None or spec.model_type == model_type:
            yield spec


def _find(module: Any, model_type: str | None) -> tuple[ModelSpec | None, MoESpec | None]:
    spec = match_moe_block(module, model_type)
    return spec, spec.moe_spec if spec is not None else None


def _has_router(module: Any) -> bool:
    if not hasattr(module, "named_children"):
        return False
    return any(name in _ROUTERS for name, _ in module.named_children())


def _get(expert: Any, name: str, block: Any) -> Any:
    linear = getattr(expert, name, None)
    if linear is None:
        raise UnsupportedExpertsError(
            type(block).__name__,
            f"an expert ({type(expert).__name__}) has no {name}",
            next_step="Correct expert_linear_names in the type's specs.py.",
        )
    return linear


def _read(config: Any, name: str) -> Any:
    if isinstance(config, Mapping):
        return config.get(name)
    return getattr(config, name, None)


def _unsupported(
    module: Any, spec: ModelSpec | None, observed: ObservedLayout | None
) -> UnsupportedExpertsError:
    where = type(module).__name__
    lies = "no experts that we recognise" if observed is None else f"{observed.kind} experts"
    if spec is None:
        return UnsupportedExpertsError(
            where,
            f"no spec is registered for this block, which has {lies}",
            next_step="Register it: write models/<model_type>/specs.py with a moe_spec that names "
            "block_names and expert_linear_names, as docs/registry.md says.",
        )
    assert spec.moe_spec is not None
    reason = spec.moe_spec.unsupported
    names = ", ".join(spec.moe_spec.expert_linear_names)
    return UnsupportedExpertsError(
        where,
        f"it has {lies}, and the spec of {spec.model_type} knows {spec.moe_spec.layout.kind} ones"
        + (f": {reason}" if reason else ""),
        next_step=f"Split the block into linears called {names}, or"
        f" correct layouts in models/{spec.model_type}/specs.py, as docs/registry.md says.",
    )
