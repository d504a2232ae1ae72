"""Expert tensors from names, dtypes and shapes alone, for every type and every published form.

proves: S2, S7, B3. The truth is the live model's own parameters, found without a name.
"""

from __future__ import annotations

from math import prod
from typing import Any

import pytest

import assay.models  # noqa: F401
from assay.errors import ConfigError, WeightError
from assay.spec import (
    ExpertFilesFound,
    UnsupportedExpertsError,
    get_specs,
    group_expert_tensors,
)
from tests.registry.files_check import FILE_EXCEPTIONS, save_instance
from tests.registry.published import (
    PUBLISHED,
    QUANTIZED,
    E,
    H,
    I,
    L,
    Stored,
    find_projection,
    quantize,
)
from tests.registry.tiny import UNBUILT, has_type

TYPES = sorted(
    spec.model_type
    for spec in get_specs()
    if spec.moe_spec is not None and has_type(spec.model_type)
)


def _list_grouped(found: ExpertFilesFound) -> list[str]:
    return [name for group in found.groups for name in group.tensors.values()]


def _config(name: str) -> dict[str, Any]:
    return {**PUBLISHED[name][0], "model_type": name.split(",")[0]}


def _without(stored: Stored, *names: str) -> Stored:
    return {name: kept for name, kept in stored.items() if name not in names}


@pytest.mark.parametrize("model_type", [t for t in TYPES if t not in {*FILE_EXCEPTIONS, *UNBUILT}])
def test_every_type_as_transformers_saves_it(model_type: str) -> None:
    """All values of the experts and no others. Control: a checkpoint that lacks one tensor."""
    config, stored, count, _ = save_instance(model_type)
    found = group_expert_tensors(config, stored)
    names = _list_grouped(found)
    assert len(names) == len(set(names))
    assert sum(prod(stored[name][1]) for name in names) == count
    assert found.unaccounted == ()
    weights = [group.tensors["weight"] for group in found.groups if group.projection == "down"]
    with pytest.raises(WeightError, match=r"lacks|no experts"):
        group_expert_tensors(config, _without(stored, weights[-1]))


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_forms(name: str) -> None:
    """Grouped whole, by layer, projection and expert; what stands beside is left alone."""
    stored = PUBLISHED[name][1]
    beside: Stored = {
        "model.embed_tokens.weight": ("BF16", (100, H)),
        "model.layers.0.mlp.gate.weight": ("BF16", (E, H)),
        "model.layers.0.mlp.shared_experts.up_proj.weight": ("BF16", (I, H)),
    }
    found = group_expert_tensors(_config(name), {**beside, **stored})
    assert sorted(_list_grouped(found)) == sorted(stored)
    second = {group.expert for group in found.groups if group.second}
    assert second == (set(range(E, 2 * E)) if name.startswith("ernie") else set())
    assert found.num_experts == E + len(second)
    assert found.unaccounted == found.beyond == found.predicting == ()
    assert found.files is not None
    apart = "{expert}" in found.files.down
    places = set()
    for group in found.groups:
        for tensor in group.tensors.values():
            parts = tensor.split(".")
            assert parts[parts.index(str(group.layer)) - 1] in ("layers", "blocks")
            assert (group.expert is not None) == apart
            assert not apart or f"experts.{group.expert}." in tensor
            assert find_projection(tensor) == group.projection
        places.add((group.layer, group.projection, group.expert))
    assert len(places) == len(found.groups)


@pytest.mark.parametrize("name", PUBLISHED)
def test_each_tensor_counts(name: str) -> None:
    """Without it, misnamed, of another shape, or with a stranger beside it: never silent."""
    config, stored = _config(name), PUBLISHED[name][1]
    for tensor, (dtype, shape) in stored.items():
        with pytest.raises(WeightError, match=r"lacks|no experts"):
            group_expert_tensors(config, _without(stored, tensor))
        turned = (*shape[:-2], *shape[:-3:-1])
        for other in (turned, (*shape[:-1], 7), (*shape, 1), shape[1:]):
            with pytest.raises(WeightError, match="shape"):
                group_expert_tensors(config, {**stored, tensor: (dtype, other)})
        misnamed = {**_without(stored, tensor), f"{tensor}x": (dtype, shape)}
        with pytest.raises(WeightError, match=r"lacks|no experts"):
            group_expert_tensors(config, misnamed)
        more = group_expert_tensors(config, {**stored, f"{tensor}_odd": (dtype, shape)})
        assert more.unaccounted == (f"{tensor}_odd",)


