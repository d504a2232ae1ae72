"""The same checkpoint and options give the same bytes: another folder, order, thread count."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.pipeline import export
from tests.pipeline.tiny import write_llama

CHOICES: dict[str, dict[str, Any]] = {
    "fp32": {},
    "fp16": {"precision": "fp16"},
    "int8": {"precision": "int8", "symmetric": False},
    "int4": {"precision": "int4", "head": "int4"},
    "int4-mixed": {"precision": "int4", "symmetric": False, "keep": ("*.q_proj=int8",)},
}


def read_files(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def write(source: Path, folder: Path, choices: dict[str, Any]) -> dict[str, bytes]:
    """Export, and read everything back."""
    return read_files(export(source, folder, check_loading=False, **choices).folder)


@pytest.mark.parametrize("choices", CHOICES.values(), ids=CHOICES)
def test_twice_is_the_same(llama: Path, tmp_path: Path, choices: dict[str, Any]) -> None:
    """proves: B11. Control: one weight changed changes the data and its hash."""
    first = write(llama, tmp_path / "first", choices)
    assert write(llama, tmp_path / "second", choices) == first

    changed = write_llama(
        tmp_path / llama.name, change=lambda t: t["model.norm.weight"].__setitem__(0, 3.0)
    )
    third = write(changed, tmp_path / "third", choices)
    differing = {name for name in first if first[name] != third[name]}
    assert differing == {"model.onnx.data", "manifest.json"}


@pytest.mark.parametrize("choices", CHOICES.values(), ids=CHOICES)
def test_threads_and_chunks_do_not_show(
    llama: Path, tmp_path: Path, choices: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """proves: B11. Control: the counts really differ."""
    used: list[int] = []

    def write_with(threads: int, chunk_elements: int) -> dict[str, bytes]:
        def count() -> int:
            used.append(threads)
            return threads

        monkeypatch.setattr("assay.writers.onnx_genai.data_writer.count_processors", count)
        monkeypatch.setattr("assay.writers.onnx_genai.data_writer.CHUNK_ELEMENTS", chunk_elements)
        return write(llama, tmp_path / f"{threads}-{chunk_elements}", choices)

    first = write_with(1, 1 << 22)
    assert write_with(2, 1 << 22) == first
    assert write_with(7, 700) == first
    assert set(used) == {1, 2, 7}


def test_another_process_and_hash_seed_is_the_same(llama: Path, tmp_path: Path) -> None:
    """Nothing hangs on the order of a set. proves: B11. Control: the seeds really differ."""
    program = (
        "import sys; from assay.cli import main; print(list({'a', 'b', 'c', 'd', 'e', 'f'}));"
        "sys.exit(main(sys.argv[1:]))"
    )
    orders, files = [], []
    for seed in ("1", "2"):
        command = [sys.executable, "-c", program, "export", "-q", "-m", llama, "-p", "int4"]
        command += ["-o", tmp_path / seed, "--no-load", "--no-verify"]
        done = subprocess.run(
            [str(part) for part in command],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        orders.append(done.stdout.splitlines()[0])
        files.append(read_files(tmp_path / seed))
    choices = {"precision": "int4", "verification": "switched off by the user (--no-verify)"}
    assert files[0] == files[1] == write(llama, tmp_path / "here", choices)
    assert orders[0] != orders[1]


def test_loading_leaves_the_same_bytes(llama: Path, tmp_path: Path) -> None:
    """What loading measured stands in the report, not in the folder. proves: B11

    Control: the report's times do differ.
    """
    reports = [export(llama, tmp_path / name, precision="int4") for name in ("first", "second")]
    first, second = (read_files(report.folder) for report in reports)
    assert first == second
    assert set(json.loads(first["manifest.json"])["load_once"]) == {
        "status", "reason", "runtime_version",
    }  # fmt: skip
    assert reports[0].load_once["seconds"] != reports[1].load_once["seconds"]
