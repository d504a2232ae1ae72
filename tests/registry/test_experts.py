"""Names and lists of expert linears: from the spec, from structure, or an error with advice.

proves: S7, S8, S14
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from torch import nn

import assay.models  # noqa: F401  (registers every spec)
from assay.errors import AssayError
from assay.spec import UnsupportedExpertsError, get_expert_linear_names, get_experts_list, get_spec
from tests.registry.fakes import LLAMA, E, H, I, block, fused, iterable, tree
from tests.registry.files_check import registered

MIXTRAL = ("w1", "w3", "w2")
FUSED = ("gate_up_proj", "down_proj")


def test_names_from_the_spec_where_the_layout_is_its_own() -> None:
    """In the spec's order, whatever the module's. Control: another type has other names."""
    mixtral = block("MixtralSparseMoeBlock", iterable(("w1", "w2", "w3")))
    assert get_expert_linear_names(mixtral) == MIXTRAL
    assert get_expert_linear_names(mixtral, "mixtral") == MIXTRAL
    qwen = block("QuantQwen3MoeSparseMoeBlock", iterable())
    qwen.__class__ = type("Q", (type(block("Qwen3MoeSparseMoeBlock", None)),), {})
    assert get_expert_linear_names(qwen, "qwen3_moe") == LLAMA
    gpt = block("GptOssMLP", fused(transposed=True, bias=True))
    assert get_expert_linear_names(gpt, "gpt_oss") == FUSED


def test_names_from_structure_where_the_layout_is_another() -> None:
    """transformers 5 fuses mixtral's experts. Control: the spec's own names aren't FUSED."""
    mixtral = block("MixtralSparseMoeBlock", fused())
    assert get_expert_linear_names(mixtral) == get_expert_linear_names(mixtral, "mixtral") == FUSED
    assert get_spec("mixtral").moe_spec.expert_linear_names == MIXTRAL  # type: ignore[union-attr]
    ungated = block("NemotronHMoE", fused(("up_proj", "down_proj"), gated=False))
    assert get_expert_linear_names(ungated, "nemotron_h") == ("up_proj", "down_proj")
    three = block("NemotronHMoE", fused(LLAMA))
    assert get_expert_linear_names(three, "nemotron_h") == LLAMA, "more than the spec's"
    other = block("GptOssMLP", fused(("up_proj", "down_proj"), gated=False))
    assert get_expert_linear_names(other, "gpt_oss") == ("up_proj", "down_proj")


def test_names_of_blocks_that_nobody_registered() -> None:
    """Fused: as they stand. Iterable: never guessed, and the error says what to do."""
    assert get_expert_linear_names(block("Foo", fused())) == FUSED
    for names in (LLAMA, MIXTRAL, ("w1", "w2", "w3")):
        for model_type in (None, "llama", "never_heard_of"):
            with pytest.raises(NotImplementedError) as caught:
                get_expert_linear_names(block("Foo", iterable(names)), model_type)
            assert isinstance(caught.value, AssayError)
            assert caught.value.where == "Foo"
            for word in ("no spec", "specs.py", "block_names", "docs/registry.md"):
                assert word in str(caught.value)
            assert (repr(model_type) in str(caught.value)) == (model_type is not None)


def test_the_type_decides_even_where_the_class_is_known() -> None:
    """A mixtral block under qwen3_moe is nobody's. Control: under mixtral it has names."""
    mixtral = block("MixtralSparseMoeBlock", iterable(MIXTRAL))
    assert get_expert_linear_names(mixtral, "mixtral") == MIXTRAL
    with pytest.raises(NotImplementedError, match="'qwen3_moe'"):
        get_expert_linear_names(mixtral, "qwen3_moe")
    with pytest.raises(NotImplementedError, match="'qwen3_moe'"):
        get_experts_list(mixtral, "qwen3_moe")


@pytest.mark.parametrize("names", [LLAMA, ("w1", "w2"), ("x", "y", "z")])
def test_a_spec_whose_names_are_not_there(names: tuple[str, ...]) -> None:
    """Iterable as the spec says, under other names: an error, not names of nothing."""
    mixtral = block("MixtralSparseMoeBlock", iterable(names))
    for look_up in (get_expert_linear_names, get_experts_list):
        with pytest.raises(NotImplementedError) as caught:
            look_up(mixtral, "mixtral")
        assert "w1, w3, w2" in str(caught.value) and ", ".join(names) in str(caught.value)
        assert "models/mixtral/specs.py" in str(caught.value)


def test_iterable_where_the_spec_is_fused() -> None:
    """gemma4's experts split by a quantizer: nobody has said their names."""
    layer = block("Gemma4TextDecoderLayer", iterable())
    for look_up in (get_expert_linear_names, get_experts_list):
        with pytest.raises(NotImplementedError, match=r"models/gemma4_text/specs\.py"):
            look_up(layer, "gemma4_text")


