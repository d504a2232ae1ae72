# proves: P2
"""A reference with experts runs in float64 too, and its noise is rounding."""

from __future__ import annotations

import numpy as np
import pytest
from tests.twins.twin import randomize
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from assay.verification import load_reference
from assay.verification.reference import run_logits, run_with_noise

SIZES = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "moe_intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_experts_per_tok": 2,
    "num_experts": 4,
    "num_local_experts": 4,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


@pytest.mark.parametrize("model_type", ["qwen3_moe", "mixtral", "granitemoe"])
def test_noise_of_a_mixture_of_experts(model_type, tmp_path):
    """Control: an expert exchanged for another changes the logits a thousand times more."""
    config = CONFIG_MAPPING[model_type](**SIZES)
    model = AutoModelForCausalLM.from_config(config).float().eval()
    randomize(model, 0.12)
    model.save_pretrained(tmp_path)
    ids = np.arange(3, 60)
    reference = load_reference(tmp_path)
    run = run_with_noise(reference, ids)
    noise = run.noise.rel_l2()
    assert 1e-8 < noise < 1e-5
    experts = [p for n, p in reference.named_parameters() if "experts" in n and p.ndim == 3]
    experts = experts or [p for n, p in reference.named_parameters() if "input_linear" in n]
    if not experts:
        pytest.skip("this release keeps experts apart")
    for parameter in experts:
        parameter.data[[0, 1]] = parameter.data[[1, 0]]
    changed = run_logits(reference, ids)
    relative = np.linalg.norm(changed - run.logits_SV) / np.linalg.norm(run.logits_SV)
    assert relative > 1000 * noise