@pytest.mark.parametrize("name", PUBLISHED)
def test_nothing_is_dropped(name: str) -> None:
    """All tensors under names of nobody's, or none at all; leftovers of another form."""
    config, stored = _config(name), PUBLISHED[name][1]
    wild = {
        tensor.replace("experts.", "experts.q").replace("linear", "lin"): kept
        for tensor, kept in stored.items()
    }
    for none in (wild, {}) if wild.keys() != stored.keys() else ({},):  # step3p5 says no "experts"
        with pytest.raises(WeightError, match="no tensor has a name") as caught:
            group_expert_tensors(config, none)
        assert "experts in layers" in (caught.value.expected or "")
        first = f"; {next(iter(none), None)} looks like one"
        assert caught.value.found.endswith(first if none else "publishes experts")
    left = f"{next(iter(stored)).split('.0.')[0]}.0.some.experts.w9"
    assert group_expert_tensors(config, {**stored, left: ("BF16", (1,))}).unaccounted == (left,)


@pytest.mark.parametrize("scheme", QUANTIZED)
@pytest.mark.parametrize("name", ["qwen3_moe", "deepseek_v4", "llama4, quantized elsewhere"])
def test_quantized_parts_stay_with_their_projection(name: str, scheme: str) -> None:
    """Controls: a part that one expert lacks, or has in another shape; a part nobody knows."""
    config, plain = _config(name), PUBLISHED[name][1]
    stored = quantize(plain, scheme)
    found = group_expert_tensors(config, stored)
    assert {tuple(group.tensors) for group in found.groups} == {tuple(QUANTIZED[scheme](I, H))}
    assert len(found.groups) == len(plain)
    assert found.unaccounted == ()
    for part in QUANTIZED[scheme](I, H):
        tensor = f"{next(iter(plain)).removesuffix('weight')}{part}"
        dtype, shape = stored[tensor]
        with pytest.raises(WeightError, match="lacks"):
            group_expert_tensors(config, _without(stored, tensor))
        if "quant_state" not in part:
            with pytest.raises(WeightError, match=r"shape|has .* as"):
                group_expert_tensors(config, {**stored, tensor: (dtype, (*shape, 3))})
    odd = f"{next(iter(plain)).removesuffix('weight')}odd"
    assert group_expert_tensors(config, {**stored, odd: ("U8", (1,))}).unaccounted == (odd,)


