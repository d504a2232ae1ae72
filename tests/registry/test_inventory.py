"""Every causal language model of the installed transformers, and whatever else mentions experts.

proves: S5, S6, S7, S8, S13. What there is comes from transformers' own mappings and files; where
the experts are comes from the parameters' shapes (`truth`). Each table explains what differs, and
a test fails for an entry that isn't needed any more.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers.models.auto import modeling_auto

from assay.spec import (
    find_model_type,
    get_expert_linear_names,
    get_experts_list,
    get_spec,
    is_moe,
    match_moe_block,
    observed_expert_layout,
)
from assay.spec.observed import find_experts
from assay.spec.registry import has_spec
from tests.registry.blocks import BUILT_TYPES
from tests.registry.tiny import (
    CAUSAL_TYPES,
    EXPERT_TYPES,
    OLD,
    SPARSE,
    UNBUILT,
    build,
    build_as,
    find_causal_classes,
)
from tests.registry.truth import find_blocks, find_expert_parameters

# How much is built at least: raise it with a release, never lower it.
MIN_CAUSAL_TYPES, MIN_CAUSAL_CLASSES = (134, 131) if OLD else (192, 181)
MIN_TYPES_WITH_BLOCKS, MIN_BLOCKS = (31, 117) if OLD else (97, 334)

# Classes that no mapping names.
_PART = "a part of a larger model, dense"
NO_MAPPING = {
    "AutoModelForCausalLM": "the automatic class itself",
    "BlipTextLMHeadModel": _PART,
    "ClvpForCausalLM": _PART,
    "CsmDepthDecoderForCausalLM": _PART,
    "FlaubertWithLMHeadModel": "mapped under language modeling with a head, dense",
    "Kosmos2TextForCausalLM": _PART,
    "Kosmos2_5TextForCausalLM": _PART,
    "Mistral4ForCausalLM": "its inner model is mapped, and built as mistral4",
}
# Types whose modeling file mentions experts, and whose tiny model has none.
_VISION = "the dense image encoder of a model with experts, which is built"
WITHOUT_BLOCKS = {
    "doge": "dense unless is_moe is set; see SPARSE",
    "gemma4_audio": "the dense audio encoder of gemma4",
    "muse_spark_audio": "the dense audio encoder of muse_spark",
    **dict.fromkeys(
        (
            "gemma4_vision", "glm4v_moe_vision", "glm5_next_vision", "hy_v4_vl_vision",
            "inkling2_vision", "muse_spark_vision", "qwen3_5_moe_vision", "qwen3_vl_moe_vision",
            "qwen4_exp_vision",
        ),
        _VISION,
    ),
}  # fmt: skip
# Blocks that is_moe doesn't find, and why.
DISAGREEMENTS = {
    "DogeCDMoE": "each expert is one row of two embeddings, chosen by product keys: no linears, "
    "nothing to name, list or give an amax",
}
# Blocks that no spec knows: class -> (names from structure or None, why there is no spec).
NO_SPEC: dict[str, tuple[tuple[str, ...] | None, str]] = {
    "JetMoeMoA": (
        ("input_linear", "output_linear"),
        "jetmoe's attention has experts of its own; they are no feed-forward block",
    ),
    "NllbMoeSparseMLP": (None, "an encoder-decoder whose experts have a capacity"),
    "OpenAIPrivacyFilterMLP": (
        ("gate_up_proj", "down_proj"),
        "a token classifier, no language model",
    ),
    "SwitchTransformersSparseMLP": (None, "an encoder-decoder whose experts have a capacity"),
}
# Modules that show a layout of experts and are neither a block nor its container.
NO_EXPERTS = {
    ("inkling_text", "InklingSharedExperts"): "shared experts, fused as the others are",
    ("jetmoe", "JetMoeAttention"): "holds its MoA block as `experts`",
    ("longcat_flash", "ModuleList"): "two dense MLPs in a list",
    ("xlm", "ModuleList"): "a list of all layers' MLPs",
}
# Blocks whose type can't be read from a config, so that all specs are asked.
NO_TYPE = {"glm4v_moe_text": "4.57 calls its inner config Glm4vMoe_text"} if OLD else {}


def blocks_of(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """Path -> module of every block, by structure."""
    return {path: model.get_submodule(path) for path in find_blocks(model)}


@pytest.mark.parametrize("model_type", BUILT_TYPES)
def test_is_moe_finds_exactly_the_blocks(model_type: str) -> None:
    """Every module is asked, with and without the type. proves: S6

    Control: test_the_truth_sees_a_planted_block, test_the_derived_truth_can_disagree.
    """
    model: Any = build(model_type)
    there = set(find_blocks(model))
    for name in (None, model_type, find_model_type(model.config)):
        found = {path for path, module in model.named_modules() if is_moe(module, name)}
        assert found == there, name


@pytest.mark.parametrize("model_type", BUILT_TYPES)
def test_the_type_of_a_config_leads_to_the_spec(model_type: str) -> None:
    """Root, text and own config; the spec that it names is the block's. proves: S5"""
    model: Any = build(model_type)
    for block in blocks_of(model).values():
        spec, name = match_moe_block(block), find_model_type(model.config, block)
        if spec is None:
            assert type(block).__name__ in NO_SPEC
        elif model_type in NO_TYPE:
            assert name is None
        else:
            assert name is not None and match_moe_block(block, name) is get_spec(name)
            assert get_spec(name).moe_spec == spec.moe_spec or spec.model_type != name


