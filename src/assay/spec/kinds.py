"""Facts that came from a config have the kind that the vocabulary says they have.

JSON has one sort of number and no enumerations, so a config may hold "1e-5" for an eps, null for a
width or true for a count. The annotations of `vocabulary.py` are the rule; nothing is converted.
"""

from __future__ import annotations

import functools
import math
import types
import typing
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from assay.errors import ConfigError

__all__ = ["Above", "AtLeast", "check_facts", "check_number"]


@dataclass(frozen=True)
class AtLeast:
    """In an annotation: the smallest value that makes sense."""

    limit: int

    def allows(self, value: float) -> bool:
        """Whether a number is large enough."""
        return value >= self.limit

    def __str__(self) -> str:
        return f"at least {self.limit}"


@dataclass(frozen=True)
class Above:
    """In an annotation: a bound that a value must exceed."""

    limit: int

    def allows(self, value: float) -> bool:
        """Whether a number is large enough."""
        return value > self.limit

    def __str__(self) -> str:
        return f"above {self.limit}"


def check_facts(part: Any, where: str, keys: Mapping[str, str]) -> None:
    """Check every field of one resolved dataclass of the vocabulary.

    keys: field -> the config key that it was read from, where it was read as it stands.
    Raises ConfigError for the first field whose value has another kind or an impossible size.
    """
    for name, annotation in _hints(type(part)).items():  # type: ignore[arg-type]  # hashable
        value = getattr(part, name)
        if not _has_kind(value, annotation):
            raise ConfigError(
                where,
                f"{keys.get(name) or f'{name} of the {type(part).__name__}'} is {value!r}",
                expected=_describe(annotation),
                next_step="Correct it in config.json, as the model's authors publish it.",
            )


def check_number(value: Any, where: str, name: str, *, above_zero: bool = False) -> float:
    """Return a number of the config as a float; raise ConfigError for anything else."""
    if not _is_number(value) or (above_zero and value <= 0):
        raise ConfigError(
            where, f"{name} is {value!r}", expected=f"a number{' above 0' if above_zero else ''}"
        )
    return float(value)


@functools.cache
def _hints(cls: Hashable) -> dict[str, Any]:
    return get_type_hints(cls, include_extras=True)


def _has_kind(value: Any, annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin is Annotated:
        kind, *limits = get_args(annotation)
        return _has_kind(value, kind) and all(limit.allows(value) for limit in limits)
    if origin in (Union, types.UnionType):
        return any(_has_kind(value, choice) for choice in get_args(annotation))
    if origin is Literal:
        return isinstance(value, str) and value in get_args(annotation)
    if origin is tuple:
        entry = get_args(annotation)[0]
        return isinstance(value, tuple) and all(_has_kind(item, entry) for item in value)
    if annotation is float:
        return _is_number(value)
    if annotation is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, typing.cast(type, annotation))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _describe(annotation: Any) -> str:
    names = {int: "an integer", float: "a finite number", bool: "true or false", str: "a text"}
    if annotation in names:
        return names[annotation]
    if annotation is type(None):
        return "null"
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return f"{_describe(parts[0])}, {', '.join(str(limit) for limit in parts[1:])}"
    if origin in (Union, types.UnionType):
        return " or ".join(_describe(part) for part in parts)
    if origin is Literal:
        return f"one of {', '.join(parts)}"
    if origin is tuple:
        return f"a list, each entry {_describe(parts[0])}"
    return f"a {annotation.__name__}"
