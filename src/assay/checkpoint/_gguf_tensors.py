"""GGUF tensors under their Hugging Face names, rows and values put back as transformers has them.

llama.cpp's converter changes three things, all undone here:
- names (`blk.3.attn_q.weight` is `model.layers.3.self_attn.q_proj.weight`);
- llama: rows of q and k, from rotate-half order [2, head_dim/2] within each head to interleaved
  order [head_dim/2, 2] (convert_hf_to_gguf.py, LlamaModel.permute);
- gemma3: norm weights are stored as w + 1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.checkpoint._gguf_header import GGUF_TYPES, GgufHeader, GgufTensor
from assay.checkpoint._positional_file import PositionalFile

__all__ = ["ARCHITECTURES", "MappedTensor", "map_tensors", "read_mapped_rows"]

_CHUNK_VALUES = 1 << 19  # decoded at a time: 2 MiB of float32
_WIDE_VALUES = 8192
_OUTSIDE = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER_LLAMA = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER_GEMMA3 = _LAYER_LLAMA | {
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
ARCHITECTURES = {"llama": _LAYER_LLAMA, "gemma3": _LAYER_GEMMA3}
_BLOCK = re.compile(r"blk\.(0|[1-9][0-9]{0,5})\.([a-z_]+)\.(weight|bias)")


@dataclass(frozen=True, slots=True)
class MappedTensor:
    """How a stored tensor becomes the Hugging Face one.

    rope_head_dim: 0, or the head size within which rows are put back into rotate-half order.
    minus_one: subtract 1 from the values (in float32).
    """

    stored: GgufTensor
    rope_head_dim: int = 0
    minus_one: bool = False

    @property
    def dtype(self) -> np.dtype[Any]:
        """What reading gives: the stored float type, or float32 where it was computed."""
        if self.stored.kind == "F16" and not self.minus_one:
            return np.dtype(np.float16)
        if self.stored.kind == "BF16" and not self.minus_one:
            import ml_dtypes

            bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
            return bfloat16
        return np.dtype(np.float32)


def map_tensors(header: GgufHeader, config: dict[str, Any]) -> dict[str, MappedTensor]:
    """Give every tensor its Hugging Face name; an unknown one is an error, none is dropped.

    `rope_freqs.weight` is the exception: the config's rope_scaling says the same.
    """
    architecture = header.metadata["general.architecture"]
    mapped: dict[str, MappedTensor] = {}
    unknown = []
    for stored in header.tensors.values():
        if stored.name == "rope_freqs.weight":
            continue
        name = _map_name(stored.name, ARCHITECTURES[architecture])
        if name is None:
            unknown.append(stored.name)
            continue
        head_dim = 0
        if architecture == "llama" and ".attn_" in stored.name:
            head_dim = _rope_head_dim(header, stored, config)
        is_norm = stored.name.endswith("norm.weight")
        mapped[name] = MappedTensor(stored, head_dim, architecture == "gemma3" and is_norm)
    if unknown:
        raise header.fail(
            f"has tensors that aren't {architecture}'s: {', '.join(sorted(unknown)[:5])}",
            "the tensors of a dense decoder of that architecture",
            "Use a checkpoint in safetensors, or report the model.",
        )
    if "model.embed_tokens.weight" not in mapped:
        raise header.fail("has no tensor token_embd.weight", "an embedding table")
    return mapped


def _map_name(name: str, layer_names: dict[str, str]) -> str | None:
    base, _, suffix = name.rpartition(".")
    if base in _OUTSIDE and suffix == "weight":
        return f"{_OUTSIDE[base]}.weight"
    match = _BLOCK.fullmatch(name)
    if match is None or match[2] not in layer_names:
        return None
    return f"model.layers.{match[1]}.{layer_names[match[2]]}.{match[3]}"


def _rope_head_dim(header: GgufHeader, stored: GgufTensor, config: dict[str, Any]) -> int:
    """Head size of a llama q or k tensor (0 for others), checked against its rows."""
    heads = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
    key = heads.get(stored.name.split(".")[2])
    if key is None:
        return 0
    head_dim = int(config["head_dim"])
    if stored.num_rows != config[key] * head_dim or head_dim % 2:
        raise header.fail(
            f"tensor {stored.name!r} has {stored.num_rows:,} rows",
            f"{config[key]} heads of an even size {head_dim}",
        )
    return head_dim


def read_mapped_rows(
    file: PositionalFile, tensor: MappedTensor, start: int, stop: int
) -> npt.NDArray[Any]:
    """Read rows [start, stop) of the 2-D view, decoded a few rows at a time."""
    stored = tensor.stored
    num_columns = int(np.prod(stored.shape[1:], dtype=np.int64))
    rows = np.empty((stop - start, num_columns), dtype=tensor.dtype)
    step = max(1, _CHUNK_VALUES // num_columns)
    for first in range(start, stop, step):
        last = min(first + step, stop)
        raw = _read_raw_rows(file, tensor, first, last)
        _decode_into(rows[first - start : last - start], raw, stored.kind)
    if tensor.minus_one:
        rows -= 1.0
    return rows


def _read_raw_rows(
    file: PositionalFile, tensor: MappedTensor, start: int, stop: int
) -> npt.NDArray[np.uint8]:
    """Read stored bytes [rows, row_bytes] of Hugging Face rows [start, stop)."""
    stored, head_dim = tensor.stored, tensor.rope_head_dim
    if not head_dim:
        raw = np.empty((stop - start, stored.row_bytes), dtype=np.uint8)
        file.read_into(stored.offset + start * stored.row_bytes, raw)
        return raw
    # Whole heads hold the rows asked for: row [head, half, i] is stored as [head, i, half].
    first, last = start // head_dim * head_dim, -(-stop // head_dim) * head_dim
    raw = np.empty((last - first, stored.row_bytes), dtype=np.uint8)
    file.read_into(stored.offset + first * stored.row_bytes, raw)
    wanted = np.arange(start, stop) - first
    head, half, i = np.unravel_index(wanted, (len(raw) // head_dim, 2, head_dim // 2))
    return raw[np.ravel_multi_index((head, i, half), (len(raw) // head_dim, head_dim // 2, 2))]


def _decode_into(rows: npt.NDArray[Any], raw: npt.NDArray[np.uint8], kind: str) -> None:
    """Decode stored bytes into rows; quantized kinds by the gguf package."""
    if kind in ("F32", "F16", "BF16"):
        dtype = np.dtype({"F32": "<f4", "F16": "<f2"}.get(kind, rows.dtype))
        if kind == "BF16":
            import ml_dtypes

            dtype = np.dtype(ml_dtypes.bfloat16)
        rows[:] = raw.view(dtype).reshape(rows.shape)
        return
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    # The package works on 16 rows at a time: rows of about _WIDE_VALUES decode up to twice as fast
    # as the tensor's own, and blocks don't care where a row ends.
    quantization = GGMLQuantizationType[kind]
    _, block_values, block_bytes = next(entry for entry in GGUF_TYPES.values() if entry[0] == kind)
    blocks, values = raw.reshape(-1, block_bytes), rows.reshape(-1, block_values)
    wide = _WIDE_VALUES // block_values
    whole = len(blocks) // wide * wide
    if whole:
        decoded = dequantize(blocks[:whole].reshape(-1, wide * block_bytes), quantization)
        values[:whole] = decoded.reshape(-1, block_values)
    if whole < len(blocks):
        values[whole:] = dequantize(blocks[whole:], quantization)
