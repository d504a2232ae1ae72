"""The expert tensors of a checkpoint, from its config and its tensors' names and shapes alone.

A type's spec says under which names its experts are published. A quantized checkpoint keeps those
names and adds endings (`weight_scale`, `qweight`, `_blocks`), which are grouped with the weight
that they belong to. Nothing is guessed: what no published form accounts for is listed, and what
contradicts the config is an error. Nothing here imports torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from assay.errors import ConfigError, WeightError
from assay.spec.config import ModelConfig
from assay.spec.expert_names import UnsupportedExpertsError
from assay.spec.expert_shapes import check_shapes, read_sizes
from assay.spec.experts import Experts
from assay.spec.matching import find_model_type
from assay.spec.model_spec import ConfigSpec, ModelSpec
from assay.spec.moe import ExpertFiles, MoESpec
from assay.spec.registry import get_spec

__all__ = ["ExpertFilesFound", "ExpertGroup", "group_expert_tensors"]

Shapes = Mapping[str, tuple[int, ...]]
_LAYER = r"(?P<prefix>(?:.*\.)?)(?P<layer>\d+)\."
# What may stand behind a weight's own name: quantized forms, and a bias.
_QUANTIZED = (
    *("qweight", "qzeros", "scales", "g_idx"),
    *("weight_packed", "weight_scale", "weight_scale_2", "weight_scale_inv", "weight_zero_point"),
    *("weight_g_idx", "weight_shape", "weight_global_scale", "input_scale", "input_global_scale"),
    "pre_quant_scale",
)
_WEIGHTS = frozenset({"weight", "qweight", "weight_packed", "blocks", "packed"})
_MODULE_PARTS = ("weight", "bias", *_QUANTIZED)
_FUSED_PARTS = (
    *("_bias", "_blocks", "_scales", "_scale", "_scale_inv", "_scale_2", "_packed", "_zero_point"),
    *("_shape", "_global_scale", "_weight_scale", "_weight_scale_2", "_input_scale"),
    *(f".{part}" for part in _MODULE_PARTS),
)


@dataclass(frozen=True, kw_only=True)
class ExpertGroup:
    """The tensors of one projection: of one expert, or of all where they are stacked.

    stack: what stands before the layer's number, such as "model.layers.". projection: "gate",
    "up", "gate_up" (packed) or "down". expert: None for all. tensors: what each is ("weight",
    "bias", or a quantized part) -> its name in the file.
    """

    stack: str
    layer: int
    projection: str
    expert: int | None
    tensors: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class ExpertFilesFound:
    """The expert tensors of a checkpoint.

    model_type: whose spec was read. files: the published form; None where there are no experts.
    layers: with experts. beyond: those of them past the config's last layer, as for the
    prediction of several tokens. unaccounted: tensors among the experts that no part of the form
    explains.
    """

    model_type: str
    files: ExpertFiles | None
    num_experts: int
    layers: tuple[int, ...]
    groups: tuple[ExpertGroup, ...]
    beyond: tuple[int, ...] = ()
    unaccounted: tuple[str, ...] = ()


def group_expert_tensors(
    config: Mapping[str, Any], tensors: Shapes, *, where: str = "checkpoint"
) -> ExpertFilesFound:
    """Group a checkpoint's expert tensors by stack, layer, projection and expert.

    config: the parsed config.json. tensors: name -> shape, as stored. where: names the checkpoint
    in errors. Raises UnsupportedExpertsError where no spec knows the type, WeightError where
    experts are missing, too many, or of another shape than the config says, and BrokenSpecError
    where the type's specs.py can't be imported.
    """
    spec, moe = _find_spec(config)
    forms = _rank_forms(moe, tensors)
    if not forms:
        return ExpertFilesFound(
            model_type=spec.model_type, files=None, num_experts=0, layers=(), groups=()
        )
    failed: WeightError | None = None
    for form, matched in forms:  # forms of one name differ in their shapes
        try:
            return _group(spec, moe, config, tensors, form, matched, where)
        except WeightError as exc:
            failed = failed or exc
    assert failed is not None
    raise failed


def _group(
    spec: ModelSpec,
    moe: MoESpec,
    config: Mapping[str, Any],
    tensors: Shapes,
    form: ExpertFiles,
    matched: list[_Match],
    where: str,
) -> ExpertFilesFound:
    groups = _gather(matched)
    beyond: set[int] = set()
    count = 0
    for stack in dict.fromkeys(group.stack for group in groups):
        own = tuple(group for group in groups if group.stack == stack)
        values = _find_text(config, stack)
        text = ModelConfig(values, _find_config_spec(values, spec), where=where)
        num_layers = _count_layers(text, moe)
        layers = tuple(sorted({group.layer for group in own}))
        _check_layers(moe, values, layers, num_layers, where)
        sizes = read_sizes(moe, text, layers)
        _check_complete(own, form, sizes, where)
        check_shapes(form, text, sizes, own, tensors)
        count = max(count, *(int(experts.count) for experts in sizes.values()))
        beyond |= {layer for layer in layers if layer >= num_layers}
    return ExpertFilesFound(
        model_type=spec.model_type,
        files=form,
        num_experts=count,
        layers=tuple(sorted({group.layer for group in groups})),
        groups=groups,
        beyond=tuple(sorted(beyond)),
        unaccounted=_list_unaccounted(moe, form, tensors, {m.name for m in matched}),
    )


def _find_spec(config: Mapping[str, Any]) -> tuple[ModelSpec, MoESpec]:
    name = find_model_type(config)
    spec = get_spec(name) if name is not None else None
    if spec is None or spec.moe_spec is None:
        told = config.get("model_type")
        raise UnsupportedExpertsError(
            f"model type {told!r}",
            "no spec says where its experts are" if spec is None else "its spec has no experts",
            next_step="Register it: write models/<model_type>/specs.py with a moe_spec that names "
            "its files, as docs/registry.md says.",
        )
    return spec, spec.moe_spec


def _find_text(config: Mapping[str, Any], stack: str) -> Mapping[str, Any]:
    """The part of a config that describes a stack's decoder: `talker.` has `talker_config`."""
    for part in stack.split("."):
        inner = config.get(f"{part}_config")
        if part and isinstance(inner, Mapping):
            return _find_text(inner, "")
    for name in ("text_config", "llm_config", "language_config", "thinker_config"):
        if isinstance(config.get(name), Mapping):
            return _find_text(config[name], "")
    return config


