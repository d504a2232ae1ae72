"""Compare candidates in turns and choose: the arithmetic of tuning, whatever is measured."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from assay.errors import RuntimeFolderError

from ._candidates import Candidate
from ._measure import Speed

__all__ = ["OBJECTIVE", "Trial", "compare", "is_confirmed", "measure_gain", "pick_best"]

OBJECTIVE = (
    "geometric mean of the prefill and decode speed-ups over the folder as it is, "
    "paired within rounds, median over rounds"
)
# A later candidate has to beat an earlier (simpler) one by this much: less is noise.
_TIE = 0.02


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One candidate's speeds, one a round.

    score: by OBJECTIVE, over the first candidate of the comparison (which has 1.0).
    failed: the reason why it has no speeds.
    """

    stage: str
    name: str
    options: dict[str, Any]
    speeds: tuple[Speed, ...]
    score: float
    failed: str = ""

    @property
    def candidate(self) -> Candidate:
        """What was tried."""
        return Candidate(name=self.name, options=self.options)


def compare(
    stage: str,
    candidates: Sequence[Candidate],
    rounds: int,
    measure: Callable[[Candidate], Speed],
) -> list[Trial]:
    """Measure every candidate once a round, in turns forwards and backwards.

    A candidate that raises RuntimeFolderError is out, with the reason; the first one must run.
    """
    speeds: dict[str, list[Speed]] = {candidate.name: [] for candidate in candidates}
    failed: dict[str, str] = {}
    for number in range(rounds):
        for candidate in candidates if number % 2 == 0 else reversed(candidates):
            if candidate.name in failed:
                continue
            try:
                speeds[candidate.name].append(measure(candidate))
            except RuntimeFolderError as exc:
                if candidate is candidates[0]:
                    raise
                failed[candidate.name] = exc.found
    base = speeds[candidates[0].name]
    return [
        Trial(
            stage=stage,
            name=candidate.name,
            options=candidate.options,
            speeds=() if candidate.name in failed else tuple(speeds[candidate.name]),
            score=0.0 if candidate.name in failed else _score(speeds[candidate.name], base),
            failed=failed.get(candidate.name, ""),
        )
        for candidate in candidates
    ]


def pick_best(trials: Sequence[Trial]) -> Trial | None:
    """The first candidate whose score is within 2 % of the highest; None where none ran."""
    top = max((trial.score for trial in trials if not trial.failed), default=0.0)
    return next((t for t in trials if not t.failed and t.score >= top * (1 - _TIE)), None)


def is_confirmed(trial: Trial, base: Trial, *, min_gain: float) -> bool:
    """Is the trial faster by min_gain in the median, and faster at all in four pairs of five?"""
    scores = [one.score_against(other) for one, other in _quiet_pairs(trial.speeds, base.speeds)]
    num_won = sum(score > 1 for score in scores)
    return statistics.median(scores) >= min_gain and num_won * 5 >= len(scores) * 4


def measure_gain(trial: Trial, base: Trial) -> tuple[float, float]:
    """How many times as fast as the base in prefill and in decode: medians of the pairs."""
    pairs = _quiet_pairs(trial.speeds, base.speeds)
    prefill = statistics.median(one.prefill / other.prefill for one, other in pairs)
    decode = statistics.median(one.decode / other.decode for one, other in pairs)
    return prefill, decode


def _score(speeds: Sequence[Speed], base: Sequence[Speed]) -> float:
    return statistics.median(one.score_against(other) for one, other in _quiet_pairs(speeds, base))


def _quiet_pairs(speeds: Sequence[Speed], base: Sequence[Speed]) -> list[tuple[Speed, Speed]]:
    """The pairs of one round each; those that others disturbed count only where all are."""
    pairs = list(zip(speeds, base, strict=True))
    return [pair for pair in pairs if not (pair[0].disturbed or pair[1].disturbed)] or pairs
