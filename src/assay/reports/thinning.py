"""Fewer points than a series has, with every peak kept at its own place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from assay.reports.numbers import as_float

__all__ = ["Bin", "split_bins", "thin"]


@dataclass(frozen=True)
class Bin:
    """Positions start..stop-1 of a series.

    peak: the extreme among them, at position `place`; None where no number is. has_gap: some
    value there is no number.
    """

    start: int
    stop: int
    place: int
    peak: float | None
    has_gap: bool


def split_bins(length: int, most: int) -> list[range]:
    """Split 0..length-1 into at most `most` stretches of about equal length."""
    num_bins = min(length, max(1, most))
    edges = [index * length // num_bins for index in range(num_bins + 1)] if length else [0]
    return [range(start, stop) for start, stop in pairwise(edges)]


def thin(values: Sequence[object], most: int, *, lowest: bool = False) -> list[Bin]:
    """The highest value of each of at most `most` bins, or the lowest."""
    pick = min if lowest else max
    bins = []
    for positions in split_bins(len(values), most):
        numbers = {p: as_float(values[p]) for p in positions}
        found = {p: number for p, number in numbers.items() if number is not None}
        place = pick(found, key=lambda p: found[p]) if found else positions.start
        bins.append(
            Bin(positions.start, positions.stop, place, found.get(place), len(found) < len(numbers))
        )
    return bins
