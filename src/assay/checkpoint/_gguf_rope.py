"""The rope scaling of a GGUF file, from its metadata and from the rope_freqs.weight tensor.

llama.cpp has no metadata for llama3's scaling: its converter writes the factor of every frequency
into `rope_freqs.weight` (convert_hf_to_gguf.py, LlamaModel.generate_extra_tensors). The config is
rebuilt from that tensor, and only when it reproduces the factors; transformers' loader drops them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.checkpoint._gguf_header import GgufHeader

__all__ = ["compute_llama3_factors", "read_rope_scaling"]

_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
_LLAMA3_ORIGINAL_LENGTHS = (8192, 4096, 2048, 16384, 32768)
_TOLERANCE = 1e-5


def read_rope_scaling(
    header: GgufHeader, architecture: str, config: dict[str, Any]
) -> dict[str, Any] | None:
    """Read linear, yarn or llama3 scaling; None when there is none; others are refused."""
    prefix = f"{architecture}.rope.scaling"
    kind = header.get(f"{prefix}.type", str, "none")
    if "rope_freqs.weight" in header.tensors:
        if kind != "none":
            raise header.fail(f"has rope_freqs.weight and {prefix}.type {kind!r}", "one of them")
        return _recognize_llama3(header, config)
    if kind == "none":
        return None
    factor = header.require(f"{prefix}.factor", float)
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind != "yarn":
        raise header.fail(
            f"metadata {prefix}.type is {kind!r}",
            "none, linear or yarn",
            "Use the model's safetensors checkpoint instead.",
        )
    scaling = {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": header.require(
            f"{prefix}.original_context_length", int
        ),
    }
    for name in ("beta_fast", "beta_slow"):
        value = header.get(f"{prefix}.yarn_{name}", float)
        if value is not None:
            scaling[name] = value
    if header.get(f"{prefix}.attn_factor", float, 1.0) != 1.0:
        raise header.fail(
            f"metadata {prefix}.attn_factor isn't 1",
            "1: llama.cpp and transformers disagree on what else it means",
            "Use the model's safetensors checkpoint instead.",
        )
    return scaling


def compute_llama3_factors(
    rope_theta: float, head_dim: int, scaling: dict[str, Any]
) -> npt.NDArray[np.float64]:
    """Compute what each frequency is divided by (transformers, _compute_llama3_parameters)."""
    wavelengths = 2 * math.pi * rope_theta ** (np.arange(0, head_dim, 2) / head_dim)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    cycles = scaling["original_max_position_embeddings"] / wavelengths
    smooth = np.clip((cycles - low) / (high - low), 0.0, 1.0)
    factors: npt.NDArray[np.float64] = 1.0 / ((1 - smooth) / scaling["factor"] + smooth)
    return factors


def _recognize_llama3(header: GgufHeader, config: dict[str, Any]) -> dict[str, Any] | None:
    stored = header.tensors["rope_freqs.weight"]
    head_dim = config["head_dim"]
    if stored.kind != "F32" or stored.shape != (head_dim // 2,):
        raise header.fail(
            f"rope_freqs.weight is {stored.kind} {stored.shape}", f"F32 ({head_dim // 2},)"
        )
    factors = np.empty(stored.shape, dtype="<f4")
    header.file.read_into(stored.offset, factors)
    if np.all(factors == 1):
        return None
    for length in _LLAMA3_ORIGINAL_LENGTHS:
        scaling = {
            "rope_type": "llama3",
            "factor": float(factors.max()),
            **_LLAMA3,
            "original_max_position_embeddings": length,
        }
        expected = compute_llama3_factors(config["rope_theta"], head_dim, scaling)
        if np.allclose(factors, expected, rtol=_TOLERANCE, atol=0):
            return scaling
    raise header.fail(
        "rope_freqs.weight isn't llama3's scaling",
        "factors of rope_type llama3 with low_freq_factor 1 and high_freq_factor 4",
        "Use the model's safetensors checkpoint instead.",
    )
