"""Which kind of checkpoint a path holds."""

from __future__ import annotations

import os
from pathlib import Path

from assay.checkpoint._gguf_file import GgufCheckpoint
from assay.checkpoint._interface import Checkpoint
from assay.checkpoint._safetensors_folder import SafetensorsCheckpoint
from assay.errors import CheckpointError

__all__ = ["open_checkpoint"]

_PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt")


def open_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Open a folder with config.json and *.safetensors, or a GGUF file (or a folder with one).

    Where a folder holds both, safetensors win. Raises CheckpointError when there are no weights,
    only pickled ones, or when what is there is damaged.
    """
    place = Path(path)
    if place.is_dir():
        return _open_folder(place)
    if place.suffix == ".gguf" and place.exists():
        return GgufCheckpoint(place)
    if place.suffix == ".safetensors":
        raise CheckpointError(
            str(place),
            "is one file of a checkpoint",
            expected="the folder that holds it and config.json",
            next_step=f"Give {place.parent} instead.",
        )
    raise CheckpointError(
        str(place),
        "doesn't exist" if not place.exists() else "isn't a checkpoint",
        expected="a folder with config.json and *.safetensors, or a .gguf file",
        next_step="Check the path. assay reads local files; download the model first.",
    )


def _open_folder(folder: Path) -> Checkpoint:
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError as exc:
        raise CheckpointError(
            str(folder), f"can't be listed ({exc})", next_step="Check its permissions."
        ) from exc
    if any(name.endswith(".safetensors") and _is_model(name) for name in names):
        return SafetensorsCheckpoint(folder)
    ggufs = [name for name in names if name.endswith(".gguf")]
    if len(ggufs) == 1:
        return GgufCheckpoint(folder / ggufs[0])
    if ggufs:
        raise CheckpointError(
            str(folder),
            f"has {len(ggufs)} GGUF files: {', '.join(ggufs[:5])}",
            expected="one",
            next_step="Give the path of one of them.",
        )
    pickled = [name for name in names if name.endswith(_PICKLE_SUFFIXES)]
    if pickled:
        raise CheckpointError(
            str(folder),
            f"has only pickled weights ({pickled[0]}), and loading a pickle runs code from it",
            expected="*.safetensors, which are data only",
            next_step="Convert once where you trust the source: load the model with transformers "
            "and call model.save_pretrained(FOLDER); or take a repository that has safetensors.",
        )
    if any(name.endswith(".safetensors") for name in names):
        raise CheckpointError(
            str(folder),
            "holds an adapter, not a whole model",
            expected="the weights of the model itself",
            next_step="Merge the adapter into its base model first "
            "(peft: model.merge_and_unload().save_pretrained(FOLDER)).",
        )
    raise CheckpointError(
        str(folder),
        "has no weights",
        expected="config.json with *.safetensors, or one .gguf file",
        next_step="Download the whole repository, or give another folder.",
    )


def _is_model(name: str) -> bool:
    return not name.startswith("adapter_")
