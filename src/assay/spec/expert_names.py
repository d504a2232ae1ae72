"""What the expert linears of a MoE block are called, and those linears: told, never guessed.

Nothing here imports torch. model_type is as in `matching`: a strict filter, None asks all specs.
"""

from __future__ import annotations

from typing import Any

from assay.errors import AssayError
from assay.spec.matching import match_moe_block
from assay.spec.model_spec import ModelSpec
from assay.spec.moe import MoESpec
from assay.spec.observed import ObservedLayout, find_experts, observed_expert_layout

__all__ = ["UnsupportedExpertsError", "get_expert_linear_names", "get_experts_list"]


class UnsupportedExpertsError(AssayError, NotImplementedError):
    """Nobody has said how this module's experts are called, or they can't be listed."""


def get_expert_linear_names(module: Any, model_type: str | None = None) -> tuple[str, ...]:
    """Return the names of the expert linears (or fused parameters) of a MoE block.

    From the spec where the observed layout is the spec's; else, for fused containers, as they
    stand; else UnsupportedExpertsError (a NotImplementedError). Names of iterable experts are
    never taken from the module, since names alone don't say which is the gate.
    """
    spec = match_moe_block(module, model_type)
    observed = observed_expert_layout(module)
    moe = spec.moe_spec if spec is not None else None
    if moe is not None and observed is not None and _is_the_specs(moe, observed):
        return moe.expert_linear_names
    if observed is not None and observed.kind == "fused":
        return observed.names
    raise _unsupported(module, model_type, spec, observed)


def get_experts_list(module: Any, model_type: str | None = None) -> list[list[Any]]:
    """Return, for each expert linear in the spec's order, that linear of every expert.

    Empty where the spec doesn't set `grouped_expert_export`, and for fused containers, which hold
    no linears. UnsupportedExpertsError where no spec knows the block, or its layout can't be
    listed.
    """
    spec = match_moe_block(module, model_type)
    observed = observed_expert_layout(module)
    if spec is None or spec.moe_spec is None or spec.moe_spec.unsupported is not None:
        raise _unsupported(module, model_type, spec, observed)
    if spec.export_spec is None or not spec.export_spec.grouped_expert_export:
        return []
    if observed is not None and observed.kind == "fused":
        return []
    names = get_expert_linear_names(module, model_type)
    experts = list(enumerate(find_experts(module)))
    return [[_get(expert, name, number, module) for number, expert in experts] for name in names]


def _is_the_specs(moe: MoESpec, observed: ObservedLayout) -> bool:
    """Whether the spec's names hold for what is observed: the kind, and the names themselves."""
    if observed.kind != moe.layout.kind:
        return False
    if observed.kind == "fused":
        return set(moe.expert_linear_names) == set(observed.names)
    return set(moe.expert_linear_names) <= set(observed.names)


def _get(expert: Any, name: str, number: int, block: Any) -> Any:
    linear = getattr(expert, name, None)
    if linear is None:
        raise UnsupportedExpertsError(
            type(block).__name__,
            f"expert {number} ({type(expert).__name__}) has no {name}",
            next_step="Correct expert_linear_names in the type's specs.py.",
        )
    return linear


def _unsupported(
    module: Any, model_type: str | None, spec: ModelSpec | None, observed: ObservedLayout | None
) -> UnsupportedExpertsError:
    where = type(module).__name__
    if observed is None:
        lies = "no experts that we recognise"
    else:
        lies = f"{observed.kind} experts, called {', '.join(observed.names)}"
    if spec is None or spec.moe_spec is None:
        whose = "no spec" if model_type is None else f"no spec of model type {model_type!r}"
        return UnsupportedExpertsError(
            where,
            f"{whose} is registered for this block, which has {lies}",
            next_step="Register it: write models/<model_type>/specs.py with a moe_spec that names "
            "block_names and expert_linear_names, as docs/registry.md says.",
        )
    moe = spec.moe_spec
    names = ", ".join(moe.expert_linear_names)
    return UnsupportedExpertsError(
        where,
        f"it has {lies}, and the spec of {spec.model_type} knows {moe.layout.kind} ones, called "
        f"{names}" + (f": {moe.unsupported}" if moe.unsupported else ""),
        next_step=f"Split the block into linears called {names}, or correct layouts and "
        f"expert_linear_names in models/{spec.model_type}/specs.py, as docs/registry.md says.",
    )
