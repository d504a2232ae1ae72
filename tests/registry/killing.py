"""Which check notices a changed spec."""

from __future__ import annotations

from tests.registry.checks import check_spec_lazily
from tests.registry.fact_mutants import FactMutant
from tests.registry.files_check import registered

__all__ = ["find_killer"]


def find_killer(mutant: FactMutant) -> str | None:
    """The first thing that is found wrong with a mutant; None where it survives."""
    assert mutant.spec is not None
    with registered(mutant.spec):
        return next(check_spec_lazily(mutant.spec), None)
