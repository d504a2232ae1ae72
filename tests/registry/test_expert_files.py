"""Expert tensors from names and shapes alone, for every type and every published form.

proves: S2, S7, B3. The truth is the live model's own parameters, found without a name.
"""

from __future__ import annotations

from math import prod
from typing import Any

import pytest

import assay.models  # noqa: F401
from assay.errors import WeightError
from assay.spec import (
    ExpertFilesFound,
    UnsupportedExpertsError,
    get_specs,
    group_expert_tensors,
)
from tests.registry.files_check import FILE_EXCEPTIONS, save_instance
from tests.registry.tiny import UNBUILT, has_type

Shapes = dict[str, tuple[int, ...]]
TYPES = sorted(
    spec.model_type
    for spec in get_specs()
    if spec.moe_spec is not None and has_type(spec.model_type)
)


def _list_grouped(found: ExpertFilesFound) -> list[str]:
    return [name for group in found.groups for name in group.tensors.values()]


@pytest.mark.parametrize("model_type", [t for t in TYPES if t not in {*FILE_EXCEPTIONS, *UNBUILT}])
def test_every_type_as_transformers_saves_it(model_type: str) -> None:
    """All values of the experts and no others. Control: a checkpoint that lacks one tensor."""
    config, shapes, count = save_instance(model_type)
    found = group_expert_tensors(config, shapes)
    names = _list_grouped(found)
    assert len(names) == len(set(names))
    assert sum(prod(shapes[name][1]) for name in names) == count
    assert found.unaccounted == ()
    weights = [group.tensors["weight"] for group in found.groups if group.projection == "down"]
    with pytest.raises(WeightError, match=r"lacks|no experts"):
        group_expert_tensors(config, {k: v for k, v in shapes.items() if k != weights[-1]})


H, I, E, L = 64, 32, 4, 2  # noqa: E741


def _each(form: str, gate: str, up: str, down: str, first: int = 0) -> Shapes:
    """One tensor an expert and projection."""
    return {
        f"model.layers.{layer}.{form}.{expert}.{name}.weight": (H, I) if name == down else (I, H)
        for layer in range(first, L)
        for expert in range(E)
        for name in (gate, up, down)
    }


def _stacked(gate_up: str, down: str, *, turned: bool, first: int = 0) -> Shapes:
    up, back = (E, 2 * I, H), (E, H, I)
    if turned:
        up, back = (E, H, 2 * I), (E, I, H)
    found: Shapes = {}
    for layer in range(first, L):
        found[f"model.layers.{layer}.{gate_up}"] = up
        found[f"model.layers.{layer}.{down}"] = back
    return found


