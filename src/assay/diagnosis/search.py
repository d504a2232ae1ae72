"""Which changes of the original compute what the folder computes, segment by segment?

Every segment reads the folder's own stream, so that one run tells for each of them whether a
change explains it. A change that explains a segment's error down to the noise is its cause. Where
no single one does, changes are stacked, starting from those that helped most.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from assay.diagnosis.hypothesis import Hypothesis, Variant
from assay.diagnosis.isolation import Isolation

__all__ = ["Explanation", "SearchResult", "search"]

Errors = npt.NDArray[np.float64]

_MOST_FAULTS = 3  # in one segment
_BEAM = 6
_SLACK, _TINY = 4.0, 1e-3


@dataclass(frozen=True)
class Step:
    """One change. errors: of each segment with it, and all before it, granted."""

    hypothesis: Hypothesis
    variant: Variant
    errors: Errors

    @property
    def key(self) -> tuple[str, str, str]:
        return self.hypothesis.id, self.variant.place, self.variant.what


Path = tuple[Step, ...]


@dataclass(frozen=True)
class Explanation:
    """What explains one segment. touched: the segments that the changes bear on at all."""

    segment: int
    path: Path
    before: float
    after: float
    touched: frozenset[int]


@dataclass
class SearchResult:
    """errors: of each segment at the start. unexplained: segments that no change fits."""

    errors: Errors
    explained: list[Explanation] = field(default_factory=list)
    unexplained: list[int] = field(default_factory=list)
    ruled_out: list[str] = field(default_factory=list)


def search(
    isolation: Isolation,
    catalogue: Sequence[Hypothesis],
    *,
    tell: Callable[[str], None] = lambda line: None,
) -> SearchResult:
    """Explain every segment's error by changes of the reference, which is as before afterwards."""
    start = isolation.measure()
    result = SearchResult(start)
    open_segments = [int(k) for k in np.flatnonzero(~(start <= isolation.bounds))]
    # A changed model rounds otherwise than the original, whose noise the bound comes from.
    limits = np.maximum(isolation.bounds, np.minimum(_SLACK * isolation.bounds, _TINY * start))
    tried: set[str] = set()
    beam: list[Path] = [()]
    for depth in range(1, _MOST_FAULTS + 1):
        if not open_segments:
            break
        tell(f"{len(open_segments)} of {len(start)} segments part: {depth} change(s) at a time")
        paths = []
        for path in beam:
            steps = _extend(isolation, catalogue, path)
            tried |= {step.hypothesis.id for step in steps}
            paths += [(*path, step) for step in steps]
        for segment in list(open_segments):
            chosen = _choose(paths, segment, limits[segment])
            if chosen:
                open_segments.remove(segment)
                result.explained.append(_explain(chosen, segment, start, isolation.bounds))
        beam = _keep_best(paths, open_segments)
    result.unexplained = open_segments
    named = {step.hypothesis.id for found in result.explained for step in found.path}
    result.ruled_out = sorted(tried - named)
    return result


def _extend(isolation: Isolation, catalogue: Sequence[Hypothesis], path: Path) -> list[Step]:
    """Every further change on top of a path."""
    steps = []
    taken = {step.key for step in path}
    with contextlib.ExitStack() as granted:
        for step in path:
            granted.enter_context(step.variant.change())
        for hypothesis in catalogue:
            for variant in hypothesis.variants(isolation.model):
                if (hypothesis.id, variant.place, variant.what) in taken:
                    continue
                try:
                    with variant.change():
                        errors = isolation.measure()
                except (RuntimeError, ValueError, TypeError, IndexError, AttributeError):
                    continue  # a change that this model can't compute with explains nothing
                steps.append(Step(hypothesis, variant, errors))
    return steps


def _choose(paths: list[Path], segment: int, limit: float) -> Path:
    """Of the paths that explain a segment, the first of the catalogue that is nearly the best."""
    least = min((path[-1].errors[segment] for path in paths), default=np.inf)
    if not least <= limit:
        return ()
    return next(p for p in paths if p[-1].errors[segment] <= min(limit, 2 * least))


def _keep_best(paths: list[Path], segments: list[int]) -> list[Path]:
    """The paths from which to go on: the best of each open segment in turn."""
    kept: dict[int, Path] = {}
    ranked = [sorted(paths, key=lambda path: path[-1].errors[k])[:_BEAM] for k in segments]
    for number in range(_BEAM):
        for ranking in ranked:
            if number < len(ranking) and len(kept) < _BEAM:
                kept.setdefault(id(ranking[number]), ranking[number])
    return list(kept.values())


def _explain(path: Path, segment: int, start: Errors, bounds: Errors) -> Explanation:
    moved = np.abs(path[-1].errors - start) > np.maximum(bounds, 1e-3 * start)
    return Explanation(
        segment=segment,
        path=path,
        before=float(start[segment]),
        after=float(path[-1].errors[segment]),
        touched=frozenset(np.flatnonzero(moved).tolist()),
    )
