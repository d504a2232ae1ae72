"""Which changes of the original compute what the folder computes?

One change that explains the error down to the noise is the cause. Where none does, pairs and
triples are tried, starting from the changes that helped most: two faults rarely look like one.
"""

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

_MOST_FAULTS = 3
_BEAM = 5
_SLACK, _TINY = 4.0, 1e-3
_MUST_REMOVE = 0.95  # of the error, by changes that don't reach the bound together


@dataclass
class SearchResult:
    """causes, what error is left, whether that is rounding, and the ids that didn't help."""

    causes: list[Cause] = field(default_factory=list)
    left: float = math.inf
    explained: bool = False
    ruled_out: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Step:
    """A change, and the error with it and all changes before it."""

    hypothesis: Hypothesis
    variant: Variant
    score: float

    @property
    def key(self) -> tuple[str, str]:
        return self.hypothesis.id, self.variant.place


_Path = tuple[_Step, ...]


def search(
    model: torch.nn.Module,
    ids_S: Ids,
    candidate_SV: Logits,
    bound: float,
    catalogue: Sequence[Hypothesis],
    *,
    tell: Callable[[str], None] = lambda line: None,
) -> SearchResult:
    """Explain candidate logits by changes of the reference, which is as before afterwards."""
    start = relative_l2(candidate_SV, run_logits(model, ids_S))
    result = SearchResult(left=start)
    if start <= bound:
        result.explained = True
        return result
    # A changed model rounds otherwise than the original, whose noise the bound comes from.
    limit = max(bound, min(_SLACK * bound, _TINY * start))
    tried: set[str] = set()
    beam: list[_Path] = [()]
    best: _Path = ()
    for depth in range(1, _MOST_FAULTS + 1):
        tell(f"looking for {depth} cause{'s' if depth > 1 else ''} of relL2 {start:.3g}")
        paths: list[_Path] = []
        for path in beam:
            steps = _extend(model, ids_S, candidate_SV, catalogue, path)
            tried |= {step.hypothesis.id for step in steps}
            paths += [(*path, step) for step in steps]
        explained = _choose(paths, limit)
        if explained:
            best = explained
            break
        beam = sorted(paths, key=lambda path: path[-1].score)[:_BEAM]
        if beam and (not best or beam[0][-1].score < 0.1 * best[-1].score):
            best = beam[0]
    if best and best[-1].score <= max(limit, (1 - _MUST_REMOVE) * start):
        result.left = best[-1].score
        result.explained = result.left <= limit
        result.causes = _name(best, start, limit)
    named = {cause.id for cause in result.causes}
    result.ruled_out = sorted(tried - named)
    return result


def _extend(
    model: torch.nn.Module,
    ids_S: Ids,
    candidate_SV: Logits,
    catalogue: Sequence[Hypothesis],
    path: _Path,
) -> list[_Step]:
    """Every further change on top of a path."""
    steps = []
    taken = {step.key for step in path}
    with contextlib.ExitStack() as granted:
        for step in path:
            granted.enter_context(step.variant.change())
        for hypothesis in catalogue:
            for variant in hypothesis.variants(model):
                if (hypothesis.id, variant.place) in taken:
                    continue
                try:
                    with variant.change():
                        logits_SV = run_logits(model, ids_S)
                except (RuntimeError, ValueError, TypeError):
                    continue  # a change that this model can't compute with explains nothing
                score = relative_l2(candidate_SV, logits_SV)
                if math.isfinite(score):
                    steps.append(_Step(hypothesis, variant, score))
    return steps


def _choose(paths: list[_Path], bound: float) -> _Path:
    """Of the paths that explain everything, the first of the catalogue that is nearly the best."""
    least = min((path[-1].score for path in paths), default=math.inf)
    if least > bound:
        return ()
    return next(path for path in paths if path[-1].score <= min(bound, 2 * least))


def _name(path: _Path, start: float, bound: float) -> list[Cause]:
    """The steps as causes: those that remove most first."""
    whole = math.log(start / bound)
    left = path[-1].score
    sure = 1.0 if left <= bound else math.log(start / left) / whole
    causes = []
    before = start
    for step in path:
        causes.append(
            Cause(
                id=step.hypothesis.id,
                place=step.variant.place,
                confidence=round(max(0.0, min(1.0, sure)), 3),
                evidence=f"{step.variant.what}: PyTorch changed this way lies {step.score:.3g} "
                f"from the folder, without it {before:.3g}",
                fix=step.hypothesis.fix,
            )
        )
        before = step.score
    return causes
