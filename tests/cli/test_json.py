"""--json of every verb is one JSON object on stdout; --dry-run writes nothing; exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.pipeline import export
from assay.runtime import _tune
from assay.runtime._spawn import ChildResult, Run
from tests.cli.test_errors import parse_strictly
from tests.conftest import Outcome
from tests.pipeline.tiny import make_config, make_tensors, write_llama

Command = Callable[..., Outcome]


@pytest.fixture(scope="module")
def folder(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported folder; leave it as it is."""
    output = tmp_path_factory.mktemp("exported") / "out"
    return export(llama, output, check_loading=False).folder


def read(outcome: Outcome) -> dict[str, Any]:
    """The one object of a command that succeeded."""
    assert outcome.code == 0, outcome.err
    value = parse_strictly(outcome.out)
    assert isinstance(value, dict)
    return value


def test_strict_parsing_is_strict() -> None:
    """The control of every test here. proves: B12"""
    for text in ('{"a": NaN}', '{"a": Infinity}', '{"a": 1} {"b": 2}', "{"):
        with pytest.raises(ValueError, match=r"JSON|Extra data|Expecting"):
            parse_strictly(text)


def test_numbers_that_json_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    """proves: B12. Control: the same through json.dumps isn't JSON."""
    from assay.cli.output import print_json

    value = {"a": float("nan"), "b": [float("inf"), 1.5], "c": ({"d": -float("inf")},)}
    print_json(value)
    assert parse_strictly(capsys.readouterr().out) == {
        "a": None,
        "b": [None, 1.5],
        "c": [{"d": None}],
    }
    with pytest.raises(ValueError, match="JSON"):
        parse_strictly(json.dumps(value))


def test_export(llama: Path, room: Path, assay_command: Command) -> None:
    """proves: B12. Control: without --json stdout is one line of text."""
    call = ("export", "-m", llama, "--no-verify", "-o")
    report = read(assay_command(*call, room / "out", "-p", "int4", "--json"))
    assert report["folder"] == str(room / "out")
    assert report["options"]["precision"] == "int4"
    assert report["load_once"]["status"] == "ok"
    assert report["load_once"]["peak_rss_bytes"] > 0
    assert {"model.onnx", "model.onnx.data"} <= set(report["files"])
    plain = assay_command(*call, room / "plain", "--no-load")
    assert len(plain.out.splitlines()) == 1
    assert "switched off" in plain.out


def test_a_dry_run_reports_and_writes_nothing(
    llama: Path, room: Path, assay_command: Command
) -> None:
    """proves: B12. Control: the export itself writes, as many bytes as were announced."""
    call = ("export", "-m", llama, "-o", room / "deep" / "out", "-p", "int4", "--no-load")
    call = (*call, "--no-verify")
    report = read(assay_command(*call, "--dry-run", "--json"))
    assert report["dry_run"] is True
    assert report["options"]["precision"] == "int4"
    plain = assay_command(*call, "--dry-run")
    assert plain.code == 0
    assert "would write" in plain.out
    assert list(room.iterdir()) == []
    written = read(assay_command(*call, "--json"))
    assert written["files"]["model.onnx.data"]["size_bytes"] == report["weights_bytes"]
    assert {**report, **written, "dry_run": True} == {**written, "dry_run": True}


def test_inspect(llama: Path, folder: Path, assay_command: Command) -> None:
    """A checkpoint and a folder. proves: B12. Control: a faulty one says why it can't export."""
    seen = read(assay_command("inspect", llama, "--json"))
    assert (seen["model_type"], seen["num_tensors"]) == ("llama", 21)
    assert seen["spec"]["layers"] == 2
    assert seen["tensors"]["lm_head.weight"] == "F32 [72, 64]"
    made = read(assay_command("inspect", folder, "--json"))
    assert made["runtime_model_type"] == "llama"
    assert made["made_by"]["options"]["precision"] == "fp32"
    text = assay_command("inspect", llama, "--tensors").out
    assert "lm_head.weight: F32 [72, 64]" in text
    assert "lm_head.weight" not in assay_command("inspect", llama).out


def test_inspect_of_what_can_not_be_exported(tmp_path: Path, assay_command: Command) -> None:
    """proves: B2, B12. Control: above, `spec` is an object."""
    odd = write_llama(tmp_path / "odd", frobnicate=3)
    seen = read(assay_command("inspect", odd, "--json"))
    assert seen["spec"].startswith("not exportable")
    assert "frobnicate" in seen["spec"]


