"""Which check notices a changed spec."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

from assay.spec import ModelSpec, get_spec, get_specs
from tests.registry.checks import check_spec_lazily
from tests.registry.expected import check_expected, read_rows
from tests.registry.fact_mutants import FactMutant
from tests.registry.files_check import registered
from tests.registry.presence_check import find_need

__all__ = ["find_killer"]


def find_killer(mutant: FactMutant) -> str | None:
    """The first thing that is found wrong with a mutant; None where it survives.

    The exhaustive table counts for remote-code types alone: nothing else can show their facts.
    """
    if mutant.spec is None:
        rows = read_rows()
        is_remote = get_spec(mutant.model_type).modeling_source == "remote_code"
        return (
            "a row too many"
            if is_remote and mutant.model_type in rows
            else find_need(mutant.model_type)
        )
    if mutant.spec.modeling_source == "remote_code":
        return next(iter(check_expected(mutant.spec)), None)
    with _registered_everywhere(mutant.spec) as others:
        specs = (mutant.spec, *(get_spec(name) for name in others))
        return next((text for spec in specs for text in check_spec_lazily(spec)), None)


@contextlib.contextmanager
def _registered_everywhere(changed: ModelSpec) -> Iterator[list[str]]:
    """Let every type that shares a changed field of the MoE section have it too: those types."""
    before, after = get_spec(changed.model_type).moe_spec, changed.moe_spec
    with contextlib.ExitStack() as stack:
        stack.enter_context(registered(changed))
        if before is None or after is None or before is after:
            yield []
            return
        others = []
        names = [
            field.name
            for field in dataclasses.fields(before)
            if getattr(before, field.name) is not getattr(after, field.name)
        ]
        for other in get_specs():
            moe = other.moe_spec
            if moe is None or other.model_type == changed.model_type:
                continue
            shared = {n: getattr(after, n) for n in names if getattr(moe, n) is getattr(before, n)}
            if shared and not {*moe.block_names}.isdisjoint(before.block_names):
                moe = dataclasses.replace(moe, **shared)
                stack.enter_context(registered(dataclasses.replace(other, moe_spec=moe)))
                others.append(other.model_type)
        yield others
