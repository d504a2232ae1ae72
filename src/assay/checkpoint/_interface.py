"""What every checkpoint offers, whatever its files look like."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from math import prod
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from assay.errors import WeightError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Checkpoint", "TensorInfo", "check_row_range", "get_tensor"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorInfo:
    """One tensor as it is stored.

    dtype: the file's own word: "F32", "BF16", "F8_E4M3", "I64" (safetensors), "Q4_1" (GGUF).
    shape: in Hugging Face order, so a linear layer is (out, in).
    size_bytes: what it takes in the file.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int

    @property
    def num_rows(self) -> int:
        """Rows of the 2-D view that `read_rows` slices; a scalar has one."""
        return self.shape[0] if self.shape else 1

    @property
    def num_columns(self) -> int:
        """Values in a row of the 2-D view: 1 for vectors and scalars."""
        return prod(self.shape[1:])


class Checkpoint(ABC):
    """A model on disk: raw config, tensors read on demand, tokenizer files.

    Reading is safe from several threads at once. Nothing of the files is executed, and
    everything they claim is checked before it is used.

    path: the folder, or the GGUF file.
    config: raw config.json, or for GGUF the same rebuilt, with `model_type` always there.
    generation_config: {} when absent.
    tensors: Hugging Face names in file order.
    weight_paths: the files that hold the tensors.
    notes: oddities that are no errors, one sentence each, for the user to see.
    """

    path: Path
    config: dict[str, Any]
    generation_config: dict[str, Any]
    tensors: Mapping[str, TensorInfo]
    weight_paths: tuple[Path, ...]
    notes: tuple[str, ...]

    @abstractmethod
    def read(self, name: str) -> npt.NDArray[Any]:
        """Read a whole tensor in its stored float dtype, or float32 where GGUF quantized it.

        bf16 and fp8 come as ml_dtypes. Raises WeightError when there is no such tensor and
        CheckpointError when the file can't deliver its bytes.
        """

    @abstractmethod
    def read_rows(self, name: str, start: int, stop: int) -> npt.NDArray[Any]:
        """Read rows [start, stop) of the tensor seen as 2-D [shape[0], prod(shape[1:])].

        C-contiguous, dtype as `read`. Memory beyond the result is a constant.
        """

    @abstractmethod
    def tokenizer_files(self) -> list[str]:
        """Name the tokenizer and chat template files that a runtime folder needs."""

    @abstractmethod
    def write_tokenizer(self, folder: Path) -> list[str]:
        """Copy or rebuild the files of `tokenizer_files` into `folder`; return their names."""

    @abstractmethod
    def close(self) -> None:
        """Close the files; reading afterwards is a fault of the caller."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def get_tensor(checkpoint: Checkpoint, name: str) -> TensorInfo:
    """Look a tensor up by its Hugging Face name; raise WeightError with the nearest names."""
    info = checkpoint.tensors.get(name)
    if info is None:
        near = get_close_matches(name, list(checkpoint.tensors), n=3, cutoff=0.6)
        raise WeightError(
            str(checkpoint.path),
            f"there is no tensor named {name!r} among the {len(checkpoint.tensors):,} tensors",
            expected=f"a name such as {', '.join(near)}" if near else "",
            next_step="Run `assay inspect` on the checkpoint to list its tensors.",
        )
    return info


def check_row_range(info: TensorInfo, start: int, stop: int) -> None:
    """Assert that rows [start, stop) exist; a range outside is the caller's fault."""
    assert 0 <= start <= stop <= info.num_rows, (info, start, stop)
