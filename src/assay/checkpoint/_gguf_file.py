"""A GGUF file read as if it were a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy.typing as npt

from assay.checkpoint._gguf_config import build_config, build_generation_config
from assay.checkpoint._gguf_header import GgufHeader, read_gguf_header
from assay.checkpoint._gguf_tensors import map_tensors, read_mapped_rows
from assay.checkpoint._gguf_tokenizer import list_tokenizer_files, write_tokenizer
from assay.checkpoint._interface import Checkpoint, TensorInfo, check_row_range, get_tensor
from assay.checkpoint._positional_file import PositionalFile

__all__ = ["GgufCheckpoint"]


class GgufCheckpoint(Checkpoint):
    """One .gguf file of architecture llama or gemma3.

    Tensors appear under Hugging Face names and shapes with their GGUF type as dtype; quantized ones
    are read as float32, and so are Gemma's norms, from which the stored 1 is subtracted.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = PositionalFile(path)
        try:
            self._header = read_gguf_header(self._file)
            self.config = build_config(self._header)
            self.generation_config = build_generation_config(self._header, self.config)
            self._mapped = map_tensors(self._header, self.config)
        except BaseException:
            self._file.close()
            raise
        self.tensors = {
            name: TensorInfo(
                name=name,
                dtype=tensor.stored.kind,
                shape=tensor.stored.shape,
                size_bytes=tensor.stored.size_bytes,
            )
            for name, tensor in self._mapped.items()
        }
        self.weight_paths = (path,)
        self.notes = _list_notes(self._header)

    def read(self, name: str) -> npt.NDArray[Any]:
        info = get_tensor(self, name)
        return self.read_rows(name, 0, info.num_rows).reshape(info.shape)

    def read_rows(self, name: str, start: int, stop: int) -> npt.NDArray[Any]:
        check_row_range(get_tensor(self, name), start, stop)
        return read_mapped_rows(self._file, self._mapped[name], start, stop)

    def tokenizer_files(self) -> list[str]:
        return list_tokenizer_files(self._header)

    def write_tokenizer(self, folder: Path) -> list[str]:
        max_length = self.config["max_position_embeddings"]
        return write_tokenizer(self._header, folder, model_max_length=max_length)

    def close(self) -> None:
        self._file.close()


def _list_notes(header: GgufHeader) -> tuple[str, ...]:
    if header.metadata.get("tokenizer.ggml.model") != "gpt2":
        return ()
    if header.get("tokenizer.ggml.pre", str, "default") != "default":
        return ()
    return ("tokenizer.ggml.pre doesn't say how the tokenizer cuts text; GPT-2's way is used",)
