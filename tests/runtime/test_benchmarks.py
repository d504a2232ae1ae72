"""The benchmark scripts' own parts: what they count, and what they compare."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
MIB = 2**20
# Takes 40 MiB itself, and 400 MiB in a child process that it waits for.
PARENT = """
import subprocess, sys
mine = bytearray(b"x") * (40 << 20)
subprocess.run([sys.executable, "-c", "x = bytearray(b'x') * (400 << 20)"], check=True)
print("done")
"""


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch):
    """Import a benchmark module by name, as the scripts do."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))

    def import_one(name: str) -> ModuleType:
        monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module(name)

    return import_one


def test_peak_memory_is_the_process_without_its_children(load, tmp_path) -> None:  # proves: P10
    measure_command = load("processes").measure_command
    command = [sys.executable, "-c", PARENT]
    measured = measure_command(command, env=dict(os.environ), log=tmp_path / "log")
    assert measured.stdout == "done\n"
    assert 40 * MIB < measured.peak_rss_bytes < 200 * MIB
    # negative control: the child alone is far above that
    command = [sys.executable, "-c", "x = bytearray(b'x') * (400 << 20)"]
    child = measure_command(command, env=dict(os.environ), log=tmp_path / "log")
    assert child.peak_rss_bytes > 400 * MIB


def test_a_command_that_fails_ends_the_benchmark(load, tmp_path) -> None:  # proves: P10
    command = [sys.executable, "-c", "import sys; sys.exit('no luck')"]
    with pytest.raises(SystemExit, match="no luck"):
        load("processes").measure_command(command, env=dict(os.environ), log=tmp_path / "log")


def test_ratios_are_of_pairs(load) -> None:  # proves: P10
    results = load("results")
    assert results.ratio_of_pairs([1, 20, 3], [2, 10, 6]) == 0.5
    # negative control: the ratio of the medians would say otherwise
    assert results.median_of([1, 20, 3]) / results.median_of([2, 10, 6]) == 0.5
    assert results.ratio_of_pairs([1, 9, 9], [1, 10, 1]) != 9.0


def test_results_are_kept_as_both(load, tmp_path, monkeypatch) -> None:  # proves: P10
    results = load("results")
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    file = results.write_results("speed", {"a": 1}, "| table |")
    assert file.read_text() == "| table |\n"
    assert file.name.endswith("-speed.md")
    assert json.loads(file.with_suffix(".json").read_text()) == {"a": 1}


def test_tables_line_up(load) -> None:  # proves: P10
    table = load("results").make_table(["a", "long head"], [["wide cell", "1"]])
    lines = table.splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[1].count("-") == len("wide cell") + len("long head")


def test_the_large_checkpoint_is_a_real_one(load, tmp_path) -> None:  # proves: P10
    from safetensors.numpy import load_file

    checkpoints = load("checkpoints")
    shapes = {"norm.weight": (16,), "proj.weight": (1100, 16)}
    checkpoints._write_safetensors(tmp_path / "model.safetensors", shapes)
    tensors = load_file(tmp_path / "model.safetensors")
    assert {name: tensor.shape for name, tensor in tensors.items()} == shapes
    proj = tensors["proj.weight"].astype("float32")
    assert 0.018 < proj.std() < 0.022
    assert 0.5 < tensors["norm.weight"].astype("float32").mean() < 1.5
    assert checkpoints.largest_tensor_bytes(tmp_path) == 1100 * 16 * 2


def test_the_large_checkpoint_has_tinyllamas_shape(load) -> None:  # proves: P10
    checkpoints = load("checkpoints")
    num_weights = 0
    for shape in checkpoints._list_shapes().values():
        size = 1
        for length in shape:
            size *= length
        num_weights += size
    assert num_weights == 1_100_048_384


def test_commands_are_filled_in(load) -> None:  # proves: P10
    tools = load("tools")
    command = tools.assay_tool("int4", "--head", "int4").fill(Path("m"), Path("o"))
    expected = "-m assay export -m m -o o -p int4 -e cpu --head int4 --no-load --no-verify --json"
    assert " ".join(command[1:]) == expected
    builder = tools.builder_tool("python", Path("c")).fill(Path("m"), Path("o"))
    expected = "-m onnxruntime_genai.models.builder -m m -o o -p int4 -e cpu -c c"
    assert " ".join(builder[1:]) == expected