@pytest.mark.parametrize("model_type", BUILT_TYPES)
def test_layouts_are_seen_where_experts_are(model_type: str) -> None:
    """On blocks and their containers, and on nothing else. proves: S8"""
    model = build(model_type)
    blocks = blocks_of(model)
    containers = set()
    for path, block in blocks.items():
        seen = observed_expert_layout(block)
        assert seen is not None, path
        containers |= {path, f"{path}.{seen.path}".strip("."), f"{path}.experts".strip(".")}
    for path, module in model.named_modules():
        seen = observed_expert_layout(module)
        if (model_type, type(module).__name__) in NO_EXPERTS and path not in containers:
            assert seen is not None or type(module).__name__ == "ModuleList", path
        else:
            assert (seen is not None) == (path in containers), path


@pytest.mark.parametrize(
    "model_type",
    [name for name in BUILT_TYPES if name in EXPERT_TYPES and find_blocks(build(name))],
)
def test_named_parameters_are_the_experts(model_type: str) -> None:
    """All parameters with an expert dimension in the model, and no others. proves: S7, S14

    Control: test_a_wrong_name_is_noticed.
    """
    model: Any = build(model_type)
    told, untold = set(), set()
    for path, block in blocks_of(model).items():
        for name in {None, find_model_type(model.config, block)}:
            if _is_untold(block):
                untold |= {f"{path}.{inner}".strip(".") for inner in find_blocks(block)[""]}
                with pytest.raises(NotImplementedError, match=r"docs/registry\.md"):
                    get_expert_linear_names(block, name)
                continue
            names = get_expert_linear_names(block, name)
            told |= {f"{path}.{inner}".strip(".") for inner in find_named(block, names)}
    assert not told & untold
    assert told | untold == find_expert_parameters(model)


def _is_untold(block: torch.nn.Module) -> bool:
    """DBRX as it is, and iterable experts that nobody registered."""
    spec = match_moe_block(block)
    if spec is not None:
        return spec.model_type == "dbrx"
    return NO_SPEC[type(block).__name__][0] is None


def find_named(block: torch.nn.Module, names: tuple[str, ...]) -> set[str]:
    """Parameters of a block that expert linear names stand for, biases included."""
    seen = observed_expert_layout(block)
    assert seen is not None
    container = block.get_submodule(seen.path)
    stem = f"{seen.path}." if seen.path else ""
    if seen.kind == "iterable":
        stems = [n for n, child in container.named_children() if child in find_experts(block)]
        linears = {f"{expert}.{name}" for expert in stems for name in names}
        return {
            f"{stem}{name}"
            for name, _ in container.named_parameters()
            if name.rpartition(".")[0] in linears
        }
    wanted = {f"{name}{end}" for name in names for end in ("", "_bias", ".weight")}
    return {f"{stem}{name}" for name, _ in container.named_parameters() if name in wanted}


def test_a_wrong_name_is_noticed() -> None:
    """The control: one name less, or a router's, and the sets differ. proves: S7"""
    for model_type in ("mixtral", "gpt_oss"):
        model = build(model_type)
        path, block = next(iter(blocks_of(model).items()))
        there = find_blocks(model)[path]
        names = get_expert_linear_names(block, model_type)
        assert find_named(block, names) == there
        assert find_named(block, names[1:]) < there
        assert find_named(block, (*names[:-1], "router")) != there


@pytest.mark.parametrize(
    "model_type",
    [name for name in BUILT_TYPES if name in EXPERT_TYPES and find_blocks(build(name))],
)
def test_lists_are_the_experts_linears(model_type: str) -> None:
    """Empty for fused ones; the linears themselves for iterable ones; else an error. proves: S8"""
    model = build(model_type)
    for path, block in blocks_of(model).items():
        spec, seen = match_moe_block(block), observed_expert_layout(block)
        assert seen is not None
        if spec is None or spec.model_type == "dbrx":
            with pytest.raises(NotImplementedError, match=r"docs/registry\.md"):
                get_experts_list(block)
            continue
        lists = get_experts_list(block)
        grouped = spec.export_spec is not None and spec.export_spec.grouped_expert_export
        if seen.kind == "fused" or not grouped:
            assert lists == [], path
            continue
        names = get_expert_linear_names(block)
        parameters = dict(block.named_parameters())
        assert len(lists) == len(names)
        held = {id(linear.weight) for linears in lists for linear in linears}
        there = find_blocks(block)[""]
        assert held == {id(parameters[name]) for name in there if name.endswith("weight")}
        for name, linears in zip(names, lists, strict=True):
            assert len(linears) == seen.num_experts
            for expert, linear in zip(find_experts(block), linears, strict=True):
                assert getattr(expert, name) is linear


