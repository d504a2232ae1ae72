"""Numbers as they are shown: three digits, exponents without padding, None where there is none."""

from __future__ import annotations

import math
from typing import Any

__all__ = [
    "NO_NUMBER",
    "as_float",
    "count",
    "show_bytes",
    "show_corr",
    "show_number",
    "show_share",
]

NO_NUMBER = "not a number"


def as_float(value: Any) -> float | None:
    """A finite number, or None for whatever else stands there."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None


def show_number(value: Any, digits: int = 3) -> str:
    """3.37e-6, 0.0478, 1,234; NO_NUMBER for None."""
    number = as_float(value)
    if number is None:
        return NO_NUMBER
    if isinstance(value, int) or (number.is_integer() and abs(number) < 1e6):
        return f"{int(number):,}"
    if 1e-3 <= abs(number) < 1e6:
        places = max(0, digits - 1 - math.floor(math.log10(abs(number))))
        text = f"{number:,.{places}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    mantissa, exponent = f"{number:.{digits - 1}e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def show_corr(value: Any) -> str:
    """A correlation or a scale with as many decimals as tell it from 1, eight at most."""
    number = as_float(value)
    if number is None:
        return NO_NUMBER
    away = abs(1.0 - abs(number))
    places = 3 if away > 0.01 else min(8, 2 - math.floor(math.log10(max(away, 1e-12))))
    return f"{number:.{places}f}".rstrip("0").rstrip(".")


def show_share(value: Any) -> str:
    """A share of 1 in per cent; what isn't nothing is never shown as 0 %."""
    number = as_float(value)
    if number is None:
        return NO_NUMBER
    return f"{show_number(100 * number)} %"


def show_bytes(value: Any) -> str:
    """A size in decimal units."""
    number = as_float(value)
    if number is None:
        return ""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{show_number(number)} {unit}"
        number /= 1000
    return f"{show_number(number)} TB"


def count(number: int, noun: str, plural: str = "") -> str:
    """1 check, 2 checks."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
