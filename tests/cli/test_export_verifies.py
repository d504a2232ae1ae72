"""assay export judges what it wrote: by default, unless switched off or not installed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import assay.pipeline
from tests.cli.test_errors import parse_strictly
from tests.conftest import Outcome
from tests.contracts.test_light import run, without_torch  # noqa: F401  (a fixture)

Command = Callable[..., Outcome]


def read_decision(folder: Path) -> Any:
    """What the manifest says."""
    return json.loads((folder / "manifest.json").read_text())["verification"]


def test_it_verifies_by_default(llama: Path, room: Path, assay_command: Command) -> None:
    """proves: B12, P10. Control: --no-verify leaves it out, and the API does too."""
    done = assay_command("export", "-m", llama, "-o", room / "out", "--no-load")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].startswith(str(room / "out"))
    assert lines[1].startswith("PASS")
    assert lines[-1] == f"certificate: {room / 'out' / 'parity.json'}"
    assert read_decision(room / "out") == "after the export: see parity.json"
    assert assay_command("verify", "--certificate", room / "out").code == 0

    call = ("export", "-m", llama, "--no-load", "--no-verify", "-o", room / "not")
    assert len(assay_command(*call).out.splitlines()) == 1
    assert read_decision(room / "not") == "switched off by the user (--no-verify)"
    assert not (room / "not" / "parity.json").exists()

    folder = assay.pipeline.export(llama, room / "api", check_loading=False).folder
    assert read_decision(folder).startswith("not asked for: assay.export leaves verification")
    assert not (folder / "parity.json").exists()


def test_as_json_and_with_a_report(llama: Path, room: Path, assay_command: Command) -> None:
    """proves: B12, P10. Control: without a verdict there is nothing to report, and none begins."""
    call = ("export", "-m", llama, "--no-load", "--json", "-o")
    done = assay_command(*call, room / "out", "--report", room / "report.html")
    assert done.code == 0
    told = parse_strictly(done.out)
    assert told["verification"]["decided"] == "after the export: see parity.json"
    assert told["verification"]["verdict"]["verdict"] == "pass"
    assert told["verification"]["verdict"]["certificate"]["files"]
    assert "<html" in (room / "report.html").read_text(encoding="utf-8")

    done = assay_command(*call, room / "not", "--no-verify", "--report", room / "not.html")
    assert (done.code, parse_strictly(done.out)["error"]) == (2, "OptionError")
    done = assay_command(*call, room / "not", "--report", room / "nowhere" / "not.html")
    assert (done.code, parse_strictly(done.out)["error"]) == (2, "OutputError")
    assert sorted(path.name for path in room.iterdir()) == ["out", "report.html"]
    done = assay_command(*call, room / "plain", "--no-verify")
    assert parse_strictly(done.out)["verification"]["verdict"] is None


def test_a_folder_that_fails_stays(
    llama: Path, room: Path, assay_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 1, and it says so. proves: B12, P10. Control: untouched, it passes."""
    inner = assay.pipeline.export

    def export_badly(*arguments: Any, **options: Any) -> Any:
        report = inner(*arguments, **options)
        weights = report.folder / "model.onnx.data"
        content = bytearray(weights.read_bytes())
        content[3] ^= 0x40  # the exponent of the embedding's first value
        weights.write_bytes(bytes(content))
        return report

    call = ("export", "-m", llama, "--no-load", "-o")
    with monkeypatch.context() as patch:
        patch.setattr(assay.pipeline, "export", export_badly)
        done = assay_command(*call, room / "bad", "--report", room / "bad.html")
    assert done.code == 1
    assert "FAIL" in done.out
    assert "stays as it was written" in done.out
    assert (room / "bad" / "model.onnx").is_file()
    assert (room / "bad.html").is_file()
    assert assay_command("verify", "--certificate", room / "bad").code == 1
    assert assay_command(*call, room / "good").code == 0


def test_what_nobody_could_judge(llama: Path, room: Path, assay_command: Command) -> None:
    """A context too short to judge on: 0, with a clear line. proves: B12, P10

    Control: the certificate alone ends with 2, and a longer context is judged.
    """
    call = ("export", "-m", llama, "--no-load", "-o")
    done = assay_command(*call, room / "out", "--context-length", 4)
    assert done.code == 0
    assert "UNJUDGED" in done.out
    assert "not verified: nobody could judge it" in done.out
    assert "too few" in done.out
    assert (room / "out" / "model.onnx").is_file()
    content = json.loads((room / "out" / "parity.json").read_text())
    assert content["verdict"]["verdict"] == "unjudged"
    assert assay_command("verify", "--certificate", room / "out").code == 2
    assert "PASS" in assay_command(*call, room / "longer", "--context-length", 16).out


def test_without_the_extra(
    llama: Path,
    room: Path,
    without_torch: dict[str, str],  # noqa: F811
    assay_command: Command,
) -> None:
    """It is written, loaded, and says what is missing. proves: B11, B12

    Control: here, with the extra, the same call verifies.
    """
    call = ["export", "-m", llama, "--no-load", "-o"]
    command = [sys.executable, "-m", "assay", *call]
    done = run([*command, room / "out"], without_torch)
    assert done.returncode == 0, done.stderr
    assert "not verified: assay[verify] isn't installed" in done.stdout
    assert f"assay verify {room / 'out'} -r {llama}" in done.stdout
    assert read_decision(room / "out") == "assay[verify] isn't installed"
    assert not (room / "out" / "parity.json").exists()

    done = run([*command, room / "not", "--report", room / "r.html"], without_torch)
    assert done.returncode == 2
    assert "assay[verify]" in done.stderr
    assert sorted(path.name for path in room.iterdir()) == ["out"]
    assert "PASS" in assay_command(*call, room / "here").out
