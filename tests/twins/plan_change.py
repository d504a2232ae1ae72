"""Changes every part of one kind in a resolved plan: how faults are planted."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

P = TypeVar("P")
T = TypeVar("T")


def change_parts(value: P, kind: type[T], change: Callable[[T], T]) -> P:
    """Return `value` with `change` applied to every part of `kind`, however deep."""
    changed: Any = _walk(value, kind, change)
    result: P = changed
    return result


def _walk(value: Any, kind: type[T], change: Callable[[T], T]) -> Any:
    if isinstance(value, tuple):
        return tuple(_walk(item, kind, change) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            field.name: _walk(getattr(value, field.name), kind, change)
            for field in dataclasses.fields(value)
        }
        value = dataclasses.replace(value, **fields)
        return change(value) if isinstance(value, kind) else value
    return value
