"""Changed specs: every fact of every section wrong once, each change by itself.

A section that several types share is changed in all of them, as an edit of its file would.
Booleans are flipped, names misspelled, choices changed to each other one, numbers moved, entries
and facts dropped, ordered ones swapped, both sides of a marker exchanged; and each spec left out.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from assay.spec import ModelSpec, get_specs
from assay.spec.config import ConfigSpec
from assay.spec.markers import Derived, Key, Marker, OrElse, When
from assay.spec.moe import MoESpec
from tests.registry.facts import CONFIG_FIELDS, SECTIONS, find_default, is_part

__all__ = ["FactMutant", "list_fact_mutants"]

# Tuples whose order nothing asks for: sets, and forms of files of which a file has one.
_UNORDERED = (
    "architectures", "becomes", "block_names", "files", "layers", "module_names", "pqs_fuse_rules",
    "renames", "types", "weight_plus_one_norm_names",
)  # fmt: skip
_PROSE = ("unsupported",)  # a reason in words
Change = tuple[str, str, Any]  # path below the value, kind of change, the value instead


@dataclass(frozen=True, kw_only=True)
class FactMutant:
    """One change of one spec. spec: None where the spec is left out of the registry."""

    model_type: str
    path: str
    kind: str
    spec: ModelSpec | None

    @property
    def where(self) -> str:
        """Type, path and change in one line."""
        return f"{self.model_type}: {self.path}: {self.kind}"


def list_fact_mutants(spec: ModelSpec) -> list[FactMutant]:
    """Every mutant of a spec, no two of them equal."""
    found = [
        FactMutant(model_type=spec.model_type, path="", kind="left out of the registry", spec=None)
    ]
    seen: list[ModelSpec] = [spec]
    for name in SECTIONS[1:]:
        if name == "config_spec" and spec.moe_spec is None:
            continue
        changes = _change_field(ModelSpec, spec, name)
        if name == "moe_spec" and _is_shared(spec):  # changed as its text decoder's
            changes = _change_own_names(spec)
        for path, kind, value in changes:
            changed = dataclasses.replace(spec, **{name: value})
            if changed not in seen:
                seen.append(changed)
                mutant = FactMutant(model_type=spec.model_type, path=path, kind=kind, spec=changed)
                found.append(mutant)
    return found


def _is_shared(spec: ModelSpec) -> bool:
    """Whether the section is that of another type with a config of its own, but for block names."""
    own = spec.moe_spec
    return (
        own is not None
        and spec.config_spec is None
        and any(
            dataclasses.replace(other.moe_spec, block_names=own.block_names) == own
            for other in get_specs()
            if other.moe_spec is not None and other.config_spec is not None
        )
    )


def _change_own_names(spec: ModelSpec) -> Iterator[Change]:
    """Changes of the block names that a model has beside its text decoder's."""
    moe = spec.moe_spec
    assert moe is not None
    if len(moe.block_names) > 1:
        for path, kind, value in _change_field(MoESpec, moe, "block_names"):
            yield f"moe_spec.{path}", kind, dataclasses.replace(moe, block_names=value)


def _change_field(cls: type, part: Any, name: str) -> Iterator[Change]:
    """Every change of one field of a fact sheet, paths beginning with its name."""
    value = getattr(part, name)
    if name in _PROSE:
        if value is not None:
            yield name, "dropped", None
        return
    choices = _find_choices(typing.get_type_hints(cls)[name])
    for path, kind, other in _change(value, choices, ordered=name not in _UNORDERED):
        yield f"{name}{path}", kind, other
    default = find_default(cls, name)
    if default is not dataclasses.MISSING and value != default and not isinstance(value, bool):
        yield name, "dropped", default


def _find_choices(hint: Any) -> tuple[Any, ...]:
    """The values of a Literal, also inside a union; for a switch that may be unknown, all three."""
    if typing.get_origin(hint) is Literal:
        return typing.get_args(hint)
    args = typing.get_args(hint)
    if set(args) == {bool, type(None)}:
        return (True, False, None)
    return tuple(choice for arg in args for choice in _find_choices(arg))


