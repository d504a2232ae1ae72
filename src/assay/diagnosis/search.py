"""Which changes of the original compute what the folder computes, segment by segment?

Every segment reads the folder's own stream, so that one run tells for each of them whether a
change explains it. A change that explains a segment's error down to the noise is its cause. Where
no single one does, changes are stacked, starting from those that helped most.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from assay.diagnosis.causes.fits import FAMILIES, fit
from assay.diagnosis.hypothesis import Hypothesis, Variant
from assay.diagnosis.isolation import Isolation

__all__ = ["Explanation", "SearchResult", "search"]

Errors = npt.NDArray[np.float64]

_MOST_FAULTS = 3  # in one segment
_BEAM = 6
_SAMPLE = 4
_DEEP_SAMPLES = 2
_FITTED = 2
_SLACK, _TINY = 4.0, 1e-3


@dataclass(frozen=True, eq=False)
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
    """Explain every segment's error by changes of the reference, which is as before afterwards.

    A few segments are searched at a time: what explains one of them is then tried on all others.
    """
    start = isolation.measure()
    result = SearchResult(start)
    open_segments = [int(k) for k in np.flatnonzero(~(start <= isolation.bounds))]
    # A changed model rounds otherwise than the original, whose noise the bound comes from.
    limits = np.maximum(isolation.bounds, np.minimum(_SLACK * isolation.bounds, _TINY * start))
    tried: set[str] = set()
    best: dict[int, list[Path]] = {}
    for depth in range(1, _MOST_FAULTS + 1):
        todo = list(open_segments)
        for _ in range(len(todo) if depth == 1 else _DEEP_SAMPLES):
            sample = _pick(todo)
            if not sample:
                break
            tell(f"{len(open_segments)} of {len(start)} segments part: {depth} change(s) at a time")
            paths = []
            for path in _merge(best, sample) if depth > 1 else [()]:
                steps = _extend(isolation, catalogue, path, sample)
                tried |= {step.hypothesis.id for step in steps}
                paths += [(*path, step) for step in steps]
            for hard in sample:
                if not _choose(paths, hard, limits[hard]):
                    for path in _rank(best.get(hard, []), hard)[:_FITTED] if depth > 1 else [()]:
                        paths += [(*path, step) for step in _fit(isolation, hard, path)]
            for segment in sample:
                best[segment] = _rank(paths, segment)[:_BEAM]
                chosen = _choose(paths, segment, limits[segment])
                if chosen and segment in open_segments:
                    found = _spread(isolation, chosen, open_segments, start, limits)
                    result.explained += found
                    open_segments = [
                        k for k in open_segments if k not in {e.segment for e in found}
                    ]
            todo = [k for k in todo if k in open_segments and k not in sample]
    result.unexplained = open_segments
    named = {step.hypothesis.id for found in result.explained for step in found.path}
    result.ruled_out = sorted(tried - named)
    return result


def _pick(segments: list[int]) -> list[int]:
    """The first, the last, and some between."""
    if len(segments) <= _SAMPLE:
        return list(segments)
    places = np.linspace(0, len(segments) - 1, _SAMPLE).round().astype(int)
    return [segments[place] for place in dict.fromkeys(places.tolist())]


def _spread(
    isolation: Isolation, path: Path, segments: list[int], start: Errors, limits: Errors
) -> list[Explanation]:
    """Every open segment that a path explains."""
    with contextlib.ExitStack() as granted:
        for step in path:
            granted.enter_context(step.variant.change())
        errors = isolation.measure()
    moved = np.abs(errors - start) > np.maximum(isolation.bounds, 1e-3 * start)
    touched = frozenset(np.flatnonzero(moved).tolist())
    return [
        Explanation(k, path, float(start[k]), float(errors[k]), touched)
        for k in segments
        if errors[k] <= limits[k]
    ]


def _extend(
    isolation: Isolation, catalogue: Sequence[Hypothesis], path: Path, segments: list[int]
) -> list[Step]:
    """Every further change on top of a path, seen in some segments."""
    steps = []
    taken = {step.key for step in path}
    with contextlib.ExitStack() as granted:
        for step in path:
            granted.enter_context(step.variant.change())
        for hypothesis in catalogue:
            for variant in hypothesis.variants(isolation.model):
                if (hypothesis.id, variant.place, variant.what) in taken:
                    continue
                errors = _try(isolation, variant, segments)
                if np.isfinite(errors[segments]).any():  # else the change explains nothing
                    steps.append(Step(hypothesis, variant, errors))
    return steps


def _fit(isolation: Isolation, segment: int, path: Path) -> Iterator[Step]:
    """Numbers of the model fitted to one segment, on top of a path."""

    def measure(variant: Variant) -> float:
        return float(_try(isolation, variant, [segment])[segment])

    with contextlib.ExitStack() as granted:
        for step in path:
            granted.enter_context(step.variant.change())
        for list_families in FAMILIES:
            for family in list_families(isolation.model):
                variant = fit(family, measure)
                yield Step(family.hypothesis, variant, _try(isolation, variant, [segment]))


def _try(isolation: Isolation, variant: Variant, segments: list[int]) -> Errors:
    """Errors with a change; infinite where the model can't compute with it."""
    try:
        with variant.change():
            return np.nan_to_num(isolation.measure(segments), nan=np.inf)
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError):
        return np.full(len(isolation.names), np.inf)


def _choose(paths: list[Path], segment: int, limit: float) -> Path:
    """Of the paths that explain a segment, the first of the catalogue that is nearly the best."""
    least = min((path[-1].errors[segment] for path in paths), default=np.inf)
    if not least <= limit:
        return ()
    return next(p for p in paths if p[-1].errors[segment] <= min(limit, 2 * least))


def _rank(paths: list[Path], segment: int) -> list[Path]:
    return sorted(paths, key=lambda path: path[-1].errors[segment])


def _merge(best: dict[int, list[Path]], segments: list[int]) -> list[Path]:
    """The paths from which to go on: the best of each segment in turn."""
    kept: dict[int, Path] = {}
    for number in range(_BEAM):
        for segment in segments:
            ranking = best.get(segment, [])
            if number < len(ranking) and len(kept) < _BEAM:
                kept.setdefault(id(ranking[number]), ranking[number])
    return list(kept.values())