def _find_config_spec(values: Mapping[str, Any], spec: ModelSpec) -> ConfigSpec:
    """The defaults of the text decoder's own type where it is registered, else of the model's."""
    name = find_model_type(values)
    own = get_spec(name).config_spec if name is not None else None
    return own or spec.config_spec or ConfigSpec(defaults={})


@dataclass(frozen=True)
class _Match:
    """One tensor of a form."""

    name: str
    stack: str
    layer: int
    projection: str
    expert: int | None
    part: str


def _rank_forms(moe: MoESpec, tensors: Shapes) -> list[tuple[ExpertFiles, list[_Match]]]:
    """The published forms that account for most tensors, in the spec's order."""
    found = []
    for form in moe.files:
        patterns = _compile(form)
        matched = [m for name in tensors if (m := _match(name, patterns)) is not None]
        if matched:
            found.append((form, matched))
    most = max((len(matched) for _, matched in found), default=0)
    return [(form, matched) for form, matched in found if len(matched) == most]


def _compile(form: ExpertFiles) -> list[tuple[re.Pattern[str], str]]:
    projections = ("gate", "up") if len(form.gate_up) == 2 else ("gate_up",)
    if len(form.gate_up) == 1 and not form.layout.has_gate:
        projections = ("up",)
    named = [*zip(form.gate_up, projections, strict=True), (form.down, "down")]
    return [(_compile_name(name), projection) for name, projection in named]


def _compile_name(name: str) -> re.Pattern[str]:
    """A name in a layer, whatever stands before the layer's number and behind the name."""
    is_module = name.endswith(".weight")
    stem = re.escape(name.removesuffix(".weight")).replace(r"\{expert\}", r"(?P<expert>\d+)")
    parts = [f".{part}" for part in _MODULE_PARTS] if is_module else ["", *_FUSED_PARTS]
    ending = "|".join(re.escape(part) for part in sorted(parts, key=len, reverse=True))
    return re.compile(rf"{_LAYER}{stem}(?P<part>{ending})")


def _match(name: str, patterns: list[tuple[re.Pattern[str], str]]) -> _Match | None:
    for pattern, projection in patterns:
        found = pattern.fullmatch(name)
        if found is not None:
            expert = found.groupdict().get("expert")
            return _Match(
                name=name,
                stack=found["prefix"],
                layer=int(found["layer"]),
                projection=projection,
                expert=None if expert is None else int(expert),
                part=found["part"].lstrip("._") or "weight",
            )
    return None


def _gather(matched: list[_Match]) -> tuple[ExpertGroup, ...]:
    groups: dict[tuple[str, int, str, int | None], dict[str, str]] = {}
    for match in matched:
        key = match.stack, match.layer, match.projection, match.expert
        groups.setdefault(key, {})[match.part] = match.name
    ordered = sorted(groups, key=lambda key: (key[0], key[1], -1 if key[3] is None else key[3]))
    return tuple(
        ExpertGroup(
            stack=stack,
            layer=layer,
            projection=projection,
            expert=expert,
            tensors=groups[stack, layer, projection, expert],
        )
        for stack, layer, projection, expert in ordered
    )


