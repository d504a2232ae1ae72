"""Defaults that specs carry are those of transformers' config classes.

proves: S13 (config part), B3. Run on both ends of the supported range.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import assay.models  # noqa: F401
from assay.errors import ConfigError
from assay.spec import ConfigSpec, DecoderPlan, ModelConfig, ModelSpec, get_specs, resolve_model
from tests.twins.cases import HERE, TwinCase
from tests.twins.twin import make_config

SPECS = [spec for spec in get_specs() if spec.decoder_spec is not None]
# transformers can't build ministral without it (it is used as it is, None included).
NEEDED: dict[str, dict[str, Any]] = {"ministral": {"head_dim": 128}}
SWITCHED_ON = {"use_sliding_window": True}


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.model_type)
def test_table_of_defaults(spec: ModelSpec) -> None:
    """Every default in a spec is the config class's own."""
    config = _default_config(spec)
    assert spec.config_spec is not None
    wrong = {
        key: (value, _class_default(config, key))
        for key, value in spec.config_spec.defaults.items()
        if not _same_default(config, key, value)
    }
    assert not wrong


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.model_type)
def test_empty_config_means_the_class_defaults(spec: ModelSpec) -> None:
    """A config.json without a single key resolves like one with every default written out."""
    config = CONFIG_MAPPING[spec.model_type](**NEEDED.get(spec.model_type, {}))
    written = json.loads(config.to_json_string(use_diff=False))
    empty = {"model_type": spec.model_type, **NEEDED.get(spec.model_type, {})}
    assert _plan(empty) == _plan(written)


@pytest.mark.parametrize("case", HERE, ids=lambda case: case.id)
def test_left_out_keys_change_nothing(case: TwinCase) -> None:
    """Files on the hub hold only what differs from the defaults."""
    try:
        config = make_config(case)
    except (ValueError, KeyError) as exc:
        pytest.fail(f"transformers refuses the twin's config: {exc}")
    full = json.loads(config.to_json_string(use_diff=False))
    short = json.loads(config.to_json_string(use_diff=True))
    assert len(short) < len(full)
    assert _plan(short) == _plan(full)


def test_a_changed_default_is_noticed() -> None:
    """Negative control: the comparison sees one wrong value."""
    spec = next(spec for spec in SPECS if spec.model_type == "llama")
    config = _default_config(spec)
    assert _same_default(config, "rms_norm_eps", 1e-6)
    assert not _same_default(config, "rms_norm_eps", 1e-5)
    without = ModelConfig({}, ConfigSpec(defaults={}), where="config.json")
    with pytest.raises(ConfigError, match="is missing"):
        without.get("hidden_size")


def _default_config(spec: ModelSpec) -> Any:
    assert spec.config_spec is not None
    facts: dict[str, Any] = dict(NEEDED.get(spec.model_type, {}))
    if "use_sliding_window" in spec.config_spec.defaults:
        facts |= SWITCHED_ON
    return CONFIG_MAPPING[spec.model_type](**facts)


def _class_default(config: Any, key: str) -> Any:
    return getattr(config, "_sliding_window_pattern" if key == "sliding_window_pattern" else key)


def _same_default(config: Any, key: str, value: Any) -> bool:
    found = _class_default(config, key) if key != "head_dim" else getattr(config, key, None)
    if key == "use_sliding_window":
        return value is False  # switched on above, to see the window behind it
    if key == "no_rope_layers":
        return value is None  # the class writes its own rule out; the plans are compared below
    if value is None and key == "num_key_value_heads":
        return found in (None, config.num_attention_heads)
    if value is None and key == "head_dim":
        return found in (None, config.hidden_size // config.num_attention_heads, 128)
    return bool(found == value)


def _plan(config: dict[str, Any]) -> DecoderPlan:
    return resolve_model(config, where="config.json").plan