def test_packed_values_need_a_scale_and_integers() -> None:
    """Half of a float weight is no packed one; float blocks are none; two weights are too many."""
    config, plain = _config("qwen3_moe"), PUBLISHED["qwen3_moe"][1]
    name = next(iter(plain))
    for dtype, text in (("BF16", "shape"), ("U8", "lacks weight_scale"), ("I8", "shape")):
        halves = {n: (dtype, (out, inputs // 2)) for n, (_, (out, inputs)) in plain.items()}
        with pytest.raises(WeightError, match=text):
            group_expert_tensors(config, halves)
    packed = quantize(plain, "AWQ")
    qweight = name.replace("weight", "qweight")
    with pytest.raises(WeightError, match="is BF16"):
        group_expert_tensors(
            config, {n: ("BF16", s) if "qweight" in n else (d, s) for n, (d, s) in packed.items()}
        )
    with pytest.raises(WeightError, match="has weight and qweight"):
        group_expert_tensors(config, {**packed, name: plain[name]})
    kept = {**_without(packed, *(qweight.replace("qweight", p) for p in QUANTIZED["AWQ"](8, 8)))}
    assert group_expert_tensors(config, {**kept, name: plain[name]}).unaccounted == ()


def test_errors_name_the_place() -> None:
    """Which expert, of which layer, and how many more; the first eight layers of the expected."""
    config, stored = _config("qwen3_moe"), PUBLISHED["qwen3_moe"][1]
    many = {**config, "num_hidden_layers": 9}
    with pytest.raises(WeightError) as caught:
        group_expert_tensors(many, stored)
    assert caught.value.found == "layer 2 has no experts, but the config says so (and 6 more)"
    assert caught.value.expected == "experts in layers 0, 1, 2, 3, 4, 5, 6, 7, ..."
    with pytest.raises(WeightError) as caught:
        group_expert_tensors({**config, "num_hidden_layers": 3}, stored)
    assert caught.value.found == "layer 2 has no experts, but the config says so"
    assert caught.value.expected == "experts in layers 0, 1, 2"
    eight = {**config, "num_hidden_layers": 8}
    with pytest.raises(WeightError) as caught:
        group_expert_tensors(eight, stored)
    assert caught.value.expected == "experts in layers 0, 1, 2, 3, 4, 5, 6, 7"
    gates = [n for n in stored if "layers.1." in n and "gate_proj" in n]
    for count, text in ((1, "layer 1 lacks gate of expert 1"), (3, " of expert 1 (and of 2 more)")):
        with pytest.raises(WeightError) as caught:
            group_expert_tensors(config, _without(stored, *gates[1 : 1 + count]))
        assert caught.value.found.endswith(text)
    packed = quantize(stored, "modelopt NVFP4")
    scale = "model.layers.1.mlp.experts.2.up_proj.input_scale"
    with pytest.raises(WeightError) as caught:
        group_expert_tensors(config, _without(packed, scale))
    assert caught.value.found == "model.layers.1: up of expert 2 lacks input_scale"
    assert caught.value.expected == "input_scale, which 3 of 4 experts have"
    with pytest.raises(WeightError) as caught:
        group_expert_tensors(config, {**packed, scale: ("F32", (2,))})
    assert caught.value.found == "model.layers.1: up of expert 2 has input_scale as F32 [2]"
    assert caught.value.expected == "F32 [], as most of the experts have"
    stacked = PUBLISHED["gpt_oss, MXFP4"][1]
    with pytest.raises(WeightError) as caught:
        group_expert_tensors(
            _config("gpt_oss, MXFP4"),
            _without(stacked, "model.layers.1.mlp.experts.down_proj_bias"),
        )
    assert caught.value.found == "model.layers.1: down lacks bias"


def test_sizes_that_are_no_numbers() -> None:
    """A config's nonsense is told, not a crash."""
    for key, value in (
        ("num_local_experts", [E, E]),
        ("num_local_experts", True),
        ("intermediate_size", "352"),
    ):
        with pytest.raises(ConfigError, match=f"{key} is"):
            group_expert_tensors({**_config("mixtral"), key: value}, PUBLISHED["mixtral"][1])


def test_a_config_without_a_width() -> None:
    """It is told by the usual name."""
    config = {key: value for key, value in _config("mixtral").items() if key != "hidden_size"}
    with pytest.raises(ConfigError, match="'hidden_size' is missing"):
        group_expert_tensors(config, PUBLISHED["mixtral"][1])


def test_parts_of_stacked_experts() -> None:
    """modelopt's names for three dimensions, FP8 in blocks. Control: scales of fewer experts."""
    config, plain = _config("llama4"), PUBLISHED["llama4"][1]
    parts: dict[str, tuple[str, tuple[int, ...]]] = {
        "weight_scale": ("F8_E4M3", (E, 4, 2 * I)),
        "weight_scale_2": ("F32", (E,)),
        "input_scale": ("F32", ()),
    }
    stored: Stored = {}
    for name, (_, (count, rows, columns)) in plain.items():
        stored[name] = "U8", (count, rows // 2, columns)
        stored |= {f"{name}_{part}": kept for part, kept in parts.items()}
    found = group_expert_tensors(config, stored)
    assert {tuple(group.tensors) for group in found.groups} == {("weight", *parts)}
    name = f"{next(iter(plain))}_weight_scale"
    for shape in ((E - 1, 4, 2 * I), (E - 1, 1), (2 * E, 1)):
        with pytest.raises(WeightError, match="has the shape"):
            group_expert_tensors(config, {**stored, name: ("F8_E4M3", shape)})


def test_a_stack_of_matrices_beside_the_experts() -> None:
    """granitemoe's experts stand in the block itself, beside the router. Control: the router."""
    config, stored = _config("granitemoe"), PUBLISHED["granitemoe"][1]
    stem = "model.layers.0.block_sparse_moe."
    router: Stored = {f"{stem}router.layer.weight": ("BF16", (E, H))}
    other: Stored = {f"{stem}third_linear.weight": ("BF16", (E, H, I))}
    found = group_expert_tensors(config, {**stored, **router, **other})
    assert found.unaccounted == tuple(other)


def test_a_bias_that_the_experts_do_not_have() -> None:
    """It is listed. Control: gpt_oss, whose experts have one, and lack it (each tensor counts)."""
    config, stored = _config("mixtral"), PUBLISHED["mixtral"][1]
    bias = "model.layers.0.block_sparse_moe.experts.0.w1.bias"
    found = group_expert_tensors(config, {**stored, bias: ("BF16", (I,))})
    assert found.unaccounted == (bias,)
    assert not any("bias" in group.tensors for group in found.groups)


def test_layers_and_experts_as_the_config_says() -> None:
    """Experts in a dense layer, too many experts; a layer past the last is told apart."""
    config, stored = _config("deepseek_v3"), PUBLISHED["deepseek_v3"][1]
    early = {name.replace("layers.1.", "layers.0."): s for name, s in stored.items()}
    with pytest.raises(WeightError, match="layer 0 has experts"):
        group_expert_tensors(config, {**stored, **early})
    fifth = {n.replace(".experts.0.", f".experts.{E}."): s for n, s in stored.items() if ".0." in n}
    with pytest.raises(WeightError, match=f"of expert {E}"):
        group_expert_tensors(config, {**stored, **fifth})
    gap = {n.replace(".experts.3.", ".experts.9."): s for n, s in stored.items()}
    with pytest.raises(WeightError, match="of expert 3"):
        group_expert_tensors(config, gap)
    later = {name.replace("layers.1.", "layers.2."): s for name, s in stored.items()}
    assert group_expert_tensors(config, {**stored, **later}).beyond == (2,)
    with pytest.raises(WeightError, match="layer 2 lacks up"):
        group_expert_tensors(
            config, {**stored, **_without(later, next(n for n in later if "up" in n))}
        )
    dense = {**config, "first_k_dense_replace": L}
    none = group_expert_tensors(dense, {})
    assert none.files is None
    assert none.num_experts == len(none.groups) == 0
    with pytest.raises(ConfigError, match="num_hidden_layers"):
        group_expert_tensors({k: v for k, v in config.items() if k != "num_hidden_layers"}, stored)
    short = {**_config("inkling_text"), "mlp_layer_types": ["sparse"]}
    with pytest.raises(ConfigError, match="fewer entries"):
        group_expert_tensors(short, PUBLISHED["inkling_text"][1])


@pytest.mark.parametrize(
    ("name", "stack"),
    [("qwen3_moe", "mtp.layers."), ("qwen3_moe", "model.mtp_layers."), ("deepseek_v4", "mtp.")],
)
def test_layers_that_predict_further_tokens(name: str, stack: str) -> None:
    """They have layers of their own count. Controls: one that lacks an expert; they alone."""
    config, stored = _config(name), PUBLISHED[name][1]
    own = {
        f"{stack}0.{tensor.split('.0.', 1)[1]}": kept
        for tensor, kept in stored.items()
        if "layers.0." in tensor
    }
    found = group_expert_tensors(config, {**stored, **own})
    assert found.predicting == (stack,)
    assert found.layers == tuple(range(L))
    assert sorted(_list_grouped(found)) == sorted({**stored, **own})
    with pytest.raises(WeightError, match="lacks"):
        group_expert_tensors(config, {**stored, **_without(own, next(iter(own)))})
    with pytest.raises(WeightError, match="no tensor has a name"):
        group_expert_tensors(config, own)


def test_a_count_of_each_layer() -> None:
    """Layers that predict further tokens have the last one's experts. Control: the first's."""
    config = {**_config("mixtral"), "model_type": "hunyuan_v1_moe", "num_experts": [E, 2]}
    del config["num_local_experts"]
    full = PUBLISHED["qwen3_moe"][1]
    later = {n: kept for n, kept in full.items() if "layers.1." in n}
    two = {n: kept for n, kept in later.items() if ".experts.0." in n or ".experts.1." in n}
    stored = {n: kept for n, kept in full.items() if n not in later} | two
    assert group_expert_tensors(config, stored).num_experts == E
    places = ("model.layers.2.", "mtp.layers.0.")
    for place in places:
        found = group_expert_tensors(
            config, stored | {n.replace("model.layers.1.", place): kept for n, kept in two.items()}
        )
        assert len(found.groups) == (E + 2 + 2) * 3
        with pytest.raises(WeightError, match="of expert 2"):
            group_expert_tensors(
                config,
                stored | {n.replace("model.layers.1.", place): kept for n, kept in later.items()},
            )


def test_one_decoder_twice() -> None:
    """The same layers under two prefixes are two models' files."""
    config, stored = _config("mixtral"), PUBLISHED["mixtral"][1]
    again = {name.removeprefix("model."): kept for name, kept in stored.items()}
    with pytest.raises(WeightError, match=r"under 'layers\.' and under 'model\.layers\.'"):
        group_expert_tensors(config, {**stored, **again})


def test_stacked_experts_of_a_type_that_nobody_knows() -> None:
    """proves: S7. By their own names. Controls: two counts, a name that one layer lacks, one name.

    Nobody says which of them is what, so nothing is called gate or up.
    """
    for name, projections in (("llama4", 2), ("gpt_oss, MXFP4", 2), ("mixtral, as", 2)):
        full = next(known for known in PUBLISHED if known.startswith(name))
        stored, config = PUBLISHED[full][1], {"model_type": "made_up"}
        found = group_expert_tensors(config, stored)
        assert found.files is None
        assert found.num_experts == E
        assert found.layers == tuple(range(L))
        assert sorted(_list_grouped(found)) == sorted(stored)
        assert {group.projection for group in found.groups} == {"gate_up_proj", "down_proj"}
        assert len(found.groups) == L * projections
        odd: Stored = {"model.layers.0.mlp.experts.0.w1.weight": ("BF16", (I, H))}
        assert group_expert_tensors(config, {**stored, **odd}).unaccounted == tuple(odd)
        assert found.predicting == ()
        ahead = {
            f"mtp.{n.split('layers.')[1]}": kept for n, kept in stored.items() if "layers.1" in n
        }
        assert group_expert_tensors(config, {**stored, **ahead}).predicting == ("mtp.",)
        group = found.groups[-1].tensors
        part = next(part for part in ("weight", "blocks") if part in group)
        dtype, shape = stored[group[part]]
        for other in (
            {**stored, group[part]: (dtype, (E + 1, *shape[1:]))},
            {**stored, group[part]: (dtype, (E,))},
            _without(stored, *group.values()),
            {n: kept for n, kept in stored.items() if "down_proj" in n},
        ):
            with pytest.raises(UnsupportedExpertsError):
                group_expert_tensors(config, other)


def test_a_type_that_nobody_knows_is_not_guessed() -> None:
    """proves: S7. Control: the same tensors of a known type."""
    stored = PUBLISHED["mixtral"][1]
    for model_type, text in (("made_up", "no spec says"), ("llama", "its spec has no experts")):
        with pytest.raises(UnsupportedExpertsError, match=text) as caught:
            group_expert_tensors({**_config("mixtral"), "model_type": model_type}, stored)
        assert "specs.py" in (caught.value.next_step or "")
    assert group_expert_tensors(_config("mixtral"), stored).groups