def test_blocks_that_no_spec_knows() -> None:
    """Named from structure where fused, else an error; each is explained. proves: S7"""
    found: dict[str, tuple[str, ...] | None] = {}
    for model_type in BUILT_TYPES:
        for block in blocks_of(build(model_type)).values():
            if match_moe_block(block) is not None:
                continue
            try:
                found[type(block).__name__] = get_expert_linear_names(block)
            except NotImplementedError:
                found[type(block).__name__] = None
    absent = {"OpenAIPrivacyFilterMLP"} if OLD else set()
    assert found == {name: names for name, (names, _) in NO_SPEC.items() if name not in absent}


def test_every_causal_class_is_accounted_for() -> None:
    """Mapped and built, or explained; and never fewer than before. proves: S13"""
    mapping = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    assert find_causal_classes() - set(mapping.values()) <= set(NO_MAPPING)
    assert set(UNBUILT) - {"qwen3_omni_moe"} <= set(mapping) | set(EXPERT_TYPES)
    built = [name for name in CAUSAL_TYPES if name not in UNBUILT]
    assert len(built) >= MIN_CAUSAL_TYPES
    assert len({type(build(name)).__name__ for name in built}) >= MIN_CAUSAL_CLASSES
    counts = [len(find_blocks(build(name))) for name in BUILT_TYPES]
    assert sum(map(bool, counts)) >= MIN_TYPES_WITH_BLOCKS
    assert sum(counts) >= MIN_BLOCKS


@pytest.mark.parametrize("model_type", UNBUILT)
def test_what_is_not_built_cannot_be(model_type: str) -> None:
    """For the reason given. Control: one that is built raises nothing."""
    part, reason = UNBUILT[model_type]
    assert part and reason
    with pytest.raises(Exception) as caught:  # noqa: PT011  (whatever transformers raises)
        build(model_type)
    assert part in str(caught.value)


def test_types_that_mention_experts_have_them() -> None:
    """Or are explained, and so is each entry. proves: S13"""
    without = {
        name for name in EXPERT_TYPES if name not in UNBUILT and not find_blocks(build(name))
    }
    assert without == {name for name in WITHOUT_BLOCKS if name in EXPERT_TYPES}
    assert len(without) == (1 if OLD else len(WITHOUT_BLOCKS))


@pytest.mark.parametrize("model_type", SPARSE)
def test_what_is_sparse_by_choice(model_type: str) -> None:
    """Its blocks are the disagreements, one by one. Control: an entry for a block that is found."""
    model = build_as(model_type, SPARSE[model_type])
    blocks = [module for module in model.modules() if type(module).__name__ in DISAGREEMENTS]
    assert blocks and not has_spec(model_type)
    assert not any(is_moe(block) or is_moe(block, model_type) for block in blocks)
    with pytest.raises(NotImplementedError, match="no experts that we recognise"):
        get_expert_linear_names(blocks[0])
    assert "MixtralSparseMoeBlock" not in DISAGREEMENTS


def test_the_derived_truth_can_disagree(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: without registry, structure and generic names, a block is missed. proves: S6"""
    model = build("mixtral")
    there = set(find_blocks(model))
    assert there
    monkeypatch.setattr("assay.spec.matching.get_specs", tuple)
    monkeypatch.setattr("assay.spec.matching._GENERIC_ENDINGS", ("nothing",))
    monkeypatch.setattr("assay.spec.matching._ROUTERS", ())
    assert {path for path, module in model.named_modules() if is_moe(module)} != there


def test_explanations_are_needed() -> None:
    """No table explains what is no difference any more. proves: S13"""
    for model_type, name in NO_EXPERTS:
        if model_type not in BUILT_TYPES:
            continue
        modules = [m for m in build(model_type).modules() if type(m).__name__ == name]
        assert any(observed_expert_layout(module) is not None for module in modules)
    for table in (NO_MAPPING, WITHOUT_BLOCKS, DISAGREEMENTS, NO_TYPE, NO_EXPERTS):
        assert all(reason.strip() for reason in table.values())


def test_the_truth_sees_a_planted_block() -> None:
    """The control: a router and experts put into a dense model are found by both. proves: S6"""
    model: Any = build_as("llama", {})
    assert not find_blocks(model)
    planted = build_as("mixtral", {})
    block = next(iter(blocks_of(planted).values()))
    model.model.layers[1].mlp = block
    assert set(find_blocks(model)) == {"model.layers.1.mlp"}
    assert [path for path, module in model.named_modules() if is_moe(module, "llama")] == [
        "model.layers.1.mlp"
    ]
    assert match_moe_block(block, "llama") is None
