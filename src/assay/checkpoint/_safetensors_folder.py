"""A folder as the hub has it: config.json, safetensors in one file or in shards, a tokenizer."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.checkpoint._interface import Checkpoint, TensorInfo, check_row_range, get_tensor
from assay.checkpoint._positional_file import DOWNLOAD_AGAIN, PositionalFile
from assay.checkpoint._safetensors_header import StoredTensor, get_dtypes, read_header
from assay.checkpoint._strict_json import read_object
from assay.errors import CheckpointError, OutputError

__all__ = ["INDEX_NAME", "SINGLE_NAME", "TOKENIZER_NAMES", "SafetensorsCheckpoint", "read_config"]

SINGLE_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
MAX_CONFIG_BYTES = 16 << 20
MAX_INDEX_BYTES = 100_000_000

# What tokenizers, transformers and onnxruntime-genai look for. Code (tokenization_*.py) never.
TOKENIZER_NAMES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
)


def read_config(folder: Path) -> dict[str, Any]:
    """Read config.json raw; every key is data, also `auto_map` and the like."""
    path = folder / "config.json"
    if not path.exists():
        raise CheckpointError(
            str(folder),
            "has no config.json",
            expected="a Hugging Face model folder: config.json and *.safetensors",
            next_step="Download the whole repository, or give the folder that holds config.json.",
        )
    config = read_object(path, max_bytes=MAX_CONFIG_BYTES)
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not model_type:
        raise CheckpointError(
            str(path),
            f"model_type is {model_type!r}",
            expected="the name of an architecture, such as 'llama'",
            next_step="Take config.json from the model's repository.",
        )
    return config


class SafetensorsCheckpoint(Checkpoint):
    """config.json with model.safetensors, or with shards and their index."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.config = read_config(folder)
        generation = folder / "generation_config.json"
        self.generation_config = (
            read_object(generation, max_bytes=MAX_CONFIG_BYTES) if generation.exists() else {}
        )
        self.notes = ()
        self._files: dict[str, PositionalFile] = {}
        self._stored: dict[str, StoredTensor] = {}
        self._file_of: dict[str, PositionalFile] = {}
        try:
            self._open_weights()
        except BaseException:
            self.close()
            raise
        self.tensors: Mapping[str, TensorInfo] = {
            name: stored.info for name, stored in self._stored.items()
        }
        self.weight_paths = tuple(file.path for file in self._files.values())

    def _open_weights(self) -> None:
        """Single file first, as transformers does; then the index; then a lone *.safetensors."""
        if (self.path / SINGLE_NAME).exists():
            self._open_shard(SINGLE_NAME)
        elif (self.path / INDEX_NAME).exists():
            self._open_index()
        else:
            names = sorted(path.name for path in self.path.glob("*.safetensors"))
            if len(names) != 1:
                raise CheckpointError(
                    str(self.path),
                    f"has {len(names)} safetensors files and no {INDEX_NAME}",
                    expected=f"{SINGLE_NAME}, or shards with their index",
                    next_step=f"Download {INDEX_NAME} as well.",
                )
            self._open_shard(names[0])

    def _open_shard(self, name: str) -> None:
        file = PositionalFile(self.path / name)
        self._files[name] = file
        for tensor, stored in read_header(file).items():
            if tensor in self._stored:
                raise CheckpointError(
                    str(file.path),
                    f"tensor {tensor!r} is also in {self._file_of[tensor].path.name}",
                    expected="each tensor in one shard",
                    next_step=DOWNLOAD_AGAIN,
                )
            self._stored[tensor] = stored
            self._file_of[tensor] = file

    def _open_index(self) -> None:
        path = self.path / INDEX_NAME
        weight_map = _read_weight_map(path)
        for name in sorted(set(weight_map.values())):
            if not (self.path / name).exists():
                raise CheckpointError(
                    str(path),
                    f"names the shard {name}, which isn't in the folder",
                    expected=f"{len(set(weight_map.values()))} shards beside the index",
                    next_step=f"Download {name} again.",
                )
            self._open_shard(name)
        for tensor, name in weight_map.items():
            file = self._file_of.get(tensor)
            if file is None or file.path.name != name:
                place = f"in {file.path.name}" if file else "in none of the shards"
                raise CheckpointError(
                    str(path),
                    f"puts {tensor!r} in {name}, but it is {place}",
                    expected="an index that fits its shards",
                    next_step="Download the index and its shards from the same revision.",
                )
        extra = [tensor for tensor in self._stored if tensor not in weight_map]
        if extra:
            self.notes = (
                f"{len(extra)} tensors are in the shards but not in {INDEX_NAME}: "
                f"{', '.join(extra[:5])}{', ...' if len(extra) > 5 else ''}",
            )

    def read(self, name: str) -> npt.NDArray[Any]:
        info = get_tensor(self, name)
        return self.read_rows(name, 0, info.num_rows).reshape(info.shape)

    def read_rows(self, name: str, start: int, stop: int) -> npt.NDArray[Any]:
        info = get_tensor(self, name)
        check_row_range(info, start, stop)
        rows = np.empty((stop - start, info.num_columns), dtype=get_dtypes()[info.dtype])
        offset = self._stored[name].offset + start * info.num_columns * rows.itemsize
        self._file_of[name].read_into(offset, rows)
        return rows

    def tokenizer_files(self) -> list[str]:
        return [name for name in TOKENIZER_NAMES if (self.path / name).is_file()]

    def write_tokenizer(self, folder: Path) -> list[str]:
        names = self.tokenizer_files()
        for name in names:
            try:
                shutil.copyfile(self.path / name, folder / name)
            except OSError as exc:
                raise OutputError(
                    str(folder / name),
                    f"copying {self.path / name} failed ({exc})",
                    next_step="Check free space and permissions of both folders.",
                ) from exc
        return names

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def _read_weight_map(path: Path) -> dict[str, str]:
    """Read an index; shard names are plain file names, so nothing outside the folder is opened."""
    weight_map = read_object(path, max_bytes=MAX_INDEX_BYTES).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(
            str(path),
            "has no weight_map",
            expected="an object that gives each tensor its shard",
            next_step=DOWNLOAD_AGAIN,
        )
    for tensor, name in weight_map.items():
        plain = isinstance(name, str) and name.endswith(".safetensors")
        if not plain or any(mark in name for mark in ("/", "\\", "\0", ":")) or name[0] == ".":
            raise CheckpointError(
                str(path),
                f"puts {tensor!r} in {name!r}",
                expected="the name of a .safetensors file in the same folder, without a path",
                next_step="Don't trust this checkpoint: an index must not point elsewhere.",
            )
    return weight_map
