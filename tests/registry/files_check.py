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

from assay.errors import AssayError
from assay.spec import ModelSpec, group_expert_tensors
from assay.spec.moe import MoESpec
from assay.spec.registry import _SPECS
from tests.registry.tiny import OLD, UNBUILT, build
from tests.registry.truth import find_expert_parameters

__all__ = ["FILE_EXCEPTIONS", "check_files", "registered", "save_instance"]

Stored = dict[str, tuple[str, tuple[int, ...]]]  # name -> dtype, shape

# Types whose files can't be compared, with the reason.
FILE_EXCEPTIONS = (
    {"glm4v_moe_text": "transformers 4.57 saves a model type that nobody has"} if OLD else {}
)


@functools.cache
def save_instance(model_type: str) -> tuple[dict[str, Any], Stored, int]:
    """A tiny instance's saved config, its tensors, and how many values its experts hold."""
    model: Any = build(model_type)
    # jetmoe's attention has experts too, which are no feed-forward block's.
    named = {name for name in find_expert_parameters(model) if "attention" not in name}
    held = {id(p): p for n, p in model.named_parameters() if n in named}
    stored: Stored = {}
    count = sum(p.numel() for p in held.values())
    if any(p.is_meta for p in model.parameters()):  # which can't be saved
        stored = {name: ("F32", tuple(p.shape)) for name, p in model.state_dict().items()}
        return model.config.to_dict(), stored, count
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        for file in Path(folder).glob("*.safetensors"):
            with safe_open(file, "pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118  (it is no mapping)
                    part = tensors.get_slice(name)
                    stored[name] = part.get_dtype(), tuple(part.get_shape())
        config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    return config, stored, count


@contextlib.contextmanager
def registered(spec: ModelSpec) -> Iterator[None]:
    """Let the registry have this spec for its type for a while."""
    before = _SPECS[spec.model_type]
    _SPECS[spec.model_type] = spec
    try:
        yield
    finally:
        _SPECS[spec.model_type] = before


def check_files(spec: ModelSpec, moe: MoESpec) -> list[str]:
    """What transformers saves is grouped whole, and each form is what it saves or what it holds.

    transformers 4.57 shows one form of each type; the others are shown by the newest.
    """
    if spec.model_type in FILE_EXCEPTIONS or spec.model_type in UNBUILT:
        return []
    config, saved, count = save_instance(spec.model_type)
    held: Stored = {
        n: ("F32", tuple(p.shape)) for n, p in build(spec.model_type).named_parameters()
    }
    wrong = [f"saved: {text}" for text in _check(spec, moe, config, saved, count)]
    for number, form in enumerate(moe.files):
        alone = dataclasses.replace(moe, files=(form,))
        shown = [_check(spec, alone, config, shapes, count) for shapes in (saved, held)]
        if all(shown) and not OLD and (spec.model_type, number) not in UNSHOWN:
            wrong.append(f"form {number} is neither saved nor held: {shown}")
    return wrong


def _check(
    spec: ModelSpec,
    moe: MoESpec,
    config: dict[str, Any],
    shapes: Stored,
    count: int,
) -> list[str]:
    with registered(dataclasses.replace(spec, moe_spec=moe)):
        try:
            found = group_expert_tensors(config, shapes)
        except AssayError as exc:
            return [exc.found]
    names = [name for group in found.groups for name in group.tensors.values()]
    if sum(prod(shapes[name][1]) for name in names) != count:
        return ["other values than the experts'"]
    return [f"{name} is unaccounted for" for name in found.unaccounted[:2]]


# Forms of files that the installed transformers neither saves nor holds: (type, which).
UNSHOWN = {
    ("deepseek_ocr2_text", 0),
    ("ernie4_5_vl_moe_text", 1),
    ("glm4v_moe_text", 0),
    ("inkling_text", 0),
    ("llama4", 1),
    ("llama4_text", 1),
    ("minimax_m3_vl_text", 0),
    ("mistral4", 1),
    ("qwen3_omni_moe_talker_text", 0),
    ("qwen3_vl_moe", 0),
    ("qwen3_vl_moe_text", 0),
    ("step3p5", 0),
}
