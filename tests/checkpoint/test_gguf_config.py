"""Config and generation config rebuilt from GGUF metadata; keys that aren't understood."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.checkpoint import open_checkpoint
from assay.errors import CheckpointError

TOKENS = ["<s>", "</s>", "<|eot_id|>", "<end_of_turn>", *(f"t{i}" for i in range(12))]


def read_config(path: Path) -> dict[str, Any]:
    with open_checkpoint(path) as checkpoint:
        return checkpoint.config


# proves: B3
def test_llama_config(make_gguf: Callable[..., Path]) -> None:
    ids = {"tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 1}
    assert read_config(make_gguf(changes=ids)) == {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 16,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "hidden_act": "silu",
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }


# proves: B3
def test_what_the_tensors_say_reaches_the_config(make_gguf: Callable[..., Path]) -> None:
    tensors = {
        "output.weight": np.zeros((16, 32), np.float32),
        "blk.0.attn_q.bias": np.zeros(32, np.float32),
        "blk.0.ffn_down.bias": np.zeros(32, np.float32),
    }
    config = read_config(make_gguf(tensors))
    assert not config["tie_word_embeddings"]
    assert config["attention_bias"]
    assert config["mlp_bias"]


# proves: B3
def test_absent_keys_have_the_defaults_of_llama_cpp(make_gguf: Callable[..., Path]) -> None:
    changes = dict.fromkeys(
        ("llama.attention.head_count_kv", "llama.rope.freq_base", "llama.rope.dimension_count")
    )
    config = read_config(make_gguf(changes=changes))
    assert config["num_key_value_heads"] == 4
    assert config["rope_theta"] == 10000.0
    assert config["head_dim"] == 8


# proves: B3
def test_gemma3_config(make_gguf: Callable[..., Path]) -> None:
    config = read_config(make_gguf(architecture="gemma3"))
    assert config["model_type"] == "gemma3_text"
    assert config["layer_types"] == ["sliding_attention"] * 5 + ["full_attention"]
    assert config["sliding_window"] == 16
    assert config["rope_local_base_freq"] == 10000.0
    assert config["rope_theta"] == 1000000.0
    assert config["query_pre_attn_scalar"] == config["head_dim"] == 8
    assert config["hidden_activation"] == "gelu_pytorch_tanh"
    assert config["rms_norm_eps"] == 1e-6
    changes = {
        "gemma3.attention.sliding_window_pattern": 3,
        "gemma3.rope.freq_base_swa": 500.0,
        "gemma3.final_logit_softcapping": 30.0,
        "gemma3.rope.scaling.type": "linear",
        "gemma3.rope.scaling.factor": 8.0,
    }
    config = read_config(make_gguf(changes=changes, architecture="gemma3"))
    sliding = ["sliding_attention"] * 2 + ["full_attention"]
    assert config["layer_types"] == sliding * 2
    assert config["rope_local_base_freq"] == 500.0
    assert config["final_logit_softcapping"] == 30.0
    assert config["rope_scaling"] == {"rope_type": "linear", "factor": 8.0}
    flags = {"gemma3.attention.sliding_window_pattern": [True, False] * 3}
    config = read_config(make_gguf(changes=flags, architecture="gemma3"))
    assert config["layer_types"] == ["sliding_attention", "full_attention"] * 3


# proves: B3
def test_gemma3_27b_scales_queries_by_the_hidden_size(make_gguf: Callable[..., Path]) -> None:
    config = read_config(make_gguf(changes={"gemma3.block_count": 62}, architecture="gemma3"))
    assert config["query_pre_attn_scalar"] == 16  # hidden 32 on 2 heads, not the head size 8


# proves: B3
def test_yarn_is_rebuilt(make_gguf: Callable[..., Path]) -> None:
    changes = {
        "llama.rope.scaling.type": "yarn",
        "llama.rope.scaling.factor": 4.0,
        "llama.rope.scaling.original_context_length": 32,
        "llama.rope.scaling.yarn_beta_fast": 24.0,
    }
    assert read_config(make_gguf(changes=changes))["rope_scaling"] == {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 32,
        "beta_fast": 24.0,
    }


def llama3_tensors(head_dim: int, theta: float, scaling: dict[str, Any]) -> dict[str, np.ndarray]:
    """rope_freqs.weight as it follows from transformers' own llama3 frequencies."""
    import torch
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = LlamaConfig(
        hidden_size=head_dim * 4,
        num_attention_heads=4,
        head_dim=head_dim,
        max_position_embeddings=131072,
        rope_theta=theta,
        rope_scaling={**scaling, "rope_theta": theta},
    )
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    plain = 1.0 / theta ** (np.arange(0, head_dim, 2) / head_dim)
    return {"rope_freqs.weight": (plain / scaled.double().numpy()).astype(np.float32)}