def _gpt_oss(*, packed: bool) -> Shapes:
    found: Shapes = {}
    for layer in range(L):
        stem = f"model.layers.{layer}.mlp.experts."
        found |= {f"{stem}gate_up_proj_bias": (E, 2 * I), f"{stem}down_proj_bias": (E, H)}
        if packed:
            found[f"{stem}gate_up_proj_blocks"] = (E, 2 * I, H // 32, 16)
            found[f"{stem}gate_up_proj_scales"] = (E, 2 * I, H // 32)
            found[f"{stem}down_proj_blocks"] = (E, H, I // 32, 16)
            found[f"{stem}down_proj_scales"] = (E, H, I // 32)
        else:
            found[f"{stem}gate_up_proj"] = (E, H, 2 * I)
            found[f"{stem}down_proj"] = (E, I, H)
    return found


_SIZES = {"hidden_size": H, "num_hidden_layers": L, "intermediate_size": I}
_GIVEN: dict[str, tuple[dict[str, Any], Shapes]] = {
    "mixtral": (
        {**_SIZES, "num_local_experts": E},
        _each("block_sparse_moe.experts", "w1", "w3", "w2"),
    ),
    "qwen3_moe": (
        {**_SIZES, "num_experts": E, "moe_intermediate_size": I, "decoder_sparse_step": 1},
        _each("mlp.experts", "gate_proj", "up_proj", "down_proj"),
    ),
    "deepseek_v3": (
        {**_SIZES, "n_routed_experts": E, "moe_intermediate_size": I, "first_k_dense_replace": 1},
        _each("mlp.experts", "gate_proj", "up_proj", "down_proj", first=1),
    ),
    "gpt_oss": ({**_SIZES, "num_local_experts": E}, _gpt_oss(packed=False)),
    "gpt_oss MXFP4": ({**_SIZES, "num_local_experts": E}, _gpt_oss(packed=True)),
    "dbrx": (
        {"d_model": H, "n_layers": L, "ffn_config": {"ffn_hidden_size": I, "moe_num_experts": E}},
        {
            f"transformer.blocks.{layer}.ffn.experts.mlp.{name}": (E * I, H)
            for layer in range(L)
            for name in ("w1", "v1", "w2")
        },
    ),
    "granitemoe": (
        {**_SIZES, "num_local_experts": E},
        _stacked(
            "block_sparse_moe.input_linear.weight",
            "block_sparse_moe.output_linear.weight",
            turned=False,
        ),
    ),
    "phimoe": (
        {**_SIZES, "num_local_experts": E},
        _each("block_sparse_moe.experts", "w1", "w3", "w2"),
    ),
    "llama4": (
        {"text_config": {**_SIZES, "model_type": "llama4_text", "num_local_experts": E}},
        {
            f"language_model.{name}": shape
            for name, shape in _stacked(
                "feed_forward.experts.gate_up_proj",
                "feed_forward.experts.down_proj",
                turned=True,
            ).items()
        },
    ),
}


def _config(name: str) -> dict[str, Any]:
    return {**_GIVEN[name][0], "model_type": name.split(" ", maxsplit=1)[0]}


@pytest.mark.parametrize("name", _GIVEN)
def test_forms_of_the_hub(name: str) -> None:
    """Grouped whole. Controls: a stranger among them, a wrong shape, a tensor too few."""
    shapes = _GIVEN[name][1]
    beside = {"model.embed_tokens.weight": (100, H), "model.layers.0.mlp.gate.weight": (E, H)}
    found = group_expert_tensors(_config(name), {**beside, **shapes})
    assert sorted(_list_grouped(found)) == sorted(shapes)
    assert found.num_experts == E
    assert found.unaccounted == ()
    last = next(reversed(shapes))
    first = next(name for name in shapes if "bias" not in name and "scales" not in name)
    stranger = f"{last}_odd"
    assert group_expert_tensors(_config(name), {**shapes, stranger: (3,)}).unaccounted == (
        stranger,
    )
    with pytest.raises(WeightError, match="has the shape"):
        group_expert_tensors(_config(name), {**shapes, last: (*shapes[last][:-1], 7)})
    with pytest.raises(WeightError, match=r"lacks|no experts"):
        group_expert_tensors(_config(name), {k: v for k, v in shapes.items() if k != first})


def test_quantized_parts_stay_with_their_projection() -> None:
    """compressed-tensors' names and GPTQ's. Control: a part that nobody knows."""
    config, plain = _config("qwen3_moe"), _GIVEN["qwen3_moe"][1]
    for parts in (
        ("weight_packed", "weight_scale", "weight_shape"),
        ("qweight", "qzeros", "scales", "g_idx"),
        ("weight", "weight_scale", "weight_scale_2", "input_scale"),
    ):
        shapes = {
            f"{name.removesuffix('weight')}{part}": shape if part == "weight" else (1,)
            for name, shape in plain.items()
            for part in parts
        }
        found = group_expert_tensors(config, shapes)
        assert {tuple(group.tensors) for group in found.groups} == {parts}
        assert len(found.groups) == L * E * 3
        odd = f"{next(iter(plain)).removesuffix('weight')}odd"
        assert group_expert_tensors(config, {**shapes, odd: (1,)}).unaccounted == (odd,)


def test_layers_and_experts_as_the_config_says() -> None:
    """Experts in a dense layer, too many experts; a layer past the last is told apart."""
    config, shapes = _config("deepseek_v3"), _GIVEN["deepseek_v3"][1]
    early = {name.replace("layers.1.", "layers.0."): s for name, s in shapes.items()}
    with pytest.raises(WeightError, match="layer 0 has experts"):
        group_expert_tensors(config, {**shapes, **early})
    fifth = {n.replace(".experts.0.", f".experts.{E}."): s for n, s in shapes.items() if ".0." in n}
    with pytest.raises(WeightError, match=f"of expert {E}"):
        group_expert_tensors(config, {**shapes, **fifth})
    later = {name.replace("layers.1.", "layers.2."): s for name, s in shapes.items()}
    assert group_expert_tensors(config, {**shapes, **later}).beyond == (2,)
    assert group_expert_tensors(config, shapes).beyond == ()


def test_a_type_that_nobody_knows_is_not_guessed() -> None:
    """proves: S7. Control: the same tensors of a known type."""
    shapes = _GIVEN["mixtral"][1]
    for model_type in ("made_up", "llama"):
        with pytest.raises(UnsupportedExpertsError, match=r"spec"):
            group_expert_tensors({**_config("mixtral"), "model_type": model_type}, shapes)
    assert group_expert_tensors(_config("mixtral"), shapes).groups
