"""Values of GGUF tensors: every block format against its definition, row order, norms."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from assay.checkpoint import open_checkpoint
from assay.checkpoint._gguf_header import GGUF_TYPES

Q_PROJ = "model.layers.0.self_attn.q_proj.weight"
K_PROJ = "model.layers.0.self_attn.k_proj.weight"


# The reference decoders follow ggml's C structs (ggml-common.h, ggml-quants.c), value by value.
def half(raw: bytes, offset: int) -> float:
    return float(np.frombuffer(raw, "<f2", 1, offset)[0])


def decode_32(raw: bytes, kind: str) -> list[float]:
    """Decode one block of 32 values: fp16 scale, fp16 minimum (_1), high bits (Q5), nibbles."""
    d, place = half(raw, 0), 2
    if kind == "Q8_0":
        return [d * q for q in struct.unpack_from("<32b", raw, 2)]
    minimum = None
    if kind.endswith("_1"):
        minimum, place = half(raw, 2), 4
    high = 0
    if kind.startswith("Q5"):
        (high,) = struct.unpack_from("<I", raw, place)
        place += 4
    nibbles = raw[place : place + 16]
    codes = [byte & 15 for byte in nibbles] + [byte >> 4 for byte in nibbles]
    codes = [code | ((high >> j & 1) << 4) for j, code in enumerate(codes)]
    if minimum is not None:
        return [d * code + minimum for code in codes]
    return [d * (code - (16 if kind == "Q5_0" else 8)) for code in codes]


def scale_and_min(j: int, q: bytes) -> tuple[int, int]:
    if j < 4:
        return q[j] & 63, q[j + 4] & 63
    return (q[j + 4] & 15) | (q[j - 4] >> 6) << 4, (q[j + 4] >> 4) | (q[j] >> 6) << 4


def decode_q45_k(raw: bytes, kind: str) -> list[float]:
    d, dmin, scales = half(raw, 0), half(raw, 2), raw[4:16]
    high = raw[16:48] if kind == "Q5_K" else bytes(32)
    low = raw[48:] if kind == "Q5_K" else raw[16:]
    values = []
    for part in range(8):
        scale, minimum = scale_and_min(part, scales)
        for i in range(32):
            code = low[part // 2 * 32 + i] >> (4 * (part % 2)) & 15
            code |= (high[i] >> part & 1) << 4
            values.append(d * scale * code - dmin * minimum)
    return values


def decode_q6_k(raw: bytes, kind: str) -> list[float]:
    low, high, d = raw[:128], raw[128:192], half(raw, 208)
    scales = struct.unpack_from("<16b", raw, 192)
    values = []
    for i in range(256):
        block, inside = divmod(i, 128)
        quarter, place = divmod(inside, 32)
        nibble = low[block * 64 + place + 32 * (quarter % 2)] >> (4 * (quarter // 2)) & 15
        bits = high[block * 32 + place] >> (2 * quarter) & 3
        values.append(d * scales[i // 16] * ((nibble | bits << 4) - 32))
    return values


def make_blocks(kind: str, num_blocks: int, rng: np.random.Generator) -> np.ndarray:
    """Random blocks whose fp16 fields are ordinary numbers."""
    size = next(size for name, _, size in GGUF_TYPES.values() if name == kind)
    blocks = rng.integers(0, 256, (num_blocks, size), dtype=np.uint8)
    numbers = rng.normal(size=(num_blocks, 2)).astype("<f2").view(np.uint8)
    fields = {"Q4_0": 2, "Q5_0": 2, "Q8_0": 2, "Q6_K": 2}.get(kind, 4)
    start = 208 if kind == "Q6_K" else 0
    blocks[:, start : start + fields] = numbers[:, :fields]
    return blocks


KINDS = {
    **dict.fromkeys(("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"), decode_32),
    **dict.fromkeys(("Q4_K", "Q5_K"), decode_q45_k),
    "Q6_K": decode_q6_k,
}


# proves: Q3
@pytest.mark.parametrize("kind", KINDS)
def test_blocks_decode_as_ggml_defines_them(
    kind: str, make_gguf: Callable[..., Path], rng: np.random.Generator
) -> None:
    rows, blocks_per_row = 5, 2
    blocks = make_blocks(kind, rows * blocks_per_row, rng)
    expected = np.array([KINDS[kind](block.tobytes(), kind) for block in blocks])
    expected = expected.reshape(rows, -1)
    raw = blocks.reshape(rows, -1)
    path = make_gguf({"output.weight": (raw, kind)})
    with open_checkpoint(path) as checkpoint:
        info = checkpoint.tensors["lm_head.weight"]
        assert (info.dtype, info.shape, info.size_bytes) == (kind, expected.shape, raw.nbytes)
        found = checkpoint.read("lm_head.weight")
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * abs(expected).max())
        assert checkpoint.read_rows("lm_head.weight", 1, 4).tobytes() == found[1:4].tobytes()
        swapped = np.roll(expected, 1, axis=1)  # negative control: another order is told apart
        assert not np.allclose(found, swapped, rtol=1e-6, atol=1e-6 * abs(expected).max())


def test_every_supported_type_is_tested_and_sized_as_the_gguf_package_says() -> None:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    assert {kind for kind, _, _ in GGUF_TYPES.values()} == {*KINDS, "F32", "F16", "BF16"}
    for code, (kind, block, size) in GGUF_TYPES.items():
        assert GGMLQuantizationType(code).name == kind
        assert GGML_QUANT_SIZES[GGMLQuantizationType(code)] == (block, size)


# proves: Q3
def test_a_long_tensor_decodes_the_same_in_chunks(
    make_gguf: Callable[..., Path], rng: np.random.Generator
) -> None:
    """More values than are decoded at a time, and a number of blocks that no width divides."""
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    raw = make_blocks("Q4_1", 3001 * 6, rng).reshape(3001, -1)
    whole = dequantize(raw, GGMLQuantizationType.Q4_1)
    with open_checkpoint(make_gguf({"output.weight": (raw, "Q4_1")})) as checkpoint:
        assert np.array_equal(checkpoint.read("lm_head.weight"), whole)
        rows = checkpoint.read_rows("lm_head.weight", 7, 2999)
        assert np.array_equal(rows, whole[7:2999])
        assert not np.array_equal(rows, whole[6:2998])  # negative control


# proves: Q3
def test_float_tensors_keep_their_type(
    make_gguf: Callable[..., Path], rng: np.random.Generator
) -> None:
    values = rng.normal(size=(4, 32)).astype(np.float32)
    halves, brains = values.astype(np.float16), values.astype(ml_dtypes.bfloat16)
    path = make_gguf(
        {
            "output.weight": values,
            "blk.0.ffn_up.weight": halves,
            "blk.0.ffn_down.weight": (brains.view(np.uint8), "BF16"),
        }
    )
    with open_checkpoint(path) as checkpoint:
        for name, expected in (
            ("lm_head.weight", values),
            ("model.layers.0.mlp.up_proj.weight", halves),
            ("model.layers.0.mlp.down_proj.weight", brains),
        ):
            found = checkpoint.read(name)
            assert found.dtype == expected.dtype
            assert found.tobytes() == expected.tobytes()


def permute(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """llama.cpp, convert_hf_to_gguf.py, LlamaModel.permute: what the converter does to q and k."""
    half_head = weight.shape[0] // num_heads // 2
    parts = weight.reshape(num_heads, 2, half_head, *weight.shape[1:])
    return parts.swapaxes(1, 2).reshape(weight.shape)


# proves: B6
@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_llama_query_and_key_rows_come_back_in_order(
    kind: str, make_gguf: Callable[..., Path], rng: np.random.Generator
) -> None:
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize, quantize

    def store(weight: np.ndarray) -> object:
        if kind == "F32":
            return np.ascontiguousarray(weight)
        return quantize(np.ascontiguousarray(weight), GGMLQuantizationType.Q8_0), kind

    def rounded(weight: np.ndarray) -> np.ndarray:
        if kind == "F32":
            return weight
        q8_0 = GGMLQuantizationType.Q8_0
        return np.asarray(dequantize(quantize(weight, q8_0), q8_0))

    query = rng.normal(size=(32, 32)).astype(np.float32)  # 4 heads of 8
    key = rng.normal(size=(16, 32)).astype(np.float32)  # 2 heads of 8
    value = rng.normal(size=(16, 32)).astype(np.float32)
    bias = rng.normal(size=32).astype(np.float32)
    path = make_gguf(
        {
            "blk.0.attn_q.weight": store(permute(query, 4)),
            "blk.0.attn_k.weight": store(permute(key, 2)),
            "blk.0.attn_v.weight": store(value),
            "blk.0.attn_q.bias": permute(bias, 4),
        }
    )
    with open_checkpoint(path) as checkpoint:
        assert np.array_equal(checkpoint.read(Q_PROJ), rounded(query))
        assert np.array_equal(checkpoint.read(K_PROJ), rounded(key))
        assert np.array_equal(checkpoint.read(K_PROJ.replace("k_proj", "v_proj")), rounded(value))
        assert np.array_equal(checkpoint.read(Q_PROJ.replace("weight", "bias")), bias)
        for start in range(0, 33, 3):
            for stop in range(start, 33, 5):
                rows = checkpoint.read_rows(Q_PROJ, start, stop)
                assert np.array_equal(rows, rounded(query)[start:stop])
        # negative controls: the stored order, and the order of a wrong number of key heads
        assert not np.array_equal(rounded(permute(query, 4)), rounded(query))
        assert not np.array_equal(permute(key, 4), permute(key, 2))
    path = make_gguf({"blk.0.attn_k.weight": store(permute(key, 4))})
    with open_checkpoint(path) as checkpoint:
        assert not np.array_equal(checkpoint.read(K_PROJ), rounded(key))


# proves: B6
def test_gemma3_norms_lose_the_one_that_gguf_adds(
    make_gguf: Callable[..., Path], rng: np.random.Generator
) -> None:
    stored = rng.normal(size=32).astype(np.float32) + 1
    names = {
        "output_norm": "model.norm",
        "blk.0.attn_norm": "model.layers.0.input_layernorm",
        "blk.0.post_attention_norm": "model.layers.0.post_attention_layernorm",
        "blk.0.ffn_norm": "model.layers.0.pre_feedforward_layernorm",
        "blk.0.post_ffw_norm": "model.layers.0.post_feedforward_layernorm",
        "blk.0.attn_q_norm": "model.layers.0.self_attn.q_norm",
        "blk.0.attn_k_norm": "model.layers.0.self_attn.k_norm",
    }
    tensors = {f"{name}.weight": stored for name in names}
    with open_checkpoint(make_gguf(tensors, architecture="gemma3")) as checkpoint:
        for name in names.values():
            assert np.array_equal(checkpoint.read(f"{name}.weight"), stored - np.float32(1))
    llama = {"output_norm.weight": stored, "blk.0.ffn_norm.weight": stored}
    with open_checkpoint(make_gguf(llama)) as checkpoint:  # control: llama's norms stay
        assert np.array_equal(checkpoint.read("model.norm.weight"), stored)
        name = "model.layers.0.post_attention_layernorm.weight"
        assert np.array_equal(checkpoint.read(name), stored)