def test_dbrx_raises_until_it_is_split() -> None:
    """Its flat parameters have no names; split into linears it has its real ones. proves: S14"""
    flat = {name: nn.Parameter(nn.Linear(H, E * I).weight) for name in ("w1", "v1", "w2")}
    dbrx = block("DbrxFFN", tree("DbrxExperts", mlp=tree("GLU", **flat, moe_num_experts=E)))
    for look_up in (get_expert_linear_names, get_experts_list):
        for model_type in (None, "dbrx"):
            with pytest.raises(NotImplementedError) as caught:
                look_up(dbrx, model_type)
            assert "w1_linear, w2_linear, v1_linear" in str(caught.value)
            assert "docs/registry.md" in str(caught.value)
    names = ("w1_linear", "v1_linear", "w2_linear")
    lists = {name: nn.ModuleList(nn.Linear(H, I) for _ in range(E)) for name in names}
    split = block("DbrxFFN", tree("DbrxExperts", mlp=tree("GLU", **lists)))
    found = get_expert_linear_names(split, "dbrx")
    assert found == ("w1_linear", "w2_linear", "v1_linear")
    assert all(hasattr(split.experts.mlp, name) for name in found)  # type: ignore[union-attr]
    with pytest.raises(NotImplementedError, match="module of its own"):
        get_experts_list(split, "dbrx")


def test_lists_hold_the_linears_themselves() -> None:
    """One list a linear, in the spec's order, every expert in each. Control: the order counts."""
    experts = iterable(("w1", "w2", "w3"))
    mixtral = block("MixtralSparseMoeBlock", experts)
    for model_type in (None, "mixtral"):
        lists = get_experts_list(mixtral, model_type)
        assert [len(row) for row in lists] == [E] * 3
        for row, name in zip(lists, MIXTRAL, strict=True):
            assert all(
                linear is getattr(expert, name) for linear, expert in zip(row, experts, strict=True)
            )
    assert lists[1][0] is not getattr(experts[0], "w2")  # noqa: B009


def test_no_lists_of_fused_experts() -> None:
    """They hold no linears. Control: the same type, iterable, has them."""
    assert get_experts_list(block("Qwen3MoeSparseMoeBlock", fused()), "qwen3_moe") == []
    assert get_experts_list(block("Qwen3MoeSparseMoeBlock", iterable()), "qwen3_moe") != []


def test_no_lists_where_grouped_export_is_not_set() -> None:
    """olmoe's experts are iterable, and nobody validated it. Control: qwen3_moe's are listed."""
    assert not get_spec("olmoe").export_spec
    assert get_experts_list(block("OlmoeSparseMoeBlock", iterable()), "olmoe") == []
    qwen = get_spec("qwen3_moe")
    assert qwen.export_spec is not None
    refused = dataclasses.replace(qwen.export_spec, grouped_expert_export=False)
    with registered(dataclasses.replace(qwen, export_spec=refused)):
        assert get_experts_list(block("Qwen3MoeSparseMoeBlock", iterable()), "qwen3_moe") == []
    assert get_experts_list(block("Qwen3MoeSparseMoeBlock", iterable()), "qwen3_moe") != []


def test_no_lists_of_blocks_that_nobody_registered() -> None:
    """Advice instead, whatever the layout."""
    for experts in (iterable(), fused(), None):
        for model_type in (None, "llama", "mixtral"):
            with pytest.raises(NotImplementedError, match="Register it"):
                get_experts_list(block("Foo", experts), model_type)


def test_an_expert_that_lacks_a_linear() -> None:
    """The first has all; the last doesn't: an error that names it."""
    experts = iterable(MIXTRAL)
    del experts[E - 1].w3
    with pytest.raises(UnsupportedExpertsError, match=r"expert 2 .* has no w3"):
        get_experts_list(block("MixtralSparseMoeBlock", experts), "mixtral")


def test_a_block_without_experts() -> None:
    """Registered by name, and empty: an error."""
    for look_up in (get_expert_linear_names, get_experts_list):
        with pytest.raises(NotImplementedError, match="no experts that we recognise"):
            look_up(block("MixtralSparseMoeBlock", None), "mixtral")


def test_precedence_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of all: with the spec's layout changed, the answer changes."""
    mixtral = block("MixtralSparseMoeBlock", iterable(MIXTRAL))
    spec = get_spec("mixtral")
    moe: Any = spec.moe_spec
    swapped = dataclasses.replace(moe, layouts=moe.layouts[::-1])
    changed = dataclasses.replace(spec, moe_spec=swapped)
    monkeypatch.setattr("assay.spec.matching.get_specs", lambda: (changed,))
    with pytest.raises(NotImplementedError):
        get_expert_linear_names(mixtral, "mixtral")


def test_a_fused_spec_must_name_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a container with more parameters than the spec names, all are named, from structure."""
    spec = get_spec("gemma4_text")
    moe: Any = spec.moe_spec
    names = ("down_proj", "up_proj")
    changed = dataclasses.replace(
        spec, moe_spec=dataclasses.replace(moe, expert_linear_names=names)
    )
    monkeypatch.setattr("assay.spec.matching.get_specs", lambda: (changed,))
    layer = block("Gemma4TextDecoderLayer", fused(LLAMA))
    assert get_expert_linear_names(layer, "gemma4_text") == LLAMA
    layer = block("Gemma4TextDecoderLayer", fused(("up_proj", "down_proj"), gated=False))
    assert get_expert_linear_names(layer, "gemma4_text") == names
