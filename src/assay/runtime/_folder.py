"""A GenAI folder as it lies on disk: its config, its files, and what is missing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import RuntimeFolderError

__all__ = ["CONFIG_NAME", "GenaiFolder", "read_folder"]

CONFIG_NAME = "genai_config.json"


@dataclass(frozen=True, kw_only=True)
class GenaiFolder:
    """What a folder's genai_config.json says, read once.

    size_bytes: all model files (every *.onnx and its data), not the tokenizer.
    kv_bytes_per_token: float32 keys and values of one position, 0 where the config doesn't say.
    """

    path: Path
    config: dict[str, Any]
    model_type: str
    context_length: int
    vocab_size: int
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    providers: tuple[str, ...]
    has_chat_template: bool
    size_bytes: int
    kv_bytes_per_token: int

    @property
    def session_options(self) -> dict[str, Any]:
        """The decoder's session options as the config has them."""
        return dict(self.config["model"]["decoder"].get("session_options", {}))


def read_folder(folder: str | Path) -> GenaiFolder:
    """Read a GenAI folder's config and check that the files it names are there.

    Raises RuntimeFolderError for a folder that the runtime could only refuse.
    """
    path = Path(folder)
    config = _read_config(path)
    model, decoder = config["model"], config["model"]["decoder"]
    for name in ("vocab_size", "context_length"):
        if not isinstance(model.get(name), int):
            raise _broken(path, f"`model.{name}` is {model.get(name)!r}", "a whole number")
    _require_model_file(path, decoder)
    eos = model.get("eos_token_id", [])
    bos = model.get("bos_token_id")
    return GenaiFolder(
        path=path,
        config=config,
        model_type=str(model.get("type", "")),
        context_length=model["context_length"],
        vocab_size=model["vocab_size"],
        bos_token_id=bos if isinstance(bos, int) else None,
        eos_token_ids=tuple(eos) if isinstance(eos, list) else (eos,) if eos is not None else (),
        providers=_provider_names(decoder),
        has_chat_template=_has_chat_template(path),
        size_bytes=sum(
            file.stat().st_size
            for file in path.iterdir()
            if file.is_file() and (".onnx" in file.name or file.suffix in (".data", ".bin"))
        ),
        kv_bytes_per_token=_kv_bytes_per_token(decoder),
    )


def _read_config(path: Path) -> dict[str, Any]:
    file = path / CONFIG_NAME
    if not path.is_dir():
        raise RuntimeFolderError(
            str(path),
            "no such folder" if not path.exists() else "this is a file",
            expected=f"a folder with {CONFIG_NAME}, as `assay export` writes it",
            next_step="Check the path, or export the model first.",
        )
    if not file.is_file():
        raise RuntimeFolderError(
            str(path),
            f"there is no {CONFIG_NAME}",
            expected="an ONNX Runtime GenAI folder",
            next_step=(
                "This looks like a Hugging Face checkpoint: run `assay export -m ... -o ...` first."
                if (path / "config.json").is_file()
                else "Export the model again, or give the folder that holds the file."
            ),
        )
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as exc:
        raise _broken(path, f"it isn't JSON ({exc})", "a JSON object") from exc
    except OSError as exc:
        raise _broken(path, f"it can't be read ({exc})", "a readable file") from exc
    if not isinstance(config, dict) or not isinstance(config.get("model"), dict):
        raise _broken(path, "there is no `model` section", "an object with `model`")
    if not isinstance(config["model"].get("decoder"), dict):
        raise _broken(path, "there is no `model.decoder` section", "a decoder-only model")
    return config


def _require_model_file(path: Path, decoder: dict[str, Any]) -> None:
    name = decoder.get("filename")
    if not isinstance(name, str) or not name:
        raise _broken(path, "`model.decoder.filename` is missing", "the name of the model file")
    if not (path / name).is_file():
        raise RuntimeFolderError(
            str(path / name),
            f"{CONFIG_NAME} names this file and it isn't there",
            next_step="Copy the whole folder, or export the model again.",
        )


def _broken(path: Path, found: str, expected: str) -> RuntimeFolderError:
    return RuntimeFolderError(
        str(path / CONFIG_NAME), found, expected=expected, next_step="Export the model again."
    )


def _provider_names(decoder: dict[str, Any]) -> tuple[str, ...]:
    options = decoder.get("session_options", {}).get("provider_options", [])
    return tuple(name for entry in options for name in entry)


def _has_chat_template(path: Path) -> bool:
    if (path / "chat_template.jinja").is_file():
        return True
    try:
        config = json.loads((path / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and bool(config.get("chat_template"))


def _kv_bytes_per_token(decoder: dict[str, Any]) -> int:
    num_floats = 2
    for name in ("num_hidden_layers", "num_key_value_heads", "head_size"):
        size = decoder.get(name)
        num_floats *= size if isinstance(size, int) else 0
    return num_floats * 4
