"""A config value of the wrong kind is a clear error, not a traceback or another model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.errors import ConfigError
from assay.pipeline import export
from tests.pipeline.tiny import make_config, make_tensors, write_llama

SMALL = {"tensors": make_tensors(make_config())}
LONG = [1.0] * 8
# Values of the wrong kind. Facts are small, weights are those of the config as it should be.
KIND_FAULTS = {
    "hidden_size": "64",
    "vocab_size": True,
    "num_hidden_layers": 2.0,
    "num_attention_heads": None,
    "rope_scaling": [2.0],
}
UNTYPED_FAULTS: dict[str, tuple[str, Any]] = {
    "eps as text": ("rms_norm_eps", "1e-5"),
    "no eps": ("rms_norm_eps", None),
    "eps NaN": ("rms_norm_eps", float("nan")),
    "theta as text": ("rope_theta", "1e4"),
    "theta 0": ("rope_theta", 0),
    "tied as text": ("tie_word_embeddings", "no"),
    "bias as text": ("attention_bias", "no"),
    "no key/value heads": ("num_key_value_heads", 0),
    "no channels": ("head_dim", 0),
    "channels as text": ("head_dim", "16"),
    "factor 0": ("rope_scaling", {"rope_type": "linear", "factor": 0}),
    "factor as text": ("rope_scaling", {"rope_type": "linear", "factor": "2"}),
    "rope type": ("rope_scaling", {"rope_type": ["linear"], "factor": 2.0}),
    "truncate as text": ("rope_scaling", {"rope_type": "yarn", "factor": 2.0, "truncate": "no"}),
    "factors as a number": (
        "rope_scaling",
        {"rope_type": "longrope", "short_factor": 1.0, "long_factor": LONG},
    ),
}


def check_kind(key: str, value: Any, tmp_path: Path, room: Path) -> None:
    """A config value of the wrong kind is a ConfigError that shows it; the honest twin exports."""
    checkpoint = write_llama(tmp_path / "checkpoint", **{**SMALL, key: value})
    with pytest.raises(ConfigError) as caught:
        export(checkpoint, room / "out", check_loading=False)
    assert "config.json" in caught.value.where
    assert caught.value.expected
    assert list(room.iterdir()) == []
    export(write_llama(tmp_path / "honest", **SMALL), room / "out", check_loading=False)


@pytest.mark.parametrize("key", KIND_FAULTS)
def test_a_value_of_the_wrong_kind(key: str, tmp_path: Path, room: Path) -> None:
    """proves: B3. Control: the honest twin, in check_kind."""
    check_kind(key, KIND_FAULTS[key], tmp_path, room)


@pytest.mark.parametrize("case", UNTYPED_FAULTS)
def test_a_value_that_only_floats_and_flags_have(case: str, tmp_path: Path, room: Path) -> None:
    """proves: B3. Control: the honest twin, in check_kind."""
    check_kind(*UNTYPED_FAULTS[case], tmp_path, room)
