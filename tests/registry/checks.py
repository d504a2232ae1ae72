"""What a spec claims about its type, checked on the installed transformers' own modules.

Each check returns what is wrong, as text; the tests assert that nothing is, and
scripts/mutate_registry.py asserts that a changed spec is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from assay.spec import (
    ModelSpec,
    get_expert_linear_names,
    get_experts_list,
    is_moe,
    match_moe_block,
    observed_expert_layout,
)
from assay.spec.moe import MoESpec
from tests.registry.arithmetic_check import check_arithmetic
from tests.registry.blocks import MOE_TYPES, find_moe_blocks, list_own_blocks
from tests.registry.export_check import check_export
from tests.registry.files_check import check_files
from tests.registry.identity_check import (
    check_architectures,
    check_defaults,
    check_release,
    check_text_part,
)
from tests.registry.interpret import find_declared_layout, find_declared_release
from tests.registry.layers_check import check_sparse_layers
from tests.registry.names_check import check_consistent_names, check_presence
from tests.registry.source_check import check_source
from tests.registry.tiny import DENSE, build, build_dense
from tests.registry.unread_check import check_unread
from tests.registry.variants import check_variants

__all__ = ["CHECKS", "SPEC_CHECKS", "check_spec", "check_spec_lazily"]


def check_spec(spec: ModelSpec) -> list[str]:
    """Everything that is wrong with a spec, by every check that applies here."""
    return list(check_spec_lazily(spec))


def check_spec_lazily(spec: ModelSpec) -> Iterator[str]:
    """The same, one after the other, so that the first is there before the others are looked for.

    An error is something wrong too: a false fact may break anything.
    """
    for check in SPEC_CHECKS:
        yield from _run(check, spec)
    if spec.moe_spec is not None and spec.model_type in MOE_TYPES:
        for moe_check in CHECKS:
            yield from _run(moe_check, spec, spec.moe_spec)


def _run(check: Callable[..., list[str]], *parts: Any) -> Iterator[str]:
    try:
        found = check(*parts)
    except Exception as exc:  # noqa: BLE001  (whatever a false fact breaks)
        found = [f"{type(exc).__name__} {exc}"]
    for text in found:
        yield f"{check.__name__}: {text}"


def check_blocks(spec: ModelSpec, moe: MoESpec) -> list[str]:
    """is_moe and match_moe_block find the blocks that are there and no other module."""
    wrong = []
    there = {block.path for block in find_moe_blocks(spec.model_type)}
    named = {
        path
        for path, module in build(spec.model_type).named_modules()
        if match_moe_block(module, spec.model_type) is not None
    }
    found = {
        path
        for path, module in build(spec.model_type).named_modules()
        if is_moe(module, spec.model_type)
    }
    if not there:
        wrong.append("no block was built")
    if found != there:
        wrong.append(f"is_moe differs on {sorted(found ^ there)[:3]}")
    if named != there - _unnamed(spec.model_type, there):
        wrong.append(f"match_moe_block differs on {sorted(named ^ there)[:3]}")
    if spec.model_type in DENSE:
        dense = build_dense(spec.model_type)
        wrong += [f"{p} is matched" for p, m in dense.named_modules() if moe.matches(m)]
    classes = {type(module).__name__.lower() for module in build(spec.model_type).modules()}
    return wrong + [
        f"no module of the class {name}"
        for name in moe.block_names
        if name.lower() not in classes and (spec.model_type, name) not in SHOWN_BY
    ]


# A name that a smaller part doesn't show: it is seen in the type named here.
SHOWN_BY = {
    ("dots3_note", "Dots3NoteVisionMoE"): "a vision tower with experts, dense by default",
}


def _unnamed(model_type: str, there: set[str]) -> set[str]:
    """Blocks of another kind than the spec's: jetmoe's attention has experts too."""
    return {path for path in there if model_type == "jetmoe" and "self_attention" in path}


def check_layout(spec: ModelSpec, moe: MoESpec) -> list[str]:
    """The observed layout is the one declared for this release; names are the spec's own."""
    wrong = []
    declared = find_declared_layout(moe)
    own = find_declared_release(moe) == moe.layouts[0][0]
    for block in list_own_blocks(spec, moe):
        seen = observed_expert_layout(block.module)
        if seen is None:
            return ["no layout is seen"]
        for flag in ("kind", "is_transposed", "is_concatenated", "has_bias", "has_gate"):
            shown, said = getattr(seen, flag), getattr(declared, flag)
            if shown is not None and shown != said:
                wrong.append(f"{flag} is {shown}, not {said}")
        if own and set(seen.names) != set(moe.expert_linear_names):
            wrong.append(f"the experts' names are {seen.names}, not {moe.expert_linear_names}")
        if own and len(set(moe.expert_linear_names)) != len(moe.expert_linear_names):
            wrong.append("a name is there twice")
        if own and seen.kind == "fused" and seen.names != moe.expert_linear_names:
            wrong.append(f"the order is {seen.names}")
    gated = declared.has_gate
    if (moe.gate_up_pair is not None) != gated:
        wrong.append(f"gate_up_pair is {moe.gate_up_pair}, has_gate is {gated}")
    return wrong


