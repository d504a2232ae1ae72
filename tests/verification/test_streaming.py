# proves: P2
"""A reference whose weights stay in the checkpoint is the same function, and takes less memory."""

from __future__ import annotations

import json
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tests.twins.cases import BASES as TWINS
from tests.twins.twin import build_twin, draw_prompt, export_twin

from assay.errors import UnjudgedError
from assay.graph import ExportOptions
from assay.verification import load_reference
from assay.verification.float_proof import measure_reference
from assay.verification.folder import open_folder
from assay.verification.layers import run_layers
from assay.verification.quantized_proof import judge_quantized
from assay.verification.reference import run_half, run_logits
from assay.verification.streaming import find_stream

BASES = list(TWINS.values())


@pytest.fixture(params=BASES, ids=lambda case: case.model_type)
def checkpoint(request, tmp_path):
    build_twin(request.param, 0.12, tmp_path / "hf")
    return tmp_path / "hf"


def test_the_same_logits_noise_and_streams(checkpoint):
    """Bit-equal in float32, float64 (by the noise) and float16; nothing stays in memory.

    Control: other weights in the file give other logits.
    """
    ids = draw_prompt(60)
    resident, streamed = load_reference(checkpoint), load_reference(checkpoint, streamed=True)
    assert find_stream(resident) is None
    assert find_stream(streamed) is not None
    ours, theirs = measure_reference(streamed, ids), measure_reference(resident, ids)
    np.testing.assert_array_equal(ours.prompt.logits_SV, theirs.prompt.logits_SV)
    np.testing.assert_array_equal(ours.prompt.noise.error_P, theirs.prompt.noise.error_P)
    np.testing.assert_array_equal(run_half(streamed, ids), run_half(resident, ids))
    left, right = run_layers(streamed, ids), run_layers(resident, ids)
    assert list(left) == list(right)
    assert len(left) > 1
    for name in left:
        np.testing.assert_array_equal(left[name], right[name])
    assert all(p.is_meta for p in streamed.parameters())
    file = checkpoint / "model.safetensors"
    tensors = load_file(file)
    name = next(n for n in tensors if n.endswith("norm.weight") or "ln_f" in n or "o_proj" in n)
    save_file({**tensors, name: tensors[name] * np.float32(1.1)}, file)
    changed = run_logits(load_reference(checkpoint, streamed=True), ids)
    assert not np.array_equal(changed, theirs.prompt.logits_SV)


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "gemma2", "phi3"])
@pytest.mark.parametrize("with_manifest", [True, False])
def test_decoded_weights_are_laid_over(model_type, with_manifest, tmp_path):
    """The two-part proof finds the same numbers with weights read from the file. proves: P7"""
    case = next(c for c in BASES if c.model_type == model_type)
    build_twin(case, 0.12, tmp_path / "hf")
    export_twin(tmp_path / "hf", tmp_path / "out", options=ExportOptions(precision="int4"))
    if not with_manifest:
        (tmp_path / "out" / "manifest.json").unlink()
    folder, ids = open_folder(tmp_path / "out"), draw_prompt(60)
    found = [
        judge_quantized(folder, load_reference(tmp_path / "hf", streamed=streamed), ids)
        for streamed in (True, False)
    ]
    assert [c.name for c in found[0]] == [c.name for c in found[1]]
    for ours, theirs in zip(*found, strict=True):
        assert (ours.passed, ours.metrics.get("rel_l2")) == (
            theirs.passed,
            theirs.metrics.get("rel_l2"),
        ), ours.name
    graph = next(c for c in found[0] if c.name == "decoded_prefill")
    assert graph.passed or not with_manifest


def test_a_missing_tensor_is_told(tmp_path):
    build_twin(BASES[0], 0.12, tmp_path / "hf")
    tensors = load_file(tmp_path / "hf" / "model.safetensors")
    name = next(n for n in tensors if "layers.1" in n and "down_proj" in n)
    tensors.pop(name)
    save_file(tensors, tmp_path / "hf" / "model.safetensors")
    with pytest.raises(UnjudgedError, match="no tensor of their shape"):
        load_reference(tmp_path / "hf", streamed=True)


def test_memory_decides(tmp_path, monkeypatch):
    """Where the weights don't fit twice they stay in the file; control: where they do, not."""
    build_twin(BASES[0], 0.12, tmp_path / "hf")
    assert find_stream(load_reference(tmp_path / "hf")) is None
    monkeypatch.setattr("assay.verification.reference.read_available_bytes", lambda: 1 << 30)
    assert find_stream(load_reference(tmp_path / "hf")) is not None


_CHILD = """
import sys
import numpy as np
from assay.verification import load_reference
from assay.verification.reference import run_with_noise
mode, folder = sys.argv[1:]
import torch, transformers, accelerate
from transformers import LlamaForCausalLM
if mode != "nothing":
    model = load_reference(folder, streamed=mode == "streamed")
    run_with_noise(model, np.arange(40) + 3)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(int(status["VmHWM"].split()[0]) * 1024)  # ru_maxrss would count the parent before exec
"""


def test_peak_memory_is_a_layer_not_the_model(tmp_path):
    """Above what the imports take: a layer and a head's block. Control: resident takes it all."""
    size = _write_llama(tmp_path, layers=12, hidden=1024, inner=2816, vocab=32000)
    peaks = {mode: _measure_peak(mode, tmp_path) for mode in ("nothing", "streamed", "resident")}
    assert peaks["streamed"] - peaks["nothing"] < 0.45 * size
    assert peaks["resident"] - peaks["nothing"] > 0.9 * size


def _measure_peak(mode, folder):
    command = [sys.executable, "-c", _CHILD, mode, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


def _write_llama(folder, *, layers, hidden, inner, vocab):
    """A bf16 llama of zeros and ones; returns what its weights take in float32."""
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "lm_head.weight": (vocab, hidden)}
    for index in range(layers):
        for name, shape in {
            "self_attn.q_proj": (hidden, hidden),
            "self_attn.k_proj": (hidden // 4, hidden),
            "self_attn.v_proj": (hidden // 4, hidden),
            "self_attn.o_proj": (hidden, hidden),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
        }.items():
            shapes[f"model.layers.{index}.{name}.weight"] = shape
    shapes["model.norm.weight"] = (hidden,)
    pool = (np.random.default_rng(0).standard_normal(1 << 20) * 0.02).astype(ml_dtypes.bfloat16)
    tensors = {name: np.resize(pool, shape) for name, shape in shapes.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_attention_heads": 16,
        "num_hidden_layers": layers,
        "num_key_value_heads": 4,
        "vocab_size": vocab,
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config))
    return 4 * sum(int(np.prod(shape)) for shape in shapes.values())
