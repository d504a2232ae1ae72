"""The facts of a spec one by one, as text: a line for everything that isn't its class's default.

A fact is a value that stands alone: a name, a number, a switch, a tuple of names, a marker of
those. What holds further facts (a router, a list of layouts) has a line for its class and then
one for each of its own facts, under a longer path.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from assay.spec import ConfigSpec, ExportSpec, ModelSpec, TextPart
from assay.spec import experts as experts_module
from assay.spec import moe as moe_module
from assay.spec.export_section import PqsFuseRule
from assay.spec.markers import ByLayer, ByLayerType, Derived, Key, Marker, OrElse, When
from assay.spec.moe import MoESpec
from assay.spec.vocabulary import Linear, Norm

__all__ = [
    "CONFIG_FIELDS",
    "SECTIONS",
    "SECTION_CLASSES",
    "describe_class",
    "describe_spec",
    "find_default",
    "is_part",
    "say",
]

# Fields of ModelSpec that the table holds; the other sections are the decoder's, proved by twins.
SECTIONS = (
    "model_type",
    "architectures",
    "becomes",
    "modeling_source",
    "min_transformers_version",
    "config_spec",
    "moe_spec",
    "export_spec",
    "text_part",
)
_MOE_CLASSES = tuple(
    value
    for module in (experts_module, moe_module)
    for name in module.__all__
    if isinstance(value := getattr(module, name), type)
)
# Every class of which a fact can be part, outermost first.
SECTION_CLASSES: tuple[type, ...] = (
    ModelSpec, ConfigSpec, TextPart, ExportSpec, PqsFuseRule, MoESpec,
    *(cls for cls in _MOE_CLASSES if cls is not MoESpec), Linear, Norm,
)  # fmt: skip
# Of ConfigSpec, what facts are read by; the rest is about keys that no fact reads.
CONFIG_FIELDS = ("defaults", "aliases")


def is_part(value: Any) -> bool:
    """Whether a value holds facts of its own, and is no marker."""
    is_fact_sheet = dataclasses.is_dataclass(value) and not isinstance(value, (type, Marker))
    return is_fact_sheet or (isinstance(value, tuple) and any(map(_holds_part, value)))


def _holds_part(value: Any) -> bool:
    if isinstance(value, When):
        return is_part(value.then) or is_part(value.otherwise)
    if isinstance(value, OrElse):
        return is_part(value.first) or is_part(value.second)
    return is_part(value)


def say(value: Any) -> str:
    """A fact as text, in one line."""
    if isinstance(value, Key):
        return f"key({value.name})"
    if isinstance(value, Derived):
        return f"rule({value.name})"
    if isinstance(value, When):
        condition, then, otherwise = map(say, (value.condition, value.then, value.otherwise))
        return f"when({condition}, {then}, {otherwise})"
    if isinstance(value, OrElse):
        return f"or_else({say(value.first)}, {say(value.second)})"
    if isinstance(value, ByLayer):
        return f"by_layer({say(value.values)})"
    if isinstance(value, ByLayerType):
        return f"by_layer_type({', '.join(f'{name}: {say(item)}' for name, item in value.values)})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {say(value[name])}" for name in sorted(value)) + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(say, value)) + ("," if len(value) == 1 else "") + ")"
    return repr(value)


def describe_spec(spec: ModelSpec) -> str:
    """The facts of a spec, a line each."""
    lines = []
    for name in SECTIONS[1:]:
        value, default = getattr(spec, name), find_default(ModelSpec, name)
        if value != default and (name != "config_spec" or spec.moe_spec is not None):
            lines += _describe(name, value)
    return "\n".join(lines) + "\n"


def describe_class(cls: type) -> str:
    """The defaults of a class's fields, a line each; `required` where there is none."""
    lines = []
    for field in dataclasses.fields(cls):
        default = find_default(cls, field.name)
        said = "required" if default is dataclasses.MISSING else say_part(default)
        lines.append(f"{field.name} = {said}")
    return "\n".join(lines) + "\n"


def say_part(value: Any) -> str:
    """A default: a fact, or an object with defaults of its own."""
    is_fact_sheet = dataclasses.is_dataclass(value) and not isinstance(value, Marker)
    return f"{type(value).__name__}()" if is_fact_sheet else say(value)


def _describe(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, tuple) and is_part(value):
        for number, item in enumerate(value):
            yield from _describe(f"{path}[{number}]", item)
    elif isinstance(value, When) and _holds_part(value):
        yield f"{path} = when({say(value.condition)})"
        yield from _describe(f"{path}.then", value.then)
        yield from _describe(f"{path}.otherwise", value.otherwise)
    elif isinstance(value, Mapping):
        for name in sorted(value):
            yield f"{path}.{name} = {say(value[name])}"
    elif is_part(value):
        yield f"{path} = {type(value).__name__}"
        for field in dataclasses.fields(value):
            inner = getattr(value, field.name)
            if isinstance(value, ConfigSpec) and field.name not in CONFIG_FIELDS:
                continue
            if inner != find_default(type(value), field.name):
                yield from _describe(f"{path}.{field.name}", inner)
    else:
        assert not (isinstance(value, Marker) and _holds_part(value)), (path, value)
        yield f"{path} = {say(value)}"


def find_default(cls: type, name: str) -> Any:
    """A field's default; dataclasses.MISSING where it has none."""
    field = next(field for field in dataclasses.fields(cls) if field.name == name)
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default