def check_names(spec: ModelSpec, moe: MoESpec) -> list[str]:
    """The linears named cover all parameters of the experts, and no others."""
    wrong = []
    for block in list_own_blocks(spec, moe):
        try:
            names = get_expert_linear_names(block.module, spec.model_type)
        except NotImplementedError as exc:
            if moe.unsupported is None or "docs/registry.md" not in str(exc):
                wrong.append(f"raised {exc}")
            continue
        if moe.unsupported is not None:
            wrong.append("an unsupported layout gave names")
        seen = observed_expert_layout(block.module)
        assert seen is not None
        container = block.module.get_submodule(seen.path)
        covered = {
            f"{seen.path}.{name}".lstrip(".")
            for name, _ in container.named_parameters()
            if _is_named(name, names, seen.kind)
        }
        if covered != set(block.parameters):
            wrong.append(f"covered differs on {sorted(covered ^ set(block.parameters))[:3]}")
    return wrong


def _is_named(parameter: str, names: tuple[str, ...], kind: str) -> bool:
    parts = parameter.split(".")
    if kind == "iterable":
        return len(parts) > 1 and parts[1] in names
    return any(parts[0] in (name, f"{name}_bias") for name in names)


def check_lists(spec: ModelSpec, moe: MoESpec) -> list[str]:
    """One list a linear where grouped export holds and experts are iterable, else none."""
    wrong = []
    grouped = spec.export_spec is not None and spec.export_spec.grouped_expert_export
    for block in list_own_blocks(spec, moe):
        try:
            lists = get_experts_list(block.module, spec.model_type)
        except NotImplementedError as exc:
            if moe.unsupported is None or "docs/registry.md" not in str(exc):
                wrong.append(f"raised {exc}")
            continue
        seen = observed_expert_layout(block.module)
        assert seen is not None
        if moe.unsupported is not None:
            wrong.append("an unsupported layout gave lists")
        if not grouped or seen.kind == "fused":
            if lists:
                wrong.append("lists where there are none")
            continue
        wanted = [
            [getattr(expert, name) for _, expert in block.module.experts.named_children()]
            for name in moe.expert_linear_names
        ]
        same = [[id(a) for a in row] for row in lists] == [[id(a) for a in row] for row in wanted]
        if not same:
            wrong.append("the lists hold other linears")
    return wrong


SPEC_CHECKS: tuple[Callable[[ModelSpec], list[str]], ...] = (
    check_unread,
    check_presence,
    check_release,
    check_architectures,
    check_text_part,
    check_export,
)
CHECKS: tuple[Callable[[ModelSpec, MoESpec], list[str]], ...] = (
    check_consistent_names,
    check_layout,
    check_blocks,
    check_names,
    check_lists,
    check_sparse_layers,
    check_defaults,
    check_files,
    check_arithmetic,
    check_source,
    check_variants,
)
