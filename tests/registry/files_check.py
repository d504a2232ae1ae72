"""Published forms of the experts' tensors against what transformers saves and what it holds."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import tempfile
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

from assay.errors import AssayError
from assay.spec import ModelSpec, find_model_type, get_spec, group_expert_tensors
from assay.spec.moe import MoESpec
from assay.spec.registry import _SPECS
from tests.registry.file_values import (
    SHOWN_BY_WHOLE,
    check_form,
    check_renames,
    check_table,
    check_values,
)
from tests.registry.published import PUBLISHED, find_projection
from tests.registry.tiny import OLD, UNBUILT, build
from tests.registry.truth import find_expert_parameters

__all__ = ["FILE_EXCEPTIONS", "check_files", "registered", "save_instance"]

Stored = dict[str, tuple[str, tuple[int, ...]]]  # name -> dtype, shape
Values = dict[str, Tensor]

# Types whose files can't be compared, with the reason.
FILE_EXCEPTIONS = (
    {"glm4v_moe_text": "transformers 4.57 saves a model type that nobody has"} if OLD else {}
)


@functools.cache
def save_instance(model_type: str) -> tuple[dict[str, Any], Stored, int, Values]:
    """A tiny instance's saved config, its tensors, and how many values its experts hold."""
    model: Any = build(model_type)
    # jetmoe's attention has experts too, which are no feed-forward block's.
    named = {name for name in find_expert_parameters(model) if "attention" not in name}
    held = {id(p): p for n, p in model.named_parameters() if n in named}
    stored: Stored = {}
    count = sum(p.numel() for p in held.values())
    if any(p.is_meta for p in model.parameters()):  # which can't be saved
        stored = {name: ("F32", tuple(p.shape)) for name, p in model.state_dict().items()}
        return model.config.to_dict(), stored, count, {}
    values: Values = {}
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        for file in Path(folder).glob("*.safetensors"):
            with safe_open(file, "pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118  (it is no mapping)
                    part = tensors.get_slice(name)
                    stored[name] = part.get_dtype(), tuple(part.get_shape())
                    values[name] = tensors.get_tensor(name)
        config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    return config, stored, count, values


@contextlib.contextmanager
def registered(spec: ModelSpec) -> Iterator[None]:
    """Let the registry have this spec for its type for a while."""
    before = _SPECS.get(spec.model_type)
    _SPECS[spec.model_type] = spec
    try:
        yield
    finally:
        if before is None:
            del _SPECS[spec.model_type]
        else:
            _SPECS[spec.model_type] = before


@functools.cache
def list_held(model_type: str) -> tuple[Stored, Values]:
    """The parameters of a tiny instance; no values where it is too large to have any."""
    held = dict(build(model_type).named_parameters())
    shapes: Stored = {name: ("F32", tuple(p.shape)) for name, p in held.items()}
    is_meta = any(p.is_meta for p in held.values())
    return shapes, {} if is_meta else {name: p.detach() for name, p in held.items()}


def check_files(spec: ModelSpec, moe: MoESpec) -> list[str]:
    """What transformers saves and what it holds is grouped whole; each form is one or is published.

    Values count: those of a file's expert are those of the module's, and the block's other tensors
    have the names and values that renames say.
    transformers 4.57 shows one form of each type; the others are shown by the newest.
    """
    if spec.model_type in FILE_EXCEPTIONS or spec.model_type in UNBUILT:
        return []
    config, saved, count, values = save_instance(spec.model_type)
    held, parameters = list_held(spec.model_type)
    wrong = [f"saved: {text}" for text in _check(moe, config, saved, count)]
    wrong += [] if OLD else [f"held: {text}" for text in _check(moe, config, held, count)]
    lists = _list_published(spec)
    wrong += [text for name in lists for text in _check_published(moe, name)]
    for number, form in enumerate(moe.files):
        alone = dataclasses.replace(moe, files=(form,))
        shown = [_check(alone, config, shapes, count) for shapes in (saved, held)]
        if all(shown) and not OLD and all(_check_published(alone, name) for name in lists):
            wrong.append(f"form {number} is neither saved nor held: {shown}")
        found = [*check_form(moe, form), *check_table(spec, form)]
        for problem, tensors in zip(shown, (values, parameters), strict=True):
            if not problem and tensors:
                is_saved = tensors is values
                with _asked(alone, config):
                    groups = group_expert_tensors(config, saved if is_saved else held).groups
                found += check_values(spec, moe, form, groups, tensors)
                found += check_renames(spec, form, groups, tensors) if is_saved else []
        if spec.model_type in SHOWN_BY_WHOLE and not OLD:
            found += _check_whole(spec, alone)
        wrong += [f"form {number}: {text}" for text in found]
    return wrong


def _check_whole(spec: ModelSpec, alone: MoESpec) -> list[str]:
    """Renames in the files of the model around a text decoder."""
    whole = dataclasses.replace(spec, model_type=SHOWN_BY_WHOLE[spec.model_type], moe_spec=alone)
    config, saved, count, values = save_instance(whole.model_type)
    if _check(alone, config, saved, count):
        return []  # another form's
    with _asked(alone, config):
        groups = group_expert_tensors(config, saved).groups
    return check_renames(whole, alone.files[0], groups, values)


def _list_published(spec: ModelSpec) -> list[str]:
    """Names of the hand-made lists of a type, or of a model around it."""
    own = [name for name in PUBLISHED if name.split(",")[0] == spec.model_type]
    around = [
        name
        for name, (config, _) in PUBLISHED.items()
        if config.get("text_config", {}).get("model_type") == spec.model_type
    ]
    return own + around


def _check_published(moe: MoESpec, name: str) -> list[str]:
    """A hand-made list is grouped whole, each tensor as the projection that its name says."""
    values, stored = PUBLISHED[name]
    config = {**values, "model_type": name.split(",")[0]}
    with _asked(moe, config):
        try:
            found = group_expert_tensors(config, stored)
        except AssayError as exc:
            return [f"published {name}: {exc.found}"]
    said = {t: group.projection for group in found.groups for t in group.tensors.values()}
    if said != {tensor: find_projection(tensor) for tensor in stored}:
        return [f"published {name}: other projections"]
    return [f"published {name}: {t} is unaccounted for" for t in found.unaccounted]


@contextlib.contextmanager
def _asked(moe: MoESpec, config: dict[str, Any]) -> Iterator[None]:
    """Let the type that a config leads to have this section: the text decoder's, where it is."""
    name = find_model_type(config)
    assert name is not None
    with registered(dataclasses.replace(get_spec(name), moe_spec=moe)):
        yield


def _check(
    moe: MoESpec,
    config: dict[str, Any],
    shapes: Stored,
    count: int,
) -> list[str]:
    with _asked(moe, config):
        try:
            found = group_expert_tensors(config, shapes)
        except AssayError as exc:
            return [exc.found]
    names = [name for group in found.groups for name in group.tensors.values()]
    if sum(prod(shapes[name][1]) for name in names) != count:
        return ["other values than the experts'"]
    return [f"{name} is unaccounted for" for name in found.unaccounted[:2]]
