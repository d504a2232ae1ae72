"""Tiny folders: a real one from the exporter, fake ones for what needs no runtime."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.graph import ExportOptions
from assay.pipeline import export
from tests.runtime.tiny import write_checkpoint


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exporter's float32 folder of the tiny llama; leave it as it is."""
    room = tmp_path_factory.mktemp("runtime")
    checkpoint = write_checkpoint(room / "checkpoint")
    options = ExportOptions(precision="fp32")
    export(checkpoint, room / "exported", options=options, check_loading=False)
    return room / "exported"


@pytest.fixture
def folder(exported: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(exported, tmp_path / "folder"))


@pytest.fixture
def fake_folder(tmp_path: Path) -> Path:
    """A folder that looks right and that nobody can load."""
    path = tmp_path / "fake"
    path.mkdir()
    (path / "model.onnx").write_bytes(b"not a model")
    config = {
        "model": {
            "bos_token_id": 1,
            "context_length": 2048,
            "decoder": {
                "session_options": {"log_id": "kept", "provider_options": []},
                "filename": "model.onnx",
                "head_size": 16,
                "num_hidden_layers": 2,
                "num_key_value_heads": 2,
            },
            "eos_token_id": [2, 5],
            "type": "llama",
            "vocab_size": 64,
        },
        "search": {"max_length": 2048, "temperature": 1.0, "top_p": 0.95},
    }
    (path / "genai_config.json").write_text(json.dumps(config, indent=4))
    return path


@pytest.fixture
def edit_config() -> Callable[..., None]:
    """Change values of a folder's config: edit_config(folder, **{"model.decoder.head_size": 8})."""

    def edit(folder: Path, **changes: Any) -> None:
        file = folder / "genai_config.json"
        config = json.loads(file.read_text())
        for path, value in changes.items():
            *parents, last = path.split(".")
            place = config
            for name in parents:
                place = place[name]
            if value is None:
                del place[last]
            else:
                place[last] = value
        file.write_text(json.dumps(config))

    return edit
