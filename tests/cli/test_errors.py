"""Errors on the command line: exit code 2, one message, no traceback, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import Outcome
from tests.pipeline.tiny import write_llama

Command = Callable[..., Outcome]


def parse_strictly(text: str) -> Any:
    """JSON as the standard has it: NaN and Infinity aren't."""

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} isn't JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture
def faulty(tmp_path: Path) -> dict[str, Path]:
    """Checkpoints with a fault each."""
    place = tmp_path / "faulty"
    truncated = write_llama(place / "truncated")
    file = truncated / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])

    def spoil(tensors: dict[str, np.ndarray[Any, Any]]) -> None:
        tensors["lm_head.weight"][0, 0] = np.nan

    return {
        "key": write_llama(place / "key", frobnicate=3),
        "value": write_llama(place / "value", is_encoder_decoder=True),
        "type": write_llama(place / "type", model_type="lama"),
        "tensor": write_llama(place / "tensor", attention_bias=True),
        "nan": write_llama(place / "nan", change=spoil),
        "truncated": truncated,
        "absent": place / "absent",
    }


FAULTS = {
    "key": ("ConfigError", "frobnicate"),
    "value": ("ConfigError", "is_encoder_decoder"),
    "type": ("UnknownArchitectureError", "llama"),
    "tensor": ("WeightError", "q_proj.bias"),
    "nan": ("WeightError", "lm_head.weight"),
    "truncated": ("CheckpointError", "truncated"),
    "absent": ("CheckpointError", "doesn't exist"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_checkpoint(
    fault: str, faulty: dict[str, Path], room: Path, assay_command: Command
) -> None:
    """proves: B3, B12. Control: test_a_good_export."""
    kind, word = FAULTS[fault]
    export = ("export", "-m", faulty[fault], "-o", room / "out", "-p", "int4")
    plain = assay_command(*export)
    assert plain.code == 2
    assert plain.out == ""
    message = plain.err[plain.err.index("assay: ") :]
    assert word in message
    assert "Traceback" not in plain.err
    assert list(room.iterdir()) == []

    as_json = assay_command(*export, "--json")
    assert as_json.code == 2
    error = parse_strictly(as_json.out)
    assert error["error"] == kind
    assert set(error) == {"error", "where", "found", "expected", "next_step"}
    assert word in " ".join(error.values())
    assert error["next_step"] or error["expected"]
    assert "assay: " not in as_json.err
    assert list(room.iterdir()) == []


OPTIONS = {
    "bf16": (["-p", "bf16"], "no bf16 kernels"),
    "precision": (["-p", "int3"], "'int3'"),
    "provider": (["-e", "cuda"], "'cuda'"),
    "format": (["-p", "int4", "--head", "int2"], "'int2'"),
    "pattern": (["-p", "int4", "--keep", "*.nothing=int8"], "matches no projection"),
    "group": (["-p", "int4", "--group-size", "33"], "33"),
    "length": (["--context-length", "100000"], "128"),
}


@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["export", "dry-run"])
@pytest.mark.parametrize("case", OPTIONS)
def test_an_impossible_option(
    case: str, dry: list[str], llama: Path, room: Path, assay_command: Command
) -> None:
    """A dry run refuses what the export would. proves: B10, B12. Control: test_a_good_export."""
    options, word = OPTIONS[case]
    outcome = assay_command("export", "-m", llama, "-o", room / "out", *options, *dry)
    assert outcome.code == 2
    assert word in outcome.err
    assert outcome.out == ""
    assert list(room.iterdir()) == []


def test_a_good_export(llama: Path, room: Path, assay_command: Command) -> None:
    """The control of the faults above. proves: B12"""
    call = ("export", "-m", llama, "-o", room / "out", "-p", "int4", "--no-verify")
    outcome = assay_command(*call)
    assert outcome.code == 0
    assert "loaded once" in outcome.out
    assert sorted(path.name for path in room.iterdir()) == ["out"]


@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["export", "dry-run"])
def test_an_output_that_exists(
    dry: list[str], llama: Path, room: Path, assay_command: Command
) -> None:
    """proves: B12. Control: with --overwrite it goes through."""
    export = ("export", "-m", llama, "-o", room / "out", "--no-load", "--no-verify")
    assert assay_command(*export).code == 0
    refused = assay_command(*export, *dry)
    assert refused.code == 2
    assert "it exists already" in refused.err
    assert assay_command(*export, *dry, "--overwrite").code == 0


