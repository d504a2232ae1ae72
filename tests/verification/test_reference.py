# proves: P2
"""The reference: its float64 run is the same function, and running it leaves no trace."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from assay.errors import DependencyError, OptionError, UnjudgedError
from assay.verification import load_reference
from assay.verification.reference import (
    _forward,
    find_window,
    in_float64,
    run_half,
    run_logits,
    run_with_noise,
)


def _rms_norm(x, weight, eps):
    return x / np.sqrt(np.square(x).mean(-1, keepdims=True) + eps) * weight


def _rotate(x, cos, sin):
    left, right = np.split(x, 2, axis=-1)
    return x * cos + np.concatenate([-right, left], -1) * sin


def numpy_llama(tiny, model, ids):
    """The tiny llama in float64, with the rotary tables of float32."""
    state = {k: v.numpy().astype(np.float64) for k, v in model.state_dict().items()}
    exponent = torch.arange(0, tiny.HEAD_DIM, 2, dtype=torch.int64).float() / tiny.HEAD_DIM
    angles = torch.arange(len(ids)).float()[:, None] * (1.0 / tiny.THETA**exponent)
    cos, sin = (np.tile(t.numpy().astype(np.float64), 2) for t in (angles.cos(), angles.sin()))
    hidden = state["model.embed_tokens.weight"][ids]

    def linear(x, name):
        return x @ state[name + ".weight"].T + state.get(name + ".bias", 0.0)

    mask = np.triu(np.full((len(ids), len(ids)), -np.inf), 1)
    for layer in range(tiny.LAYERS):
        base = f"model.layers.{layer}"
        normed = _rms_norm(hidden, state[f"{base}.input_layernorm.weight"], tiny.EPS)
        q, k, v = (
            linear(normed, f"{base}.self_attn.{n}_proj")
            .reshape(len(ids), -1, tiny.HEAD_DIM)
            .transpose(1, 0, 2)
            for n in "qkv"
        )
        q, k = _rotate(q, cos, sin), np.repeat(_rotate(k, cos, sin), 2, axis=0)
        scores = q @ k.transpose(0, 2, 1) * tiny.HEAD_DIM**-0.5 + mask
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        mixed = (weights @ np.repeat(v, 2, axis=0)).transpose(1, 0, 2).reshape(len(ids), -1)
        hidden = hidden + linear(mixed, f"{base}.self_attn.o_proj")
        normed = _rms_norm(hidden, state[f"{base}.post_attention_layernorm.weight"], tiny.EPS)
        gate = linear(normed, f"{base}.mlp.gate_proj")
        inner = gate / (1 + np.exp(-gate)) * linear(normed, f"{base}.mlp.up_proj")
        hidden = hidden + linear(inner, f"{base}.mlp.down_proj")
    return linear(_rms_norm(hidden, state["model.norm.weight"], tiny.EPS), "lm_head")


def test_float64_run_is_float64_throughout(tiny, ids):
    model = tiny.build_model()
    with in_float64(model):
        found = _forward(model, ids[:200]).numpy()
    truth = numpy_llama(tiny, model, ids[:200])
    assert found.dtype == np.float64
    assert np.linalg.norm(found - truth) / np.linalg.norm(truth) < 1e-13
    model.double()  # control: a plain cast leaves norms and softmax in float32
    plain = _forward(model, ids[:200]).numpy()
    assert np.linalg.norm(plain - truth) / np.linalg.norm(truth) > 1e-9


def test_noise_run_leaves_the_model_as_it_was(tiny, ids):
    model = tiny.build_model()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    buffers = {k: v.clone() for k, v in model.named_buffers()}
    logits = run_logits(model, ids[:64])
    run_with_noise(model, ids[:64])
    run_half(model, ids[:64])
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(torch.equal(v, buffers[k]) for k, v in model.named_buffers())
    assert np.array_equal(run_logits(model, ids[:64]), logits)


def test_noise_of_a_long_run_comes_from_its_beginning(tiny, ids, monkeypatch):
    model = tiny.build_model()
    full = run_with_noise(model, ids[:400]).noise
    monkeypatch.setattr("assay.verification.reference._MAX_FLOAT64_PRODUCTS", 0)
    part = run_with_noise(model, ids[:400]).noise
    assert len(part.error_P) == 400
    assert part.rel_l2(slice(0, 256)) == pytest.approx(full.rel_l2(slice(0, 256)), rel=0.05)
    assert part.rel_l2() == pytest.approx(full.rel_l2(), rel=0.3)
    assert part.max_abs_P[300] == pytest.approx(full.max_abs_P.mean(), rel=0.3)


def test_a_long_prompt_does_not_change_a_later_short_one(tiny, ids):
    """Dynamic rope scaling remembers the longest sequence; the judge must not."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        max_position_embeddings=32,
        rope_scaling={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0},
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM._from_config(config, attn_implementation="eager").eval()
    short = run_logits(model, ids[:100])
    run_logits(model, ids[:400])
    assert np.array_equal(run_logits(model, ids[:100]), short)
    _forward(model, ids[:400])  # control: without the judge's care it does change
    assert not np.array_equal(_forward(model, ids[:100]).numpy(), short)


def test_window_of_a_config(tiny):
    from transformers import Gemma2Config, LlamaConfig, MistralConfig, Qwen2Config

    assert find_window(MistralConfig(sliding_window=16)) == 16
    assert find_window(MistralConfig(sliding_window=None)) is None
    assert find_window(LlamaConfig()) is None
    assert find_window(Qwen2Config(sliding_window=8, use_sliding_window=False)) is None
    assert find_window(Gemma2Config(sliding_window=24)) == 24


def test_missing_reference_is_unjudged(tmp_path):
    with pytest.raises(UnjudgedError, match="can't load the reference"):
        load_reference(tmp_path)


def test_missing_torch_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(DependencyError, match=r"pip install 'assay\[verify\]'"):
        load_reference(tmp_path)


def test_a_device_that_is_not_there_is_told(tiny, tmp_path):
    """Control: the processor is."""
    tiny.build_model().save_pretrained(tmp_path)
    for streamed in (False, True):
        model = load_reference(tmp_path, device="cpu", streamed=streamed)
        assert run_logits(model, np.arange(5)).shape == (5, 256)
    for device in ("cuda:7", "nonsense"):
        with pytest.raises(OptionError, match="can't compute"):
            load_reference(tmp_path, device=device)
