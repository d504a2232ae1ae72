"""Rewriting genai_config.json: one section changes, or nothing does."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from assay.errors import OutputError
from assay.runtime import _rewrite
from assay.runtime._rewrite import refresh_manifest, write_session_options

NEW = {"log_id": "kept", "intra_op_num_threads": 2, "session.x": "é"}


def test_only_the_session_options_change(fake_folder: Path) -> None:  # proves: B11
    file = fake_folder / "genai_config.json"
    text = file.read_text()
    write_session_options(fake_folder, NEW)
    before, after = json.loads(text), json.loads(file.read_text(encoding="utf-8"))
    assert after["model"]["decoder"].pop("session_options") == NEW
    before["model"]["decoder"].pop("session_options")
    assert json.dumps(after) == json.dumps(before)  # order and number formats too


@pytest.mark.parametrize("indent", [None, 2, 4])
@pytest.mark.parametrize("end", ["", "\n"])
def test_the_layout_stays(fake_folder: Path, indent: int | None, end: str) -> None:  # proves: B11
    file = fake_folder / "genai_config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps(config, indent=indent) + end)
    write_session_options(fake_folder, config["model"]["decoder"]["session_options"])
    assert file.read_text() == json.dumps(config, indent=indent) + end


def test_permissions_stay(fake_folder: Path) -> None:  # proves: B11
    file = fake_folder / "genai_config.json"
    file.chmod(0o640)
    write_session_options(fake_folder, NEW)
    assert file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_write_leaves_all_as_it_was(fake_folder, monkeypatch, step) -> None:  # proves: B11
    before = {path.name: path.read_bytes() for path in fake_folder.iterdir()}

    def fail(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_rewrite.os, step, fail)
    with pytest.raises(OutputError, match="No space left"):
        write_session_options(fake_folder, NEW)
    monkeypatch.undo()
    assert {path.name: path.read_bytes() for path in fake_folder.iterdir()} == before
    write_session_options(fake_folder, NEW)  # negative control: it works without the fault


def test_the_manifest_follows(fake_folder: Path) -> None:  # proves: B11
    manifest = fake_folder / "manifest.json"
    files = {"genai_config.json": {"sha256": "old"}, "model.onnx": {"sha256": "untouched"}}
    manifest.write_text(json.dumps({"options": {"p": 1}, "files": files}))
    refresh_manifest(fake_folder, ("genai_config.json",))
    found = json.loads(manifest.read_text())
    assert found["options"] == {"p": 1}
    assert found["files"]["model.onnx"] == {"sha256": "untouched"}
    entry = found["files"]["genai_config.json"]
    assert entry["size_bytes"] == os.path.getsize(fake_folder / "genai_config.json")
    assert len(entry["sha256"]) == 64


@pytest.mark.parametrize("content", [None, "{", "[]", '{"files": []}'])
def test_other_manifests_are_left_alone(
    fake_folder: Path, content: str | None
) -> None:  # proves: P9
    manifest = fake_folder / "manifest.json"
    if content is not None:
        manifest.write_text(content)
    refresh_manifest(fake_folder, ("genai_config.json",))
    assert (manifest.read_text() if manifest.exists() else None) == content
