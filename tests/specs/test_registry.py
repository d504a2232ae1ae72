"""The registry, and configs that it must refuse or read.

proves: S1, S2, S5 (look-up by model_type), B1, B3
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import assay.models  # noqa: F401
from assay.errors import ConfigError, UnknownArchitectureError, WeightError
from assay.spec import ModelSpec, WeightsSpec, get_spec, get_specs, register, resolve_model
from assay.spec.vocabulary import Attention
from assay.spec.weights import WeightMap

TINY: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 99,
    "intermediate_size": 80,
}


def test_registering_twice_is_a_value_error() -> None:
    """One spec a model_type."""
    with pytest.raises(ValueError, match="registered twice"):
        register(dataclasses.replace(get_spec("llama")))


def test_specs_are_frozen_and_keyword_only() -> None:
    """Facts can't change after registration."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        get_spec("llama").model_type = "x"  # type: ignore[misc]
    with pytest.raises(TypeError):
        ModelSpec("llama", ("X",))  # type: ignore[misc]


def test_unknown_type_names_the_nearest() -> None:
    """A misspelled or unknown architecture gets a hint."""
    with pytest.raises(UnknownArchitectureError, match="llama"):
        get_spec("lama")


def test_every_spec_says_where_its_model_lives() -> None:
    """Names are filled in and unique."""
    for spec in get_specs():
        assert spec.architectures
        assert spec.modeling_source in ("transformers", "remote_code")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"surprise": 3}, "surprise"),
        ({"rms_norm_esp": 1e-5}, "did you mean 'rms_norm_eps'"),
        ({"num_key_value_heads": 3}, "4 attention heads can't share 3"),
        ({"num_hidden_layers": "2"}, "num_hidden_layers is '2'"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"hidden_size": 65}, "65 doesn't divide by 4"),
        ({"rope_scaling": {"rope_type": "spiral"}}, "'spiral' is unknown"),
        ({"rope_scaling": {"rope_type": "linear"}}, "needs factor"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0, "beta_fast": 3}}, "beta_fast"),
        (
            {
                "rope_scaling": {
                    "rope_type": "longrope",
                    "short_factor": [1.0],
                    "long_factor": [1.0] * 8,
                }
            },
            "short_factor has 1",
        ),
        (
            {
                "rope_scaling": {"rope_type": "linear", "factor": 2.0},
                "rope_parameters": {"rope_type": "default"},
            },
            "both given",
        ),
        ({"rope_interleaved": True}, "asks for something"),
        ({"is_encoder_decoder": True}, "asks for something"),
    ],
)
def test_bad_configs_are_refused(change: dict[str, Any], message: str) -> None:
    """Each gets an error that names the key; without the change the config resolves."""
    resolve_model(TINY, where="config.json")
    with pytest.raises(ConfigError, match=message):
        resolve_model({**TINY, **change}, where="config.json")


def test_a_mistral_file_with_layer_types_is_a_ministral() -> None:
    """As transformers' AutoConfig reads it. proves: B3. Control: without the key it isn't."""
    facts = {**TINY, "model_type": "mistral", "num_key_value_heads": 2, "sliding_window": 40}
    types = ["full_attention"] + ["sliding_attention"] * (TINY["num_hidden_layers"] - 1)
    mixed = resolve_model({**facts, "layer_types": types}, where="c")
    assert mixed.spec.model_type == "ministral"
    windows = [attention.window for attention in mixed.plan.attentions]
    assert windows == [None] + [40] * (len(types) - 1)
    plain = resolve_model(facts, where="c")
    assert plain.spec.model_type == "mistral"
    assert {attention.window for attention in plain.plan.attentions} == {40}


def test_a_key_that_the_user_vouches_for_is_let_through() -> None:
    """--ignore-config-key."""
    resolve_model({**TINY, "surprise": 3}, where="c", ignored_config_keys=("surprise",))


def test_gemma3_reads_its_text_part() -> None:
    """The text config inside gemma3 resolves like gemma3_text on its own."""
    text = {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 6,
        "intermediate_size": 80,
        "vocab_size": 99,
        "head_dim": 16,
    }
    whole = {
        "model_type": "gemma3",
        "text_config": {"model_type": "gemma3_text", **text},
        "vision_config": {"hidden_size": 3},
        "mm_tokens_per_image": 256,
    }
    alone = resolve_model({"model_type": "gemma3_text", **text}, where="c")
    nested = resolve_model(whole, where="c")
    assert nested.plan == alone.plan
    assert nested.genai_model_type == "gemma3_text"
    windows = [
        layer.branches[0].mixer.window
        for layer in nested.plan.layers
        if isinstance(layer.branches[0].mixer, Attention)
    ]
    assert windows == [4096] * 5 + [None]


def test_new_and_old_rope_spelling_mean_the_same() -> None:
    """rope_parameters of transformers 5, rope_theta and rope_scaling of 4."""
    old = {**TINY, "rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}}
    new = {**TINY, "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}}
    plain = {**TINY, "rope_theta": 5e5}
    plans = [resolve_model(config, where="c").plan for config in (old, new, plain)]
    assert plans[0] == plans[1]
    assert plans[0] != plans[2]


def test_weight_map_accounts_for_every_tensor() -> None:
    """Missing, misshapen, unmapped and doubled tensors are errors; ignored ones are not."""
    spec = WeightsSpec(renames=(("old.", "new."),), ignored=(("*.inv_freq", "recomputed"),))
    shapes: dict[str, tuple[int, ...]] = {"old.a": (2, 3), "b": (4,), "x.inv_freq": (9,)}
    weights = WeightMap(shapes, (spec,), where="checkpoint")
    assert weights.use("new.a", (2, 3)) == "old.a"
    with pytest.raises(WeightError, match="missing"):
        weights.use("c", (4,))
    with pytest.raises(WeightError, match=r"shape \[4\]"):
        weights.use("b", (5,))
    with pytest.raises(WeightError, match="no place in the spec: b"):
        weights.check_all_used()
    weights.use("b", (4,))
    weights.check_all_used()
    with pytest.raises(WeightError, match="both stand for"):
        WeightMap({"old.a": (1,), "new.a": (1,)}, (spec,), where="checkpoint")
