"""What a spec's names say of each other: its layouts, its experts' names, its files, its keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from packaging.version import Version

from assay.spec import ExpertFiles, ModelConfig, ModelSpec, get_specs
from assay.spec.markers import Key, Marker
from assay.spec.moe import MoESpec
from assay.spec.resolve import Context
from tests.registry.blocks import MOE_TYPES, list_own_blocks
from tests.registry.identity_check import list_config_keys
from tests.registry.tiny import OLD

__all__ = ["GROUPED", "check_consistent_names", "check_keys", "check_presence", "list_keys"]

# Validated for grouped export; whoever adds one says so here and in the table.
GROUPED = (
    "deepseek_v3", "gemma4", "gemma4_text", "mixtral", "nemotron_h", "qwen2_moe", "qwen3_moe",
    "qwen3_next",
)  # fmt: skip
# Types of transformers whose published checkpoints come with code of their own too.
ALSO_REMOTE = ("nemotron_h",)
PER_EXPERT = ("iterable", "by_projection")
OF_FUSED = ("gate_proj", "up_proj")  # what engines call the halves of a packed tensor
# Not gate, up, down: as the class that splits the tensors has them.
OTHER_ORDER = {"dbrx": ("w1_linear", "w2_linear", "v1_linear")}


def check_presence(spec: ModelSpec) -> list[str]:
    """A type with blocks has a moe_spec; grouped export is for those of the list."""
    wrong = []
    if spec.moe_spec is None and spec.model_type in MOE_TYPES:
        wrong.append("its instance has experts, and it has no moe_spec")
    grouped = spec.export_spec is not None and spec.export_spec.grouped_expert_export
    if grouped != (spec.model_type in GROUPED):
        wrong.append(f"grouped_expert_export is {grouped}")
    return wrong


def check_consistent_names(spec: ModelSpec, moe: MoESpec) -> list[str]:
    """Layouts, names and the pair of gate and up agree with each other and with files."""
    wrong = []
    releases = [since for since, _ in moe.layouts if since[0].isdigit()]
    others = [s for s in get_specs() if s.moe_spec is not None and _share_a_name(moe, s.moe_spec)]
    first = min((s.min_transformers_version for s in (spec, *others)), key=Version)
    if not releases or releases[0] != first:
        wrong.append(f"the first layout's release isn't {first}")
    for other in (s.moe_spec for s in others):
        facts = ("expert_linear_names", "gate_up_pair", "layouts", "unsupported")
        if any(getattr(other, name) != getattr(moe, name) for name in facts):
            wrong.append("another type of the same block has other facts")
    if releases != sorted(set(releases), key=Version):
        wrong.append(f"releases aren't in order: {releases}")
    for _, layout in moe.layouts:
        if layout.has_bias != moe.experts.bias and not isinstance(moe.experts.bias, Marker):
            wrong.append(f"a layout's has_bias is {layout.has_bias}")
        if layout.has_gate != moe.experts.gated:
            wrong.append(f"a layout's has_gate is {layout.has_gate}")
    if (moe.layouts[0][0] == "remote_code") != (spec.model_type in ALSO_REMOTE):
        wrong.append(f"the first layout is {moe.layouts[0][0]}'s")
    elif moe.layouts[0][0] == "remote_code" and moe.layout != moe.files[0].layout:
        wrong.append(f"the remote code's layout isn't {moe.files[0].layout}")
    if moe.layout.kind not in PER_EXPERT:
        wanted = OF_FUSED if moe.layout.has_gate else None
        return wrong + ([] if moe.gate_up_pair == wanted else [f"the pair is {moe.gate_up_pair}"])
    return wrong + _check_per_expert(spec, moe)


def _share_a_name(moe: MoESpec, other: MoESpec) -> bool:
    return not {*moe.block_names}.isdisjoint(other.block_names)


def _check_per_expert(spec: ModelSpec, moe: MoESpec) -> list[str]:
    """Names of linears against those of files, whose values say which is gate and which is up."""
    form = next((f for f in moe.files if f.layout.kind == "iterable"), moe.files[0])
    suffix = "_linear" if moe.layouts[0][0] == "split" else ""
    *first, down = (f"{name}{suffix}" for name in _list_last(form))
    wrong = []
    if moe.gate_up_pair != (tuple(first) if len(first) == 2 else None):
        wrong.append(f"the pair is {moe.gate_up_pair}, files have {first}")
    if moe.expert_linear_names != OTHER_ORDER.get(spec.model_type, (*first, down)):
        wrong.append(f"names are {moe.expert_linear_names}, files have {(*first, down)}")
    # What is split is no module of an installed release, which would show how it lies.
    wanted = dataclasses.replace(form.layout, kind="by_projection")
    is_split = moe.layouts[0][0] == "split"
    return [*wrong, f"the layout isn't {wanted}"] if is_split and moe.layout != wanted else wrong


def _list_last(form: ExpertFiles) -> list[str]:
    """The last part of each name of a form: gate, up, down."""
    return [name.removesuffix(".weight").rpartition(".")[2] for name in (*form.gate_up, form.down)]


def check_keys(spec: ModelSpec, moe: MoESpec, variants: tuple[str, ...]) -> list[str]:
    """Every key that a fact or its rule reads has a default, where the config class has the key."""
    if OLD or spec.config_spec is None:
        return []
    known = list_config_keys(spec.model_type)
    said = spec.config_spec.defaults.keys() | spec.config_spec.aliases.keys()
    read = {*list_keys(moe)}.union(*(_list_read(spec, moe, variant) for variant in variants))
    return [f"{key} has no default" for key in sorted(read & known - said)]


def _list_read(spec: ModelSpec, moe: MoESpec, variant: str) -> set[str]:
    """The keys that rules read in a tiny instance's config, by whatever name."""
    read: set[str] = set()

    class Watched(ModelConfig):
        def get(self, name: str, *default: Any) -> Any:
            read.add(name)
            return super().get(name, *default)

    parts = (moe.router, moe.experts, moe.shared, moe.second_experts)
    for block in list_own_blocks(spec, moe, variant):
        values = block.config.to_dict()
        assert spec.config_spec is not None
        config = Watched(values, spec.config_spec, where=spec.model_type)
        Context(config, block.layer).resolve(parts)
    return read


def list_keys(part: Any) -> list[str]:
    """The config keys that a part of a spec names, each once."""
    return list(dict.fromkeys(_find_keys(part)))


def _find_keys(value: Any) -> Iterator[str]:
    if isinstance(value, Key):
        yield value.name
    elif isinstance(value, tuple):
        for item in value:
            yield from _find_keys(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            inner = getattr(value, field.name)
            if field.name.endswith("_key") and isinstance(inner, str):
                yield inner
            else:
                yield from _find_keys(inner)
