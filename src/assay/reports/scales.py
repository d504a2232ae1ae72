"""From numbers to places in a drawing, linear or logarithmic, with round ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Scale", "fit_log"]

_MAX_DECADES = 12
_LEAST_SPAN = 4.0
_PADDING = 10**0.12
_EMPTY = (1e-3, 1.0)


@dataclass(frozen=True)
class Scale:
    """Maps low..high to start..stop; what lies outside is put on the edge.

    log: both ends are above 0; 0 and less fall on the low edge.
    """

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def place(self, value: float) -> float:
        """Where a value is drawn."""
        low, high = (math.log10(self.low), math.log10(self.high)) if self.log else self._ends
        if self.log:
            value = math.log10(value) if value > 0 else low
        share = 0.5 if high == low else (min(max(value, low), high) - low) / (high - low)
        return self.start + share * (self.stop - self.start)

    @property
    def _ends(self) -> tuple[float, float]:
        return self.low, self.high

    def list_ticks(self, most: int) -> list[float]:
        """At most about `most` round values from low to high."""
        return _log_ticks(self, most) if self.log else _linear_ticks(self, most)

    def list_whole_ticks(self, most: int) -> list[int]:
        """Ticks at whole numbers, for what is counted."""
        return [int(t) for t in _linear_ticks(self, most, smallest=1.0)]


def fit_log(values: Iterable[float | None]) -> tuple[float, float]:
    """The ends of a log scale that holds all values above 0, twelve decades at most.

    Lower ones then fall on the edge; the highest is always in.
    """
    found = [value for value in values if value is not None and value > 0]
    if not found:
        return _EMPTY
    high = max(found)
    low = max(min(found), high / 10**_MAX_DECADES, 1e-290)
    if high / low < _LEAST_SPAN:
        middle = math.sqrt(low) * math.sqrt(high)
        low, high = middle / math.sqrt(_LEAST_SPAN), middle * math.sqrt(_LEAST_SPAN)
    return low / _PADDING, high * _PADDING


def _log_ticks(scale: Scale, most: int) -> list[float]:
    first = math.ceil(math.log10(scale.low) - 1e-9)
    last = math.floor(math.log10(scale.high) + 1e-9)
    decades = list(range(first, last + 1))
    if len(decades) >= 2:
        step = math.ceil(len(decades) / most)
        return [10.0**decade for decade in decades if decade % step == 0]
    between = (digit * 10.0**d for d in range(first - 1, last + 1) for digit in (1, 2, 5))
    return [tick for tick in between if scale.low <= tick <= scale.high]


def _linear_ticks(scale: Scale, most: int, smallest: float = 0.0) -> list[float]:
    span = scale.high - scale.low
    if span <= 0:
        return [scale.low]
    rough = span / max(1, most)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(digit * power for digit in (1, 2, 5, 10) if digit * power >= rough * 0.999)
    step = max(step, smallest)
    first = math.ceil(scale.low / step - 1e-9)
    last = math.floor(scale.high / step + 1e-9)
    return [step * index for index in range(first, last + 1)]
