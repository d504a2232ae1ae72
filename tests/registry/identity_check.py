"""A type's names, releases and config defaults against the installed transformers."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import re
from typing import Any

from packaging.version import Version
from transformers.models.auto import configuration_auto, modeling_auto

from assay.errors import ConfigError
from assay.spec import ModelSpec
from assay.spec.expert_config import read_stack
from assay.spec.moe import MoESpec
from assay.spec.registry import get_spec, has_spec
from assay.spec.resolve import Context
from tests.registry.blocks import MOE_TYPES, find_moe_blocks
from tests.registry.tiny import OLD, VERSION, find_config_class, has_type

__all__ = [
    "check_architectures",
    "check_defaults",
    "check_release",
    "check_text_part",
    "find_text_spec",
    "list_config_keys",
]


def check_release(spec: ModelSpec) -> list[str]:
    """The type and its block classes exist from min_transformers_version on, and not before."""
    if spec.modeling_source == "remote_code":
        return [f"{spec.model_type} is no remote code"] if has_type(spec.model_type) else []
    there = has_type(spec.model_type)
    since = Version(spec.min_transformers_version) <= VERSION
    if there != since:
        return [f"{spec.model_type}: there {there}, said to be there {since}"]
    if spec.moe_spec is None or not there:
        return []
    classes = {name.lower() for name in vars(_find_modeling(spec.model_type))}
    return [f"no class {name}" for name in spec.moe_spec.block_names if name.lower() not in classes]


def _find_modeling(model_type: str) -> Any:
    """The module that holds a type's model."""
    if model_type in MOE_TYPES:
        return importlib.import_module(type(find_moe_blocks(model_type)[0].module).__module__)
    name = configuration_auto.model_type_to_module_name(model_type)
    return importlib.import_module(f"transformers.models.{name}.modeling_{name}")


def check_architectures(spec: ModelSpec) -> list[str]:
    """Each is a class of transformers for the type; those for causal models are all there."""
    model_type = spec.model_type
    if not has_type(model_type):
        return []
    known = {name for table in _MAPPINGS for name in _list_names(table, model_type)}
    if not known:  # a part of a larger model
        known = set(vars(_find_modeling(model_type)))
    wrong = [f"no architecture {name}" for name in spec.architectures if name not in known]
    for table in ("MODEL_FOR_CAUSAL_LM", "MODEL_FOR_IMAGE_TEXT_TO_TEXT"):
        missing = _list_names(table, model_type) - set(spec.architectures)
        wrong += [f"{name} isn't among the architectures" for name in sorted(missing)]
    return wrong if spec.architectures else ["no architecture at all"]


_MAPPINGS = tuple(
    name.removesuffix("_MAPPING_NAMES")
    for name in vars(modeling_auto)
    if name.endswith("_MAPPING_NAMES") and not name.startswith("CONFIG_")
)


@functools.cache
def _list_names(mapping: str, model_type: str) -> set[str]:
    names = getattr(modeling_auto, f"{mapping}_MAPPING_NAMES").get(model_type, ())
    return {names} if isinstance(names, str) else set(names)


PARTS = {"qwen3_omni_moe_thinker": "the file's other blocks are the talker's"}
# As transformers' AutoConfig does.
BECOMES = {"mistral": (("layer_types", "ministral"),)}


def check_text_part(spec: ModelSpec) -> list[str]:
    """A model around a text decoder has the same experts as that decoder's own type.

    Its block names may be more: those of its other parts, then all of them.
    """
    wrong = []
    if spec.becomes != BECOMES.get(spec.model_type, ()):
        wrong.append(f"becomes {spec.becomes}")
    texts = list_text_types(spec.model_type)
    for name in (name for name in texts if has_spec(name)):
        theirs, own = get_spec(name).moe_spec, spec.moe_spec
        if theirs is None or own is None:
            wrong += [] if theirs is own else [f"moe_spec isn't that of {name}"]
            continue
        more = {*own.block_names} - {*theirs.block_names}
        if missing := {*theirs.block_names} - {*own.block_names}:
            wrong.append(f"the text's blocks {sorted(missing)} are missing")
        if dataclasses.replace(own, block_names=theirs.block_names) != theirs:
            wrong.append(f"moe_spec isn't that of {name}")
        if spec.model_type in PARTS:
            continue
        if more != _list_other_blocks(spec) - {*theirs.block_names}:
            wrong.append(f"beside the text's, its blocks are {sorted(more)}")
    part = spec.text_part
    if part is not None and has_type(spec.model_type):
        inner = getattr(find_config_class(spec.model_type)(), part.config_key, None)
        if getattr(inner, "model_type", None) != part.model_type:
            wrong.append(f"{part.config_key} isn't a {part.model_type}")
    is_whole = any(has_spec(n) and get_spec(n).decoder_spec is not None for n in texts)
    if part is None and spec.decoder_spec is None and is_whole:
        wrong.append("it says nothing of its text decoder")
    return wrong


def _list_other_blocks(spec: ModelSpec) -> set[str]:
    """The classes of the modeling file that call themselves a mixture of experts."""
    return {
        name
        for name, value in vars(_find_modeling(spec.model_type)).items()
        if isinstance(value, type) and re.search(r"(?:SparseMoeBlock|MoE)$", name)
    }


