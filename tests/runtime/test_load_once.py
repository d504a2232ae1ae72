"""Loading once: ok, skipped with a reason, or failed with a reason; never a silent yes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.errors import RuntimeFolderError
from assay.graph import ExportOptions
from assay.pipeline import export
from assay.runtime import _load_once, load_once, read_folder
from assay.runtime._genai import explain_failure, is_missing_provider
from tests.runtime.tiny import write_checkpoint


def test_a_good_folder_loads(exported: Path) -> None:  # proves: B11
    report = load_once(exported)
    assert (report.status, report.reason, report.stage) == ("ok", "", "exit")
    assert report.ok
    assert report.peak_rss_bytes is not None
    assert report.runtime_version
    assert json.loads(json.dumps(report.to_json()))["status"] == "ok"
    assert "ok" in report.to_text()


def test_missing_weights_fail(folder: Path) -> None:  # proves: B11
    (folder / "model.onnx.data").unlink()
    report = load_once(folder)
    assert report.status == "failed"
    assert "model.onnx.data isn't there" in report.reason


def test_weights_cut_short_fail(folder: Path) -> None:  # proves: B11
    data = folder / "model.onnx.data"
    data.write_bytes(data.read_bytes()[:10_000])
    report = load_once(folder)
    assert report.status == "failed"
    assert "ends before the tensor" in report.reason


def test_a_damaged_model_fails(folder: Path) -> None:  # proves: B11
    (folder / "model.onnx").write_bytes(b"not a model")
    report = load_once(folder)
    assert report.status == "failed"
    assert "isn't an ONNX model" in report.reason


def test_an_unknown_type_fails(folder: Path, edit_config) -> None:  # proves: B11
    edit_config(folder, **{"model.type": "zorgon"})
    report = load_once(folder)
    assert report.status == "failed"
    assert "zorgon" in report.reason


def test_a_missing_tokenizer_fails(folder: Path) -> None:  # proves: B11
    (folder / "tokenizer_config.json").unlink()
    report = load_once(folder)
    assert (report.status, report.stage) == ("failed", "tokenizer")


def test_logits_that_overflow_fail(tmp_path: Path) -> None:  # proves: B11
    checkpoint = write_checkpoint(tmp_path / "checkpoint", poison=3e38)
    options = ExportOptions(precision="fp32")
    export(checkpoint, tmp_path / "out", options=options, check_loading=False)
    report = load_once(tmp_path / "out")
    assert report.status == "failed"
    assert "NaN or infinity" in report.reason


def test_an_absent_provider_is_skipped(folder: Path, edit_config) -> None:  # proves: B10
    edit_config(folder, **{"model.decoder.session_options.provider_options": [{"cuda": {}}]})
    report = load_once(folder)
    assert report.status == "skipped"
    assert "cuda" in report.reason
    assert not report.ok


def test_an_absent_runtime_is_skipped(exported: Path, monkeypatch) -> None:  # proves: B11
    monkeypatch.setattr(_load_once, "has_genai", lambda: False)
    report = load_once(exported)
    assert (report.status, report.reason) == ("skipped", "onnxruntime-genai isn't installed")


def test_what_cannot_fit_is_skipped(exported: Path, monkeypatch) -> None:  # proves: B11
    needed = int(_load_once.MEMORY_FACTOR * read_folder(exported).size_bytes)
    monkeypatch.setattr(_load_once, "read_available_bytes", lambda: needed - 1)
    report = load_once(exported)
    assert report.status == "skipped"
    assert "are available" in report.reason
    monkeypatch.setattr(_load_once, "read_available_bytes", lambda: needed)
    assert load_once(exported).status == "ok"


def test_unknown_memory_is_tried(exported: Path, monkeypatch) -> None:  # proves: B11
    monkeypatch.setattr(_load_once, "read_available_bytes", lambda: None)
    assert load_once(exported).status == "ok"


def test_no_folder_raises(tmp_path: Path) -> None:  # proves: B11
    with pytest.raises(RuntimeFolderError):
        load_once(tmp_path)


def test_a_time_out_fails(exported: Path) -> None:  # proves: B11
    report = load_once(exported, timeout_s=0.01)
    assert report.status == "failed"
    assert "no answer after 0.01 s" in report.reason


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("Failed to allocate memory for requested buffer of size 9", "doesn't fit in memory"),
        ("com.microsoft:Frob(-1) is not a registered function/op", "com.microsoft:Frob"),
        ("something never seen", "failed while loading: something never seen"),
    ],
)
def test_messages_become_advice(exported: Path, message: str, words: str) -> None:  # proves: B11
    error = explain_failure(read_folder(exported), message, doing="loading")
    assert words in error.found
    assert error.next_step
    assert not is_missing_provider(message)