def _check_layers(
    moe: MoESpec,
    config: Mapping[str, Any],
    layers: tuple[int, ...],
    num_layers: int,
    where: str,
) -> None:
    expected = set(moe.sparse_layers.find(config, num_layers))
    missing = sorted(expected - set(layers))
    more = sorted(layer for layer in layers if layer < num_layers and layer not in expected)
    for wrong, what in ((missing, "has no experts, but the config says so"), (more, "has experts")):
        if wrong:
            raise WeightError(
                where,
                f"layer {wrong[0]} {what}" + (f" (and {len(wrong) - 1} more)" * (len(wrong) > 1)),
                expected=f"experts in layers {_list_short(sorted(expected))}",
                next_step="Complete the checkpoint, or correct config.json.",
            )


def _check_complete(
    groups: tuple[ExpertGroup, ...],
    form: ExpertFiles,
    sizes: Mapping[int, Experts],
    where: str,
) -> None:
    """Every layer has every projection, of the experts 0 to the last where they lie apart.

    Null experts need no tensors.
    """
    found: dict[tuple[int, str], set[int | None]] = {}
    for group in groups:
        if _WEIGHTS & set(group.tensors):
            found.setdefault((group.layer, group.projection), set()).add(group.expert)
    apart = any(group.expert is not None for group in groups)
    for layer, experts in sizes.items():
        count, nulls = int(experts.count), int(experts.null_count)
        whole: set[int | None] = set(range(count)) if apart else {None}
        for projection in [projection for _, projection in _compile(form)]:
            own = found.get((layer, projection), set())
            lacking = sorted(e for e in whole - own if e is not None)
            more = sorted(e for e in own - whole if e is not None and e >= count + nulls)
            if lacking or not own:
                which = f" of expert {lacking[0]}" if lacking else ""
                rest = f" (and of {len(lacking) - 1} more)" if len(lacking) > 1 else ""
                raise WeightError(
                    where,
                    f"layer {layer} lacks {projection}{which}{rest}",
                    expected=f"{count} experts, as the config says",
                    next_step="The checkpoint is incomplete, or config.json another model's.",
                )
            if more:
                raise WeightError(
                    where,
                    f"layer {layer} has {projection} of expert {more[0]}",
                    expected=f"{count} experts, as the config says",
                    next_step="The checkpoint or its config.json is another model's.",
                )


def _list_unaccounted(
    moe: MoESpec, form: ExpertFiles, tensors: Shapes, known: set[str]
) -> tuple[str, ...]:
    """Tensors that stand among the experts, or begin as one of theirs does, and aren't matched.

    What the spec names besides (a bias of the router that lies there) is accounted for.
    """
    stems = set()
    for name in (*form.gate_up, form.down):
        place = name.split("{expert}")[0] if "{expert}" in name else name.removesuffix(".weight")
        parts = place.rstrip(".").split(".")
        stems.add(".".join(parts[: parts.index("experts") + 1]) if "experts" in parts else place)
    among = re.compile(_LAYER + "(?:" + "|".join(map(re.escape, sorted(stems))) + r")(?:[._].*)?")
    named = tuple(f".{name.rsplit('.', 1)[-1]}" for name in _list_names(moe))
    named += tuple(f"{file}" for _, file in form.renames)
    return tuple(
        name
        for name in tensors
        if name not in known
        and among.fullmatch(name)
        and not name.removesuffix(".weight").endswith(named)
    )


def _list_names(moe: MoESpec) -> Iterator[str]:
    """Tensors of the router and of the experts' norms that a spec names."""
    router, experts = moe.router, moe.experts
    for owner in (router, getattr(router, "by_score", None), experts):
        for field in ("choice_bias", "scale_name", "expert_scale", "output_bias", "channel_scale"):
            if isinstance(value := getattr(owner, field, None), str):
                yield value
        if (norm := getattr(owner, "norm", None)) is not None and norm.name:
            yield norm.name


def _count_layers(config: ModelConfig, moe: MoESpec) -> int:
    for name in ("num_layers", "num_hidden_layers", "n_layer", "n_layers"):
        if config.get(name, None) is not None:
            return config.get_size(name)
    types = config.get(moe.sparse_layers.types_key, None) if moe.sparse_layers.types_key else None
    if isinstance(types, (list, tuple, str)) and types:
        return len(types)
    raise ConfigError(
        config.where, "num_hidden_layers isn't there", expected="the number of layers"
    )


def _list_short(numbers: list[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:8])
    return shown + (", ..." if len(numbers) > 8 else "")
