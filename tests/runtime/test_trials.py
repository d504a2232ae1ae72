"""Choosing among noisy measurements: the arithmetic, on made-up speeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from assay.errors import RuntimeFolderError
from assay.runtime._candidates import Candidate
from assay.runtime._measure import Speed
from assay.runtime._trials import compare, is_confirmed, measure_gain, pick_best

BASE, SLOW, FAST = (Candidate(name=name, options={"n": name}) for name in ("base", "slow", "fast"))


def speed(factor: float, *, disturbed: bool = False) -> Speed:
    return Speed(prefill=400 * factor, decode=100 * factor, disturbed=disturbed)


def drifting(factors: dict[str, float], drift: Iterator[float]) -> Callable[[Candidate], Speed]:
    """A machine whose own speed changes from one measurement to the next."""
    return lambda candidate: speed(factors[candidate.name] * next(drift))


def test_the_fastest_wins() -> None:  # proves: B11
    factors = {"base": 1.0, "slow": 0.7, "fast": 1.8}
    trials = compare("s", [BASE, SLOW, FAST], 3, lambda c: speed(factors[c.name]))
    assert [round(trial.score, 3) for trial in trials] == [1.0, 0.7, 1.8]
    best = pick_best(trials)
    assert best is not None
    assert best.candidate == FAST


def test_a_machine_that_slows_down_does_not_choose() -> None:  # proves: B11
    """Turns forwards and backwards: whoever comes last isn't always the one that suffers."""
    factors = {"base": 1.0, "slow": 1.0, "fast": 1.3}
    falling = (1.0 - 0.02 * step for step in range(100))
    trials = compare("s", [BASE, FAST, SLOW], 4, drifting(factors, falling))
    best = pick_best(trials)
    assert best is not None
    assert best.name == "fast"
    assert trials[2].score == pytest.approx(1.0, abs=0.02)
    # negative control: one round in one direction charges the drift to the last
    falling = (1.0 - 0.02 * step for step in range(100))
    once = compare("s", [BASE, FAST, SLOW], 1, drifting(factors, falling))
    assert once[2].score < 0.97


def test_a_single_outlier_does_not_choose() -> None:  # proves: B11
    values = {"base": iter([1, 1, 1]), "fast": iter([1.2, 1.2, 1.2]), "slow": iter([0.9, 9, 0.9])}
    trials = compare("s", [BASE, SLOW, FAST], 3, lambda c: speed(next(values[c.name])))
    best = pick_best(trials)
    assert best is not None
    assert best.name == "fast"


def test_disturbed_rounds_count_only_where_there_is_no_other() -> None:  # proves: B11
    values = {"base": iter([1, 1, 1]), "fast": iter([0.5, 1.5, 0.5])}
    busy = iter([False, True, False, False, False, True])

    def measure(candidate: Candidate) -> Speed:
        return speed(next(values[candidate.name]), disturbed=next(busy))

    trials = compare("s", [BASE, FAST], 3, measure)
    assert trials[1].score == pytest.approx(1.5)
    always = compare("s", [BASE, FAST], 2, lambda c: speed(1, disturbed=True))
    assert always[1].score == pytest.approx(1.0)


def test_the_simpler_one_wins_a_tie() -> None:  # proves: B11
    def race(factor: float) -> str:
        trials = compare("s", [BASE, FAST], 1, lambda c: speed(factor if c is FAST else 1.0))
        best = pick_best(trials)
        assert best is not None
        return best.name

    assert race(1.015) == "base"
    assert race(1.05) == "fast"


def test_a_candidate_that_fails_is_out() -> None:  # proves: B11
    def measure(candidate: Candidate) -> Speed:
        if candidate is FAST:
            raise RuntimeFolderError("x", "it crashed")
        return speed(1.0)

    trials = compare("s", [BASE, FAST], 3, measure)
    assert (trials[1].failed, trials[1].speeds, trials[1].score) == ("it crashed", (), 0.0)
    assert pick_best(trials[1:]) is None
    with pytest.raises(RuntimeFolderError):
        compare("s", [FAST, BASE], 3, measure)


@pytest.mark.parametrize(
    ("factors", "confirmed"),
    [
        ([1.5, 1.5, 1.5, 1.5, 1.5], True),
        ([1.5, 1.5, 1.5, 1.5, 0.9], True),
        ([1.5, 1.5, 1.5, 0.9, 0.9], False),
        ([1.01, 1.01, 1.01, 1.01, 1.01], False),
        ([0.9, 0.9, 0.9, 0.9, 0.9], False),
    ],
)
def test_confirming_takes_a_clear_gain(
    factors: list[float], confirmed: bool
) -> None:  # proves: B11
    values = iter(factors)
    base, fast = compare(
        "confirm", [BASE, FAST], 5, lambda c: speed(next(values) if c is FAST else 1.0)
    )
    assert is_confirmed(fast, base, min_gain=1.02) is confirmed


def test_gains_are_told_apart() -> None:  # proves: B11
    def measure(candidate: Candidate) -> Speed:
        if candidate is FAST:
            return Speed(prefill=800, decode=150, disturbed=False)
        return speed(1.0)

    base, fast = compare("confirm", [BASE, FAST], 3, measure)
    assert measure_gain(fast, base) == (2.0, 1.5)
    assert fast.score == pytest.approx(3**0.5)
