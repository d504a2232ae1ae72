"""Frequencies and factors of every rope kind equal transformers' own functions.

proves: B5. The full models are judged in tests/twins; this pins each formula at real sizes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers
from packaging.version import Version
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from assay.blocks.rope_tables import compute_attention_factor, compute_frequencies, compute_tables
from assay.spec import resolve_model
from assay.spec.vocabulary import Attention, Rope

V5 = Version(transformers.__version__) >= Version("5")
SIZES: dict[str, Any] = {
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 1,
    "max_position_embeddings": 131072,
}
LONG = {
    "short_factor": [1 + i / 50 for i in range(64)],
    "long_factor": [1 + i / 3 for i in range(64)],
    "original_max_position_embeddings": 4096,
}
SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"factor": 4.0},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "yarn": {"factor": 32.0, "original_max_position_embeddings": 4096},
    "yarn truncate": {"factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False},
    "yarn mscale": {
        "factor": 32.0,
        "original_max_position_embeddings": 4096,
        "mscale": 0.7,
        "mscale_all_dim": 1.2,
        "beta_fast": 24,
        "beta_slow": 2,
    },
    "longrope": LONG,
    "longrope factor": {**LONG, "factor": 16.0},
    "longrope given": {**LONG, "attention_factor": 1.25},
    "proportional": {"partial_rotary_factor": 0.25},
}
# 4.57 has no proportional rope, and takes longrope's factor from the lengths alone.
KINDS = [name for name in SCALINGS if V5 or name not in ("proportional", "longrope factor")]


@pytest.mark.parametrize("theta", [10000.0, 1e6])
@pytest.mark.parametrize("name", KINDS)
def test_frequencies(name: str, theta: float) -> None:
    """inv_freq within 8 roundings of float32, factors exactly; the long factors too."""
    config, rope = _resolve(name, theta)
    kind = name.split()[0]
    lengths = (None, 131072) if kind == "longrope" else (None,)
    for seq_len in lengths:
        expected, factor = ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=seq_len)
        found = compute_frequencies(rope, use_long=seq_len is not None)
        np.testing.assert_allclose(found, expected.numpy(), rtol=8 * 2**-24, atol=0)
        assert compute_attention_factor(rope) == pytest.approx(factor, rel=1e-12)


def test_tables_turn_by_the_same_angle() -> None:
    """cos and sin over 8192 positions, against torch in float32."""
    _, rope = _resolve("llama3", 500000.0)
    cos, sin = compute_tables(rope, 8192)
    angles = torch.arange(8192).float()[:, None] * torch.from_numpy(compute_frequencies(rope))
    assert np.abs(cos - angles.cos().numpy()).max() < 1e-6
    assert np.abs(sin - angles.sin().numpy()).max() < 1e-6


def test_a_wrong_theta_is_seen() -> None:
    """Negative control: theta 10001 for 10000 is far outside the tolerance."""
    config, _ = _resolve("linear", 10000.0)
    _, wrong = _resolve("linear", 10001.0)
    expected, _ = ROPE_INIT_FUNCTIONS["linear"](config, "cpu")
    assert np.abs(compute_frequencies(wrong) / expected.numpy() - 1).max() > 2e-5


def _resolve(name: str, theta: float) -> tuple[LlamaConfig, Rope]:
    scaling = {"rope_type": name.split()[0], **SCALINGS[name]}
    more = {
        key: scaling[key]
        for key in scaling
        if name.startswith("longrope") and key == "original_max_position_embeddings"
    }
    config = LlamaConfig(**SIZES, rope_theta=theta, rope_scaling=scaling, **more)
    plan = resolve_model({**config.to_dict(), "model_type": "llama"}, where="config.json").plan
    attention = plan.layers[0].branches[0].mixer
    assert isinstance(attention, Attention)
    assert attention.rope is not None
    return config, attention.rope
