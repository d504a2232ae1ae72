"""How a module finds its spec: names whole and in any case, strict types, configs in order.

proves: S3, S5, S6
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

import assay.models  # noqa: F401  (registers every spec)
from assay.spec import find_model_type, get_spec, get_specs, is_moe, list_all_possible
from assay.spec import match_moe_block as match
from assay.spec.matching import _tuple_fields
from assay.spec.registry import _BROKEN, BrokenSpecError
from tests.registry.tiny import build, build_dense, has_type, list_dense
from tests.registry.truth import find_blocks


def make(name: str, *bases: type) -> nn.Module:
    """An empty module whose class has a name."""
    return type(name, bases or (nn.Module,), {})()  # type: ignore[no-any-return]


NAMES = sorted(
    {name for spec in get_specs() if spec.moe_spec for name in spec.moe_spec.block_names}
)
# Blocks whose class also serves layers without experts; a name alone doesn't make them a block.
LAYERS = ("Gemma4TextDecoderLayer",)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in LAYERS])
def test_names_match_whole_and_in_any_case(name: str) -> None:
    """Also through a base class. Control: with a letter more at either end, no longer."""
    base = type(make(name))
    for module in (
        make(name),
        make(name.upper()),
        make(name.lower()),
        make(f"Quant{name}", base),
        make("Renamed", type("Mixin", (), {}), base),
        make("Twice", type(make("Once", base))),
    ):
        found = match(module)
        assert found is not None and found.moe_spec is not None
        assert name in found.moe_spec.block_names
        assert is_moe(module, found.model_type)
    for near in (f"{name}s", f"Quant{name}", name[1:], name[:-1]):
        assert match(make(near)) is None


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_a_block_where_it_has_experts(name: str) -> None:
    """gemma4's layers are dense in most of its models. Control: with experts it is one."""
    layer = make(name)
    assert match(layer) is None and not is_moe(layer)
    layer.experts = None
    assert match(layer) is None and not is_moe(layer)
    layer.experts = nn.Module()
    assert match(layer) is not None and is_moe(layer)


def test_a_type_is_a_strict_filter() -> None:
    """Another type's block isn't matched, nor one of a type that nobody knows."""
    block = make("MixtralSparseMoeBlock")
    assert match(block) is get_spec("mixtral") is match(block, "mixtral")
    assert match(block, "qwen3_moe") is None
    assert match(block, "llama") is None
    assert match(block, "never_heard_of") is None
    assert match(block, "Mixtral") is None
    assert match(block, "") is None
    assert is_moe(block, "never_heard_of"), "its name ends like that of every sparse block"
    assert not is_moe(make("DeepseekV3MoE"), "llama")
    assert is_moe(make("DeepseekV3MoE"), "deepseek_v3") and is_moe(make("DeepseekV3MoE"))


def test_the_nearest_base_class_counts() -> None:
    """With several registered classes in the MRO, the most derived one is what the module is."""
    mixtral, arctic = make("MixtralSparseMoeBlock"), make("ArcticMoE")
    assert match(make("A", type(mixtral), type(arctic))) is get_spec("mixtral")
    assert match(make("B", type(arctic), type(mixtral))) is get_spec("arctic")
    assert match(make("ArcticMoE", type(mixtral))) is get_spec("arctic")
    assert match(make("MixtralSparseMoeBlock", type(arctic))) is get_spec("mixtral")
    layer = make("Gemma4TextDecoderLayer")
    layer.experts = nn.Module()
    assert match(layer) is get_spec("gemma4"), "of those that share a class, the first by name"
    both = make("A", type(mixtral), type(arctic))
    assert match(both, "arctic") is get_spec("arctic")


def test_specs_that_share_a_name_agree() -> None:
    """So that it doesn't matter which of them a look-up without a type finds. proves: S3"""
    for name in NAMES:
        said = {
            (moe.expert_linear_names, moe.gate_up_pair, moe.layouts, moe.unsupported)
            for moe in (spec.moe_spec for spec in get_specs())
            if moe is not None and name in moe.block_names
        }
        assert len(said) == 1, name


def test_configs_are_asked_in_order() -> None:
    """Root, text, the module's own; objects and parsed files alike. proves: S5"""
    llama, mixtral, dbrx = ({"model_type": name} for name in ("llama", "mixtral", "dbrx"))
    own = SimpleNamespace(config=SimpleNamespace(model_type="dbrx"))
    unknown = {"model_type": "never_heard_of"}
    assert find_model_type({**llama, "text_config": mixtral}, own) == "llama"
    assert find_model_type({**unknown, "text_config": mixtral}, own) == "mixtral"
    assert find_model_type({"text_config": mixtral}, own) == "mixtral"
    assert find_model_type({**unknown, "text_config": unknown}, own) == "dbrx"
    assert find_model_type({**unknown, "text_config": None}, own) == "dbrx"
    assert find_model_type(None, own) == "dbrx"
    assert find_model_type(None, SimpleNamespace(config=dbrx)) == "dbrx"
    assert find_model_type(unknown, nn.Linear(1, 1)) is None
    assert find_model_type({"model_type": ["llama"]}) is None
    objects = SimpleNamespace(model_type="x", text_config=SimpleNamespace(model_type="mixtral"))
    assert find_model_type(objects, own) == "mixtral"


