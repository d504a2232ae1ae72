"""Fault after fault: the hypothesis that removes most of the error is granted, then on."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from assay.diagnosis.finding import Cause
from assay.diagnosis.hypothesis import Hypothesis, Variant
from assay.verification.metrics import relative_l2
from assay.verification.reference import run_logits

if TYPE_CHECKING:
    import torch

__all__ = ["SearchResult", "search"]

Ids = npt.NDArray[np.int64]
Logits = npt.NDArray[np.float32]

_MOST_FAULTS = 4
_MUST_REMOVE = 0.5  # of the error, in a step that doesn't reach the bound


@dataclass
class SearchResult:
    """causes, what error is left, and the ids that never helped."""

    causes: list[Cause] = field(default_factory=list)
    left: float = math.inf
    ruled_out: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Trial:
    hypothesis: Hypothesis
    variant: Variant
    score: float


def search(
    model: torch.nn.Module,
    ids_S: Ids,
    candidate_SV: Logits,
    bound: float,
    catalogue: Sequence[Hypothesis],
    *,
    tell: Callable[[str], None] = lambda line: None,
) -> SearchResult:
    """Explain candidate logits by changes of the reference; the model is as before afterwards."""
    result = SearchResult()
    with contextlib.ExitStack() as granted:
        result.left = relative_l2(candidate_SV, run_logits(model, ids_S))
        helped: set[str] = set()
        tried: set[str] = set()
        while result.left > bound and len(result.causes) < _MOST_FAULTS:
            tell(f"looking for the cause of relL2 {result.left:.3g}")
            trials = _try_all(model, ids_S, candidate_SV, catalogue)
            tried |= {trial.hypothesis.id for trial in trials}
            best = _choose(trials, bound)
            if best is None or best.score > max(bound, _MUST_REMOVE * result.left):
                break
            helped.add(best.hypothesis.id)
            granted.enter_context(best.variant.change())
            result.causes.append(_name(best, result.left, bound))
            result.left = best.score
        result.ruled_out = sorted(tried - helped)
    return result


def _try_all(
    model: torch.nn.Module, ids_S: Ids, candidate_SV: Logits, catalogue: Sequence[Hypothesis]
) -> list[_Trial]:
    trials = []
    for hypothesis in catalogue:
        for variant in hypothesis.variants(model):
            try:
                with variant.change():
                    logits_SV = run_logits(model, ids_S)
            except (RuntimeError, ValueError, TypeError):
                continue  # a change that this model can't compute with is no explanation
            score = relative_l2(candidate_SV, logits_SV)
            if math.isfinite(score):
                trials.append(_Trial(hypothesis, variant, score))
    return trials


def _choose(trials: list[_Trial], bound: float) -> _Trial | None:
    """The lowest score; among those that explain everything, the first of the catalogue.

    A cause in every layer and one in a single layer that explain alike: the narrower place.
    """
    best = min(trials, key=lambda trial: trial.score, default=None)
    if best is None or best.score > bound:
        return best
    return next(trial for trial in trials if trial.score <= max(bound, 2 * best.score))


def _name(trial: _Trial, before: float, bound: float) -> Cause:
    whole = math.log(before / bound)
    removed = math.log(before / max(trial.score, bound))
    return Cause(
        id=trial.hypothesis.id,
        place=trial.variant.place,
        confidence=round(max(0.0, min(1.0, removed / whole if whole > 0 else 1.0)), 3),
        evidence=f"{trial.variant.what}: PyTorch changed this way lies {trial.score:.3g} from the "
        f"folder, the original {before:.3g}",
        fix=trial.hypothesis.fix,
    )