@functools.cache
def list_text_types(model_type: str) -> tuple[str, ...]:
    """The type of the text decoder inside a type's config, where that is another one."""
    if not has_type(model_type):
        return ()
    text = find_config_class(model_type)().get_text_config()
    name = getattr(text, "model_type", "")
    return (name,) if name and name != model_type else ()


def find_text_spec(spec: ModelSpec, config: Any) -> ModelSpec:
    """The spec of the text part, whose defaults hold for the text config."""
    name = config.model_type
    return get_spec(name) if has_spec(name) and spec.config_spec is None else spec


def check_defaults(spec: ModelSpec, moe: MoESpec) -> list[str]:
    """A file that leaves every key out means what the config class's own defaults mean."""
    if not has_type(spec.model_type):
        return []
    config_spec = spec.config_spec
    if config_spec is None:
        texts = list_text_types(spec.model_type)
        known = any(has_spec(name) and get_spec(name).config_spec is not None for name in texts)
        return [] if known or OLD else ["no config_spec, and no text decoder's"]
    wrong = []
    values, written = _read_default_config(spec.model_type)
    for key, default in config_spec.defaults.items():
        if key not in written and key not in values:
            # A key of a later release, or under a later name.
            wrong += [] if OLD else [f"the config has no {key}"]
        elif not _is_default(default, (values.get(key, _NONE), written.get(key, _NONE))):
            wrong.append(f"{key} is {default!r}, not {written.get(key, values.get(key))!r}")
    wrong += [] if OLD else _check_aliases(spec)
    wrong += _check_empty_file(spec, moe, written)
    return wrong


def _is_default(default: Any, found: tuple[Any, ...]) -> bool:
    """Also where the class replaces None by a list of its own, or holds a config of its own.

    What those mean is compared by _check_empty_file.
    """
    if default is None and any(isinstance(value, list) for value in found):
        return True
    return default in found or (default == {} and any(isinstance(v, dict) for v in found))


_NONE = object()
_LAYERS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers")


@functools.cache
def _read_default_config(model_type: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A config class's attributes by default, and what a file says with every key written."""
    config = _find_class(model_type)()
    return dict(vars(config)), json.loads(config.to_json_string(use_diff=False))


@functools.cache
def _write_small_config(model_type: str) -> dict[str, Any] | None:
    """The same with six layers; None where a class can't be built from so little."""
    cls = _find_class(model_type)
    name = next(name for name in _LAYERS if hasattr(cls(), name))
    try:
        config = cls(**{name: 6})
    except Exception:  # noqa: BLE001  (whatever transformers raises)
        return None
    return {**json.loads(config.to_json_string(use_diff=False)), name: 6}


def list_config_keys(model_type: str) -> frozenset[str]:
    """The keys of a type's config class."""
    if not has_type(model_type):
        return frozenset()
    values, written = _read_default_config(model_type)
    return frozenset({*values, *written})


def _find_class(model_type: str) -> Any:
    """The config class of a type; of its text decoder, where that has no spec of its own."""
    cls = find_config_class(model_type)
    text = cls().get_text_config()
    return cls if has_spec(text.model_type) else type(text)


def _check_aliases(spec: ModelSpec) -> list[str]:
    """Each is one of the class's own, and none is missing for a key that has a default here."""
    cls = _find_class(spec.model_type)
    config_spec = spec.config_spec
    assert config_spec is not None
    own = {frozenset(pair) for pair in getattr(cls, "attribute_map", {}).items()}
    said = {frozenset(pair) for pair in config_spec.aliases.items()}
    wrong = [f"no alias {sorted(pair)}" for pair in said - own]
    needed = {pair for pair in own if pair & config_spec.defaults.keys()}
    wrong += [f"the alias {sorted(pair)} is missing" for pair in needed - said]
    canonical = set(config_spec.aliases) & set(config_spec.defaults)
    return wrong + [f"{name} is an alias, and has a default" for name in canonical]


def _check_empty_file(spec: ModelSpec, moe: MoESpec, written: dict[str, Any]) -> list[str]:
    """Facts and sparse layers of a file with no key but the number of layers."""
    wrong = []
    assert spec.config_spec is not None
    for full in (written, _write_small_config(spec.model_type)):
        types = moe.sparse_layers.types_key
        if full is None or (types in full and len(full[types] or ()) < _count(full)):
            continue  # a class that has a list of its own, whatever the number
        keys = [name for name in _LAYERS if name in full] or [types]
        empty = {name: full[name] for name in keys if name is not None}
        found, wanted = (_read(spec, moe, file) for file in (empty, full))
        if found != wanted:
            wrong.append(f"an empty file gives {found}, not {wanted}"[:300])
    return wrong


def _count(file: dict[str, Any]) -> int:
    return next((file[name] for name in _LAYERS if name in file), 0)


def _read(spec: ModelSpec, moe: MoESpec, file: dict[str, Any]) -> Any:
    """The layers with experts, and their facts; or what is missing in the file."""
    stack = read_stack(spec, moe, file, "", "config.json")
    facts = (moe.router, moe.experts, moe.shared, moe.second_experts, moe.output_norm)
    try:
        return stack.layers, [Context(stack.text, layer).resolve(facts) for layer in stack.layers]
    except ConfigError as exc:  # a key without which nobody can build the model
        return stack.layers, exc.found
