"""Markers that stand in a spec where a value is read from a checkpoint's config.

A spec is a tree of frozen dataclasses (`vocabulary.py`). Wherever a fact depends on the config,
the layer or both, a marker takes its place; `resolve.py` replaces every marker by its value. The
marker functions return `Any`, so that the dataclasses keep the plain types of resolved facts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.spec.resolve import Context


@dataclasses.dataclass(frozen=True)
class Marker:
    """Base of everything that is replaced when a spec meets a config."""


@dataclasses.dataclass(frozen=True)
class Key(Marker):
    """The value of a config key, or its default from the spec's table of defaults."""

    name: str


@dataclasses.dataclass(frozen=True)
class OrElse(Marker):
    """The first value, unless it is None: then the second."""

    first: Any
    second: Any


@dataclasses.dataclass(frozen=True)
class When(Marker):
    """One of two values (or parts of a spec), by a truth value read from the config."""

    condition: Any
    then: Any
    otherwise: Any


@dataclasses.dataclass(frozen=True)
class ByLayerType(Marker):
    """The value for the layer's own type (`layer_types[i]`)."""

    values: tuple[tuple[str, Any], ...]


@dataclasses.dataclass(frozen=True)
class ByLayer(Marker):
    """The layer's entry of a value that has one entry per layer."""

    values: Any


@dataclasses.dataclass(frozen=True)
class Derived(Marker):
    """A named rule: a function of the config and the layer."""

    name: str
    function: Callable[[Context], Any] = dataclasses.field(repr=False, compare=False)


def key(name: str) -> Any:
    """Read `name` from config.json; where the file leaves it out, the spec's default holds."""
    return Key(name)


def or_else(first: Any, second: Any) -> Any:
    """Take `first`; where the config says null, take `second`."""
    return OrElse(first, second)


def when(condition: Any, then: Any, otherwise: Any) -> Any:
    """Choose by a boolean of the config; both sides may be whole parts of a spec."""
    return When(condition, then, otherwise)


def by_layer_type(**values: Any) -> Any:
    """Choose by the layer's type, `full_attention=..., sliding_attention=...`."""
    return ByLayerType(tuple(values.items()))


def by_layer(values: Any) -> Any:
    """Take entry i of `values` for layer i."""
    return ByLayer(values)


def rule(function: Callable[[Context], Any]) -> Any:
    """Turn a function of the context into a marker; its name is what people are shown."""
    return Derived(function.__name__, function)