BAD_CALLS = {
    "no verb": [],
    "unknown verb": ["exprot"],
    "no model": ["export", "-o", "out"],
    "not a number": ["export", "-m", "x", "-o", "y", "--group-size", "many"],
    "unknown flag": ["inspect", "x", "--frobnicate"],
    "no action": ["models"],
}


@pytest.mark.parametrize("call", BAD_CALLS)
def test_a_bad_call_shows_the_usage(call: str, assay_command: Command) -> None:
    """proves: B12. Control: --help of the same parser exits with 0."""
    outcome = assay_command(*BAD_CALLS[call])
    assert outcome.code == 2
    assert "usage: assay" in outcome.err
    verb = BAD_CALLS[call][:1] if BAD_CALLS[call][:1] != ["exprot"] else []
    assert assay_command(*verb, "--help").code == 0


NOT_FOLDERS: dict[str, list[Any]] = {
    "verify": ["-r", "x"],
    "generate": ["prompt"],
    "tune": [],
    "bench": [],
    "inspect": [],
}


@pytest.mark.parametrize("verb", NOT_FOLDERS)
def test_a_folder_that_is_none(verb: str, tmp_path: Path, assay_command: Command) -> None:
    """Every verb says so in one message. proves: B12. Control: test_json.py runs each on one."""
    absent = tmp_path / "absent"
    plain = assay_command(verb, absent, *NOT_FOLDERS[verb])
    assert plain.code == 2
    assert "assay: " in plain.err
    assert "absent" in plain.err
    assert "Traceback" not in plain.err
    as_json = assay_command(verb, absent, *NOT_FOLDERS[verb], "--json")
    assert as_json.code == 2
    assert "absent" in parse_strictly(as_json.out)["where"]


@pytest.mark.parametrize("content", ["{", "[]", "\x80"])
def test_inspect_reads_a_damaged_manifest_as_an_error(
    content: str, llama: Path, room: Path, assay_command: Command
) -> None:
    """proves: B12. Control: the manifest as it was written is shown."""
    call = ("export", "-m", llama, "-o", room / "out", "--no-load", "--no-verify")
    assert assay_command(*call).code == 0
    assert "precision: fp32" in assay_command("inspect", room / "out").out
    (room / "out" / "manifest.json").write_bytes(content.encode("latin-1"))
    outcome = assay_command("inspect", room / "out")
    assert outcome.code == 2
    assert "manifest.json" in outcome.err


def test_an_unknown_model_type_names_the_nearest(assay_command: Command) -> None:
    """proves: B1. Control: the right name is shown."""
    outcome = assay_command("models", "show", "quen2")
    assert outcome.code == 2
    assert "qwen2" in outcome.err
    assert assay_command("models", "show", "qwen2").code == 0


INTERRUPTING = """
import os, signal, sys
from assay.cli import main
inner, number = os.pwrite, int(sys.argv.pop(1))
def pwrite(*arguments):
    written = inner(*arguments)
    os.kill(os.getpid(), number)
    return written
os.pwrite = pwrite
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (0, 0)], ids=str
)
def test_a_signal_leaves_nothing(number: int, code: int, llama: Path, room: Path) -> None:
    """Ctrl-C or kill, many times over. proves: B11, B12. Control: signal 0, which is none."""
    command = [sys.executable, "-c", INTERRUPTING, str(int(number)), "export", "-m", str(llama)]
    command += ["--no-load", "--no-verify", "-o", str(room / "a" / "out")]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == code, ended.stderr
    assert "Traceback" not in ended.stderr
    assert [path.name for path in room.iterdir()] == ([] if number else ["a"])


def test_a_reader_that_leaves_is_no_traceback() -> None:
    """`assay models list | head -0`. proves: B12. Control: a reader that stays gets all."""
    command = [sys.executable, "-m", "assay", "models", "show", "llama", "--json"]
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as pipe:
        left = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True)
    assert left.returncode == 128 + signal.SIGPIPE
    assert left.stderr == ""
    stayed = subprocess.run(command, capture_output=True, text=True)
    assert stayed.returncode == 0
    assert parse_strictly(stayed.stdout)["model_type"] == "llama"