# proves: B3
def test_llama3_scaling_is_recognized_in_its_factors(make_gguf: Callable[..., Path]) -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    tensors = llama3_tensors(64, 500000.0, scaling)
    changes = {
        "llama.embedding_length": 256,
        "llama.rope.dimension_count": 64,
        "llama.rope.freq_base": 500000.0,
    }
    found = read_config(make_gguf(tensors, changes))["rope_scaling"]
    assert found == pytest.approx(scaling)
    with open_checkpoint(make_gguf(tensors, changes)) as checkpoint:
        assert "rope_freqs.weight" not in checkpoint.tensors
    ones = {"rope_freqs.weight": np.ones(32, np.float32)}
    assert read_config(make_gguf(ones, changes))["rope_scaling"] is None
    tensors["rope_freqs.weight"][20] *= 1.001  # negative control: another scaling is refused
    with pytest.raises(CheckpointError, match="isn't llama3's scaling"):
        open_checkpoint(make_gguf(tensors, changes))


REFUSED = {
    "unknown key": ({"llama.attention.clamp_kqv": 8.0}, ("clamp_kqv", "8.0", "silently")),
    "experts": ({"llama.expert_count": 8}, ("expert_count", "8")),
    "partial rotary": ({"llama.rope.dimension_count": 4}, ("dimension_count", "head size 8")),
    "split heads": ({"llama.attention.value_length": 4}, ("value_length",)),
    "per-layer heads": ({"llama.attention.head_count_kv": [2, 4]}, ("head_count_kv", "[2, 4]")),
    "zero heads": ({"llama.attention.head_count": 0}, ("head_count", "positive")),
    "missing key": ({"llama.block_count": None}, ("block_count", "missing")),
    "wrong kind": ({"llama.block_count": "one"}, ("block_count", "'one'")),
    "nan eps": ({"llama.attention.layer_norm_rms_epsilon": float("nan")}, ("epsilon", "nan")),
    "longrope": (
        {"llama.rope.scaling.type": "longrope", "llama.rope.scaling.factor": 2.0},
        ("longrope", "none, linear or yarn"),
    ),
    "bos": ({"tokenizer.ggml.bos_token_id": 16}, ("bos_token_id", "16", "0 to 15")),
    "split": ({"split.count": 2}, ("2 parts", "--merge")),
    "alignment": ({"general.alignment": 24}, ("alignment", "24", "power of two")),
}


# proves: B3
@pytest.mark.parametrize("fault", REFUSED)
def test_metadata_that_is_not_understood_is_refused(
    fault: str, make_gguf: Callable[..., Path]
) -> None:
    changes, words = REFUSED[fault]
    open_checkpoint(make_gguf()).close()  # control
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(make_gguf(changes=changes))
    assert "model.gguf" in caught.value.where
    assert caught.value.next_step
    for word in words:
        assert word in str(caught.value), str(caught.value)


# proves: B1
def test_other_architectures_are_refused(make_gguf: Callable[..., Path]) -> None:
    with pytest.raises(CheckpointError, match="'qwen2'") as caught:
        open_checkpoint(make_gguf(architecture="qwen2"))
    assert "llama, gemma3" in caught.value.expected


# proves: B3
def test_tensors_that_do_not_fit_are_refused(make_gguf: Callable[..., Path]) -> None:
    def refuse(name: str, shape: tuple[int, ...], *words: str) -> None:
        with pytest.raises(CheckpointError) as caught:
            open_checkpoint(make_gguf({name: np.zeros(shape, np.float32)}))
        for word in words:
            assert word in str(caught.value)

    refuse("blk.0.ffn_gate_exps.weight", (2, 4, 32), "ffn_gate_exps", "llama")
    refuse("blk.00.ffn_gate.weight", (4, 32), "blk.00")
    refuse("blk.0.attn_q.weight", (30, 32), "30 rows", "4 heads")
    refuse("blk.0.attn_k.weight", (32, 32), "32 rows", "2 heads")


# proves: B11
def test_all_ids_that_end_a_turn_are_in_the_generation_config(
    make_gguf: Callable[..., Path],
) -> None:
    tokens = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": TOKENS}
    ids = {
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.padding_token_id": 4,
        "tokenizer.ggml.eot_token_id": 5,
    }
    with open_checkpoint(make_gguf(changes=tokens | ids)) as checkpoint:
        expected = {"bos_token_id": 0, "pad_token_id": 4, "eos_token_id": [1, 5, 2, 3]}
        assert checkpoint.generation_config == expected
        assert checkpoint.config["eos_token_id"] == 1
    with open_checkpoint(make_gguf(changes=ids | {"tokenizer.ggml.eot_token_id": None})) as found:
        assert found.generation_config["eos_token_id"] == 1  # control: no vocabulary, no names
