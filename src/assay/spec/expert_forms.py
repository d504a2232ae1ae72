"""Which tensor of a file is which expert's, by the names under which a type publishes them.

Nothing here imports torch.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from assay.spec.expert_parts import FUSED_ENDINGS, MODULE_ENDINGS
from assay.spec.moe import ExpertFiles, MoESpec

__all__ = [
    "LAYER",
    "ExpertGroup",
    "Match",
    "Tensors",
    "gather",
    "is_prediction",
    "list_projections",
    "list_strays",
    "list_unaccounted",
    "rank_forms",
]

Tensors = Mapping[str, tuple[str, tuple[int, ...]]]  # name -> dtype, shape
LAYER = r"(?P<prefix>(?:.*\.)?)(?P<layer>\d+)\."
_ORDER = ("gate", "gate_up", "up", "down")
_AMONG_EXPERTS = re.compile(LAYER + r"(?:.*\.)?experts(?:[._].*)?")


@dataclass(frozen=True, kw_only=True)
class ExpertGroup:
    """The tensors of one projection: of one expert, or of all where they are stacked.

    stack: what stands before the layer's number, such as "model.layers.". projection: "gate",
    "up", "gate_up" (packed) or "down"; the parameter's own name where no spec knows the type.
    expert: None for all. tensors: what each is ("weight",
    "bias", or a quantized part) -> its name in the file. second: of the block's second experts;
    where one list holds both, their numbers go on after the first's.
    """

    stack: str
    layer: int
    projection: str
    expert: int | None
    tensors: Mapping[str, str]
    second: bool = False


@dataclass(frozen=True)
class Match:
    """One tensor of a form."""

    name: str
    stack: str
    layer: int
    projection: str
    expert: int | None
    part: str
    second: bool


def rank_forms(moe: MoESpec, names: Iterable[str]) -> list[tuple[ExpertFiles, list[Match]]]:
    """The published forms that account for most tensors, in the spec's order."""
    names = tuple(names)
    found = []
    for form in moe.files:
        patterns = _compile(form)
        matched = [m for name in names if (m := _match(name, patterns)) is not None]
        if matched:
            found.append((form, matched))
    most = max((len(matched) for _, matched in found), default=0)
    return [(form, matched) for form, matched in found if len(matched) == most]


def list_projections(form: ExpertFiles) -> tuple[str, ...]:
    """What a form's names are: gate and up apart or packed, or up alone; then down."""
    if len(form.gate_up) == 2:
        return ("gate", "up", "down")
    return ("gate_up", "down") if form.layout.has_gate else ("up", "down")


def is_prediction(stack: str) -> bool:
    """Whether a stack of layers predicts tokens after the next ("mtp.layers.", "model.mtp.")."""
    return any(part.startswith("mtp") for part in stack.split("."))


def gather(matched: Iterable[Match]) -> tuple[ExpertGroup, ...]:
    """Put the tensors of a projection together; ordered by stack, layer, expert, projection."""
    groups: dict[tuple[str, int, bool, int, int], ExpertGroup] = {}
    for match in matched:
        number = -1 if match.expert is None else match.expert
        key = match.stack, match.layer, match.second, number, _ORDER.index(match.projection)
        new = ExpertGroup(
            stack=match.stack,
            layer=match.layer,
            projection=match.projection,
            expert=match.expert,
            tensors={},
            second=match.second,
        )
        held = groups.get(key, new)
        groups[key] = replace(held, tensors={**held.tensors, match.part: match.name})
    return tuple(groups[key] for key in sorted(groups))


def list_unaccounted(moe: MoESpec, tensors: Tensors, known: Collection[str]) -> tuple[str, ...]:
    """Tensors that stand among the experts, or begin as one of any form's does, and aren't known.

    Among the experts: somewhere below a name `experts` that no attention holds, or, where a form
    has no such name (granitemoe), a stack of matrices in the same module. What the spec names
    besides (a bias of the router that lies there) is accounted for.
    """
    forms = [*moe.files, *(form.second for form in moe.files if form.second is not None)]
    names = [name for form in forms for name in (*form.gate_up, form.down)]
    stems = {name.split(".{expert}")[0].removesuffix(".weight") for name in names}
    begins = _compile_any(stems, r"(?:[._].*)?")
    bare = {stem.rpartition(".")[0] for stem in stems if "experts" not in stem.split(".")}
    beside = _compile_any(bare, r"\..*")
    named = tuple(f".{name.rsplit('.', 1)[-1]}" for name in _list_names(moe))
    named += tuple(file for form in forms for _, file in form.renames)
    return tuple(
        name
        for name, (_, shape) in tensors.items()
        if name not in known
        and (
            begins.fullmatch(name)
            or (bare and len(shape) > 2 and beside.fullmatch(name))
            or _is_among_experts(name)
        )
        and not name.removesuffix(".weight").endswith(named)
    )


def list_strays(names: Iterable[str], known: Collection[str]) -> tuple[str, ...]:
    """Tensors that stand below a name `experts` that no attention holds, and aren't known."""
    return tuple(name for name in names if name not in known and _is_among_experts(name))


def _is_among_experts(name: str) -> bool:
    return _AMONG_EXPERTS.fullmatch(name) is not None and not re.search(r"attn|attention", name)


def _compile_any(stems: Iterable[str], rest: str) -> re.Pattern[str]:
    """A layer's tensor that begins with one of the stems."""
    return re.compile(f"{LAYER}(?:{'|'.join(map(re.escape, sorted(stems)))}){rest}")


def _list_names(moe: MoESpec) -> Iterator[str]:
    """Tensors of the router and of the experts' norms that a spec names."""
    router, experts = moe.router, moe.experts
    for owner in (router, getattr(router, "by_score", None), experts):
        for field in ("choice_bias", "scale_name", "expert_scale", "output_bias", "channel_scale"):
            if isinstance(value := getattr(owner, field, None), str):
                yield value
        if (norm := getattr(owner, "norm", None)) is not None and norm.name:
            yield norm.name


@dataclass(frozen=True)
class _Pattern:
    name: re.Pattern[str]
    projection: str
    second: bool


def _compile(form: ExpertFiles) -> list[_Pattern]:
    return [
        _Pattern(_compile_name(name), projection, one is not form)
        for one in (form, form.second)
        if one is not None
        for name, projection in zip((*one.gate_up, one.down), list_projections(one), strict=True)
    ]


def _compile_name(name: str) -> re.Pattern[str]:
    """A name in a layer, whatever stands before the layer's number and behind the name."""
    is_module = name.endswith(".weight")
    stem = re.escape(name.removesuffix(".weight")).replace(r"\{expert\}", r"(?P<expert>\d+)")
    endings = MODULE_ENDINGS if is_module else FUSED_ENDINGS
    ending = "|".join(re.escape(part) for part in sorted(endings, key=len, reverse=True))
    return re.compile(rf"{LAYER}{stem}(?P<part>{ending})")


def _match(name: str, patterns: list[_Pattern]) -> Match | None:
    for pattern in patterns:
        found = pattern.name.fullmatch(name)
        if found is not None:
            expert = found.groupdict().get("expert")
            return Match(
                name=name,
                stack=found["prefix"],
                layer=int(found["layer"]),
                projection=pattern.projection,
                expert=None if expert is None else int(expert),
                part=found["part"][1:] or "weight",
                second=pattern.second,
            )
    return None