def test_a_broken_type_is_no_unknown_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told, wherever it is asked for. Control: an unknown type is none. proves: S5"""
    broken = BrokenSpecError("models/made_up/specs.py:3", "invalid syntax", next_step="Mend it.")
    monkeypatch.setitem(_BROKEN, "made_up", broken)
    for config in ({"model_type": "made_up"}, {"text_config": {"model_type": "made_up"}}):
        with pytest.raises(BrokenSpecError, match="invalid syntax"):
            find_model_type(config)
    with pytest.raises(BrokenSpecError, match="invalid syntax"):
        match(nn.Linear(1, 1), "made_up")
    assert find_model_type({"model_type": "never_heard_of"}) is None


NESTED = {
    "qwen3_5_moe": "qwen3_5_moe_text",
    "llama4": "llama4_text",
    "gemma4": "gemma4_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
}


@pytest.mark.parametrize("model_type", [name for name in NESTED if has_type(name)])
def test_root_and_text_config_lead_to_the_same_facts(model_type: str) -> None:
    """A model with images, its text part on its own, and its text part in an unknown frame."""
    text = NESTED[model_type]
    assert get_spec(model_type).moe_spec == get_spec(text).moe_spec
    frame = {"model_type": "frame", "text_config": {"model_type": text}}
    model = build(text)
    blocks = [model.get_submodule(path) for path in find_blocks(model)]
    assert blocks
    for block in blocks:
        for config in (frame, model.config, {"model_type": model_type}):
            found = find_model_type(config, block)
            assert found is not None and match(block, found) is get_spec(found)
    assert find_model_type({"model_type": "frame", "text_config": {"model_type": "other"}}) is None


@pytest.mark.parametrize("model_type", list_dense())
def test_a_dense_model_of_a_sparse_type_has_no_block(model_type: str) -> None:
    """Every layer dense by the config. proves: S6. Control: the type's usual build has blocks."""
    dense = build_dense(model_type)
    assert not find_blocks(dense)
    assert [path for path, module in dense.named_modules() if is_moe(module)] == []
    assert [path for path, module in dense.named_modules() if is_moe(module, model_type)] == []
    assert find_blocks(build(model_type))


def test_a_router_and_experts_make_a_block() -> None:
    """By structure, where no name says it. proves: S6. Control: either alone doesn't."""

    def block(**children: nn.Module) -> nn.Module:
        module = make("Something")
        for name, child in children.items():
            module.add_module(name, child)
        return module

    def expert() -> nn.Module:
        return block(up=nn.Linear(4, 6), down=nn.Linear(6, 4))

    experts = nn.ModuleList([expert(), expert()])
    assert is_moe(block(gate=nn.Linear(4, 2), experts=experts))
    assert is_moe(block(router=nn.Linear(4, 2), experts=experts), "never_heard_of")
    assert not is_moe(block(gate=nn.Linear(4, 2)))
    assert not is_moe(block(experts=experts))
    assert not is_moe(block(gate_proj=nn.Linear(4, 2), experts=experts))
    assert not is_moe(experts)


@pytest.mark.parametrize("name", ["FooSparseMoeBlock", "FooMoELayer", "QuantFooSparseMoEBlock"])
def test_generic_names(name: str) -> None:
    """Whole endings, in any case. Control: the same in the middle of a name isn't one."""
    assert is_moe(make(name)) and is_moe(make("X", type(make(name))), "llama")
    assert match(make(name)) is None
    assert not is_moe(make(f"{name}Router"))
    assert not is_moe(make(f"{name}MLP"))


def test_unions_over_all_specs() -> None:
    """Each value once, in order of model type; any tuple field. proves: S5"""
    assert len(set(list_all_possible("block_names"))) == len(list_all_possible("block_names"))
    assert set(list_all_possible("block_names")) == set(NAMES)
    pairs = list_all_possible("gate_up_pair")
    assert {("gate_proj", "up_proj"), ("w1", "w3"), ("w1_linear", "v1_linear")} <= set(pairs)
    assert all(len(pair) == 2 for pair in pairs)
    assert "GemmaRMSNorm" in list_all_possible("weight_plus_one_norm_names")
    for field in _tuple_fields():
        assert list_all_possible(field), field
    for field in ("model_type", "unsupported", "never_heard_of", "moe_spec"):
        with pytest.raises(ValueError, match="no tuple field"):
            list_all_possible(field)


def test_a_real_block_subclassed() -> None:
    """A real block, subclassed as a quantizer does it. proves: S5"""
    model = build("mixtral")
    block: Any = model.get_submodule(next(iter(find_blocks(model))))
    quantized = type(f"Quant{type(block).__name__}", (type(block),), {})
    was = type(block)
    try:
        block.__class__ = quantized
        assert match(block, "mixtral") is get_spec("mixtral")
        assert match(block, "qwen3_moe") is None
    finally:
        block.__class__ = was