def _change(value: Any, choices: tuple[Any, ...] = (), *, ordered: bool = True) -> Iterator[Change]:
    if isinstance(value, Marker):
        yield from _change_marker(value, choices)
    elif choices and not is_part(value):
        for other in choices:
            if other != value or type(other) is not type(value):
                yield "", f"{value!r} -> {other!r}", other
    elif isinstance(value, bool):
        yield "", f"{value} -> {not value}", not value
    elif isinstance(value, str):
        yield "", "misspelled", _misspell(value)
    elif isinstance(value, list):
        yield "", "one entry less", value[:-1]
    elif isinstance(value, (int, float)):
        yield "", f"{value!r} -> {value + 1!r}", value + 1
    elif isinstance(value, Mapping):
        yield from _change_mapping(value)
    elif isinstance(value, tuple):
        yield from _change_tuple(value, ordered)
    elif dataclasses.is_dataclass(value):
        yield from _change_part(value)
    else:
        assert value is None, value


def _misspell(name: str) -> str:
    """A name with a letter too many; of a release the one at the range's other end."""
    if name[:1].isdigit():
        return "5.24.0" if name.startswith("4.") else "4.57.0"
    return f"{name}x"


def _change_part(part: Any) -> Iterator[Change]:
    for field in dataclasses.fields(part):
        if isinstance(part, ConfigSpec) and field.name not in CONFIG_FIELDS:
            continue
        for path, kind, value in _change_field(type(part), part, field.name):
            yield f".{path}", kind, dataclasses.replace(part, **{field.name: value})


def _change_mapping(values: Mapping[str, Any]) -> Iterator[Change]:
    for name, value in values.items():
        without = {key: values[key] for key in values if key != name}
        yield f".{name}", "dropped", without
        for _, kind, other in _change(value):
            yield f".{name}", kind, {**values, name: other}
        if value is None:
            yield f".{name}", "None -> 1", {**values, name: 1}


def _change_tuple(values: tuple[Any, ...], ordered: bool) -> Iterator[Change]:
    for number, value in enumerate(values):
        before, after = values[:number], values[number + 1 :]
        if not _is_pair(values):
            yield f"[{number}]", "dropped", before + after
        for path, kind, other in _change(value):
            yield f"[{number}]{path}", kind, (*before, other, *after)
        if ordered and after:
            yield f"[{number}]", "swapped with the next", (*before, after[0], value, *after[1:])


def _is_pair(values: tuple[Any, ...]) -> bool:
    """A name and what it stands for: neither can be dropped alone."""
    return len(values) == 2 and isinstance(values[0], str) and not isinstance(values[1], str)


def _change_marker(marker: Marker, choices: tuple[Any, ...]) -> Iterator[Change]:
    if isinstance(marker, Key):
        yield "", "another key", Key(f"{marker.name}x")
    elif isinstance(marker, Derived):
        yield "", "another result", Derived(marker.name, _shift(marker.function))
    elif isinstance(marker, When):
        yield "", "sides exchanged", When(marker.condition, marker.otherwise, marker.then)
        yield from _change_sides(marker, ("condition", "then", "otherwise"), choices)
    elif isinstance(marker, OrElse):
        yield "", "the first side alone", marker.first
        yield "", "the second side alone", marker.second
        yield from _change_sides(marker, ("first", "second"), choices)
    else:
        names = tuple(field.name for field in dataclasses.fields(marker))
        yield from _change_sides(marker, names, choices)


def _change_sides(
    marker: Any, names: tuple[str, ...], choices: tuple[Any, ...]
) -> Iterator[Change]:
    for name in names:
        inner = () if name == "condition" else choices
        for path, kind, value in _change(getattr(marker, name), inner):
            yield f".{name}{path}", kind, dataclasses.replace(marker, **{name: value})


def _shift(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same with another result: a number one higher, another choice, a part dropped."""

    def shifted(context: Any) -> Any:
        value = function(context)
        if isinstance(value, bool):
            return not value
        return value + 1 if isinstance(value, (int, float)) else None

    return shifted
