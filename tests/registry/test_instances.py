"""Every spec's facts on a real tiny instance of its type. proves: S5, S7, S8, S13, S14"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from assay.spec import ModelSpec, get_spec, get_specs, match_moe_block
from assay.spec.registry import has_spec
from tests.registry.blocks import BUILT_TYPES, MOE_TYPES
from tests.registry.checks import check_spec
from tests.registry.presence_check import find_need
from tests.registry.tiny import OLD, UNBUILT, build, has_type
from tests.registry.truth import find_blocks
from tests.twins.cases import TWINS

SPECS = [spec for spec in get_specs() if has_type(spec.model_type)]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.model_type)
def test_a_spec_holds(spec: ModelSpec) -> None:
    """Release, names, layout, layers, arithmetic, dtype. Control: scripts/mutate_registry.py."""
    assert check_spec(spec) == []


@pytest.mark.parametrize(
    "spec",
    [spec for spec in get_specs() if spec.modeling_source == "remote_code"],
    ids=lambda spec: spec.model_type,
)
def test_remote_code_is_still_absent(spec: ModelSpec) -> None:
    """Its facts stand in the exhaustive table alone. Control: a type that is there is noticed."""
    assert check_spec(spec) == []
    here = dataclasses.replace(get_spec("mixtral"), modeling_source="remote_code")
    assert check_spec(here) != []


def test_a_changed_fact_is_noticed() -> None:
    """One of each kind; scripts/mutate_registry.py does it for every fact."""
    spec = get_spec("qwen3_moe")
    moe: Any = spec.moe_spec
    assert check_spec(spec) == []
    for change in (
        {"block_names": ("Qwen3MoeSparseMoeBlok",)},
        {"gate_up_pair": None},
        {"router": dataclasses.replace(moe.router, normalize="sum")},
    ):
        if OLD and "router" in change:
            continue
        changed = dataclasses.replace(spec, moe_spec=dataclasses.replace(moe, **change))
        assert check_spec(changed) != [], change


def test_every_moe_type_is_built() -> None:
    """No registered type is left out of the checks by accident. proves: S13"""
    moe = {spec.model_type for spec in get_specs() if spec.moe_spec is not None}
    there = {name for name in moe if has_type(name)}
    assert there - set(MOE_TYPES) <= set(UNBUILT)
    assert len(MOE_TYPES) >= (30 if OLD else 90)


@pytest.mark.parametrize(
    "model_type",
    sorted({*BUILT_TYPES, *UNBUILT, *TWINS, *(spec.model_type for spec in get_specs())}),
)
def test_no_type_is_missing(model_type: str) -> None:
    """What has experts, folded scales, norms that store w - 1 or a twin is registered. proves: S13

    Control: without mixtral, there is a reason to register it, and none for gpt_neo.
    """
    assert find_need(model_type) is None or has_spec(model_type), find_need(model_type)
    assert find_need("mixtral") is not None
    assert find_need("gpt_neo") is None


def test_deepseek_is_visible() -> None:
    """deepseek_v2, v3 and v4 are MoE, gpt_oss's block is GptOssMLP. proves: S14"""
    for name in ("deepseek_v2", "deepseek_v3", "deepseek_v4", "gpt_oss", "dbrx"):
        if has_type(name):
            blocks = find_blocks(build(name))
            assert blocks
            assert all(
                match_moe_block(build(name).get_submodule(path), name) is get_spec(name)
                for path in blocks
            )
    assert get_spec("gpt_oss").moe_spec.block_names == ("GptOssMLP",)  # type: ignore[union-attr]
