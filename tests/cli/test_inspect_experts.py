"""assay inspect shows a checkpoint's experts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.registry.published import PUBLISHED
from tests.registry.tiny import build


@pytest.fixture(scope="module")
def mixtral(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Mixtral as transformers saves it."""
    folder = tmp_path_factory.mktemp("mixtral")
    model: Any = build("mixtral")
    model.save_pretrained(folder)
    return folder


def test_experts_are_shown(mixtral: Path, assay_command: Callable[..., Any]) -> None:
    """proves: B3. Control: a config that says more experts."""
    shown = json.loads(assay_command("inspect", mixtral, "--json").out)["experts"]
    assert shown["num_experts"] == 6
    assert shown["unaccounted"] == []
    assert len(shown["groups"]) == shown["num_tensors"] == 6 * 3 * len(shown["layers"])
    plain = assay_command("inspect", mixtral)
    assert plain.code == 0
    assert "num_experts: 6" in plain.out
    config = json.loads((mixtral / "config.json").read_text(encoding="utf-8"))
    (mixtral / "config.json").write_text(json.dumps({**config, "num_local_experts": 7}))
    wrong = json.loads(assay_command("inspect", mixtral, "--json").out)["experts"]
    assert "lacks" in wrong["error"]
    assert "config.json" in wrong["next_step"]


def _write(folder: Path, name: str, **config: Any) -> Path:
    """A checkpoint of one of the published lists, with zeros for values."""
    dtypes = {"BF16": ml_dtypes.bfloat16, "U8": np.uint8}
    given, stored = PUBLISHED[name]
    tensors = {n: np.zeros(shape, dtypes[dtype]) for n, (dtype, shape) in stored.items()}
    save_file(tensors, folder / "model.safetensors")
    told = {**given, "model_type": name.split(",")[0], **config}
    (folder / "config.json").write_text(json.dumps(told), encoding="utf-8")
    return folder


def test_mxfp4_is_shown(tmp_path: Path, assay_command: Callable[..., Any]) -> None:
    """Parts with their dtypes, gate and up in one. Control: a layer's scales are gone."""
    folder = _write(tmp_path, "gpt_oss, MXFP4")
    shown = json.loads(assay_command("inspect", folder, "--json").out)["experts"]
    assert shown["parts"] == {"bias": ["BF16"], "blocks": ["U8"], "scales": ["U8"]}
    assert shown["projections"] == ["gate_up", "down"]
    assert shown["is_concatenated"] is False
    plain = assay_command("inspect", folder)
    assert plain.code == 0
    assert "mlp.experts.gate_up_proj" in plain.out
    assert "groups" not in plain.out
    strays = {f"model.layers.0.mlp.experts.odd{n}": np.zeros(1, np.float32) for n in range(12)}
    save_file(load_file(folder / "model.safetensors") | strays, folder / "model.safetensors")
    assert "experts.odd" in (shortened := assay_command("inspect", folder)).out
    assert "and 2 more" in shortened.out
    listed = json.loads(assay_command("inspect", folder, "--json").out)["experts"]["unaccounted"]
    assert sorted(listed) == sorted(strays)
    kept = {n: t for n, t in load_file(folder / "model.safetensors").items() if n[-4:] != "ales"}
    save_file(kept, folder / "model.safetensors")
    wrong = json.loads(assay_command("inspect", folder, "--json").out)["experts"]
    assert "lacks scales" in wrong["error"]


def test_a_type_that_nobody_knows(tmp_path: Path, assay_command: Callable[..., Any]) -> None:
    """proves: S7. Stacked experts as they stand, others with advice. Control: a dense model."""
    (tmp_path / "one").mkdir()
    folder = _write(tmp_path / "one", "qwen3_vl_moe", model_type="made_up", text_config={})
    shown = json.loads(assay_command("inspect", folder, "--json").out)["experts"]
    assert shown["layout"] is None
    assert sorted(shown["projections"]) == ["down_proj", "gate_up_proj"]
    (tmp_path / "two").mkdir()
    folder = _write(tmp_path / "two", "mixtral", model_type="made_up")
    told = json.loads(assay_command("inspect", folder, "--json").out)["experts"]
    assert "specs.py" in told["next_step"]
    save_file({"model.norm.weight": np.zeros(4, np.float32)}, folder / "model.safetensors")
    assert "experts" not in json.loads(assay_command("inspect", folder, "--json").out)