def test_models(assay_command: Command) -> None:
    """proves: S5, B12. Control: the text form isn't JSON."""
    models = read(assay_command("models", "list", "--json"))["models"]
    types = [row["model_type"] for row in models]
    assert types == sorted(types)
    assert {"llama", "gemma3", "gemma3_text", "gpt2"} <= set(types)
    for model_type in types:
        sheet = read(assay_command("models", "show", model_type, "--json"))
        assert sheet["model_type"] == model_type
    text = assay_command("models", "show", "llama").out
    assert "rms_norm_eps: 1e-06" in text
    with pytest.raises(ValueError, match="Expecting"):
        parse_strictly(text)


def test_generate(folder: Path, assay_command: Command) -> None:
    """proves: B12. Control: greedy twice is the same, another prompt isn't."""
    call = ("generate", folder, "w1 w2", "-n", 4)
    first = read(assay_command(*call, "--json"))
    assert len(first["token_ids"]) <= 4
    assert first["used_chat"] is True
    assert read(assay_command(*call, "--json"))["token_ids"] == first["token_ids"]
    raw = read(assay_command(*call, "--raw", "--json"))
    assert raw["used_chat"] is False
    assert raw["num_prompt_tokens"] < first["num_prompt_tokens"]
    plain = assay_command(*call)
    assert plain.out.strip() == first["text"].strip()
    assert "tokens/s" in plain.err
    assert assay_command(*call, "--quiet").err == ""


def test_bench(folder: Path, assay_command: Command) -> None:
    """proves: B12, P10. Control: the text form isn't JSON."""
    call = ("bench", folder, "-p", 8, "-n", 4, "-r", 1)
    report = read(assay_command(*call, "--json"))
    assert {"time to first token", "decode", "peak memory"} <= set(report["summaries"])
    with pytest.raises(ValueError, match="Expecting"):
        parse_strictly(assay_command(*call).out)


def answer_quickly(folder: Any, *, session_options: dict[str, Any], **_: Any) -> ChildResult:
    """Instead of measuring (tests/runtime does): two threads are twice as fast."""
    seconds = 0.5 if session_options.get("intra_op_num_threads") == 2 else 1.0
    run = Run(prompt_tokens=8, new_tokens=4, ttft_s=seconds, decode_s=seconds, others_cpus=0.0)
    return ChildResult(
        outcome="ok", stage="exit", message="", seconds=1, load_s=0.1, runs=(run, run),
        token_ids=(), peak_rss_bytes=1,
    )  # fmt: skip


def test_tune(
    llama: Path, room: Path, assay_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """proves: B12. Control: --dry-run leaves every byte, without it the options are written."""
    monkeypatch.setattr(_tune, "measure_child", answer_quickly)
    monkeypatch.setattr(_tune, "wait_until_quiet", lambda limit_s: 0.0)
    monkeypatch.setattr("assay.runtime._machine._count_cpus", lambda: 2)
    folder = export(llama, room / "out", check_loading=False).folder
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    report = read(assay_command("tune", folder, "--dry-run", "--json"))
    assert report["dry_run"] is True
    assert report["after"]["intra_op_num_threads"] == 2
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    report = read(assay_command("tune", folder, "--json"))
    assert report["changed"] is True
    config = json.loads((folder / "genai_config.json").read_text())
    assert config["model"]["decoder"]["session_options"]["intra_op_num_threads"] == 2


def test_verify_passes_or_fails(
    llama: Path, folder: Path, tmp_path: Path, assay_command: Command
) -> None:
    """The real judge: 0 for the checkpoint it was made from, 1 for another. proves: P2, B12

    Each is the other's control.
    """
    call = ("-n", 12, "--no-genai", "--no-certificate", "--json", "--quiet")
    own = assay_command("verify", folder, "-r", llama, *call)
    verdict = parse_strictly(own.out)
    assert (own.code, verdict["verdict"], verdict["exit_code"]) == (0, "pass", 0)
    tensors = make_tensors(make_config(), seed=12)
    other = write_llama(tmp_path / "other", tensors=tensors)
    outcome = assay_command("verify", folder, "-r", other, *call)
    verdict = parse_strictly(outcome.out)
    assert (outcome.code, verdict["verdict"], verdict["exit_code"]) == (1, "fail", 1)


def test_verify_that_can_not_judge(
    folder: Path, llama: Path, assay_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without torch: exit code 2, as an error object. proves: B12, P2. Control: above, 0 and 1."""
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    outcome = assay_command("verify", folder, "-r", llama, "--json", "--no-genai")
    assert outcome.code == 2
    error = parse_strictly(outcome.out)
    assert error["error"] == "DependencyError"
    assert "assay[verify]" in error["next_step"]
