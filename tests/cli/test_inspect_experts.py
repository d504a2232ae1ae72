"""assay inspect shows a checkpoint's experts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
