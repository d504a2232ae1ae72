"""A folder is loaded in onnxruntime-genai, in a child process, before success is reported."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import assay.runtime._load_once as loading
from assay.errors import RuntimeFolderError
from assay.pipeline import export
from assay.runtime import LoadReport
from tests.pipeline.tiny import write_llama

FORMS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "fp16": {"precision": "fp16"},
    "int8": {"precision": "int8"},
    "int4": {"precision": "int4"},
    "int4 asymmetric": {"precision": "int4", "symmetric": False, "head": "int4"},
    "decomposed": {"attention": "decomposed"},
    "all logits": {"precision": "int4", "all_logits": True},
}


def read_outcome(folder: Path) -> dict[str, Any]:
    """What the manifest says about loading."""
    manifest = json.loads((folder / "manifest.json").read_text())
    outcome: dict[str, Any] = manifest["load_once"]
    return outcome


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tied, with widths that end in a partial group."""
    return write_llama(
        tmp_path_factory.mktemp("load") / "tied",
        tie_word_embeddings=True,
        hidden_size=72,
        intermediate_size=88,
    )


@pytest.mark.parametrize("choices", FORMS.values(), ids=FORMS)
def test_the_runtime_takes_every_form(tied: Path, room: Path, choices: dict[str, Any]) -> None:
    """Loaded and two tokens generated, tied and asymmetric too. proves: B11

    Control: test_a_folder_that_the_runtime_refuses.
    """
    report = export(tied, room / "out", **choices)
    assert report.load_once["status"] == "ok", report.load_once
    assert len(report.load_once["token_ids"]) in (1, 2)
    assert report.load_once["peak_rss_bytes"] > 1 << 20
    assert "loaded once" in report.to_text()
    outcome = read_outcome(report.folder)
    assert outcome["status"] == "ok"
    assert outcome["runtime_version"]


def test_the_folder_is_complete_when_it_is_loaded(
    llama: Path, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is loaded under its temporary name, so a bad one never bears the output's. proves: B11"""
    seen: list[tuple[Path, list[str], bool]] = []

    def look(folder: Path) -> LoadReport:
        names = sorted(path.name for path in folder.iterdir())
        seen.append((folder, names, (room / "out").exists()))
        return LoadReport(status="ok", reason="")

    monkeypatch.setattr("assay.pipeline.load_once", look)
    export(llama, room / "out")
    [(folder, names, existed)] = seen
    assert folder.parent == room
    assert not existed
    assert {"model.onnx", "model.onnx.data", "genai_config.json", "tokenizer.json"} <= set(names)
    assert (room / "out").exists()  # control


def test_a_load_that_fails_leaves_nothing(
    llama: Path, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """proves: B11. Control: --no-load writes the folder and records that nobody loaded it."""
    failed = LoadReport(status="failed", reason="Unsupported model_type in config.json: planted")
    monkeypatch.setattr("assay.pipeline.load_once", lambda folder: failed)
    with pytest.raises(RuntimeFolderError, match="Unsupported model_type") as caught:
        export(llama, room / "out")
    assert "--no-load" in caught.value.next_step
    assert caught.value.where == str(room / "out"), "its own name, not the temporary one"
    assert list(room.iterdir()) == []

    report = export(llama, room / "out", check_loading=False)
    assert read_outcome(report.folder)["status"] == "skipped"
    assert "switched off" in read_outcome(report.folder)["reason"]
    assert "not loaded: switched off" in report.to_text()


def test_a_folder_that_the_runtime_refuses(
    llama: Path, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real child refuses a model type that it doesn't know. proves: B11

    Control: the same call, unplanted, succeeds.
    """
    import assay.pipeline as pipeline

    inner = pipeline.build_genai_config

    def misname(*arguments: Any, **named: Any) -> dict[str, Any]:
        return inner(*arguments, **{**named, "model_type": "no_such_model"})

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "build_genai_config", misname)
        with pytest.raises(RuntimeFolderError, match="no_such_model"):
            export(llama, room / "out")
    assert list(room.iterdir()) == []
    assert export(llama, room / "out").load_once["status"] == "ok"


def test_it_is_loaded_in_a_child(llama: Path, room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash of the runtime is an error here and not our end. proves: B11

    Control: the child's script as it is succeeds above.
    """
    script = room.parent / "child.py"
    script.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    monkeypatch.setattr("assay.runtime._spawn._SCRIPT", script)
    with pytest.raises(RuntimeFolderError, match="SIGSEGV"):
        export(llama, room / "out")
    assert os.getpid() > 0
    assert list(room.iterdir()) == []


def test_without_the_runtime_it_is_skipped(
    llama: Path, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """proves: B11. Control: with it, test_the_runtime_takes_every_form."""
    monkeypatch.setattr(loading, "has_genai", lambda: False)
    report = export(llama, room / "out")
    outcome = read_outcome(report.folder)
    assert outcome["status"] == "skipped"
    assert "isn't installed" in outcome["reason"]
    assert "isn't installed" in report.to_text()


def test_without_enough_memory_it_is_skipped(
    llama: Path, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """proves: B11. Control: with enough, it is loaded."""
    monkeypatch.setattr(loading, "read_available_bytes", lambda: 1000)
    outcome = read_outcome(export(llama, room / "out").folder)
    assert outcome["status"] == "skipped"
    assert "available" in outcome["reason"]
    monkeypatch.setattr(loading, "read_available_bytes", lambda: 1 << 30)
    assert read_outcome(export(llama, room / "again").folder)["status"] == "ok"
