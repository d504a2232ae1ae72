"""Reading safetensors folders: values, rows, shards, names, tokenizer files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from assay.checkpoint import TensorInfo, open_checkpoint
from assay.errors import CheckpointError, WeightError

DTYPES = {
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F64": np.float64,
    "I64": np.int64,
    "I32": np.int32,
    "U8": np.uint8,
    "BOOL": np.bool_,
}
SHAPES: tuple[tuple[int, ...], ...] = ((), (7,), (5, 6), (3, 4, 2), (0, 3), (2, 0))


def make_tensors() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    return {
        f"{word}.{len(shape)}.{shape}": np.asarray(
            rng.integers(0, 2, shape) if word == "BOOL" else rng.normal(size=shape) * 10
        ).astype(dtype)
        for word, dtype in DTYPES.items()
        for shape in SHAPES
    }


@pytest.fixture
def single(make_folder: Callable[..., Path]) -> Path:
    folder = make_folder({})
    save_file(make_tensors(), folder / "model.safetensors")
    return folder


# proves: Q3
def test_values_equal_those_that_were_written(single: Path) -> None:
    written = make_tensors()
    with open_checkpoint(single) as checkpoint:
        assert set(checkpoint.tensors) == set(written)
        for name, expected in written.items():
            found = checkpoint.read(name)
            assert found.dtype == expected.dtype
            assert found.shape == expected.shape == checkpoint.tensors[name].shape
            assert found.tobytes() == expected.tobytes()
        other = checkpoint.read("F32.2.(5, 6)") + 1  # negative control: the comparison can fail
        assert other.tobytes() != written["F32.2.(5, 6)"].tobytes()


# proves: Q3
def test_names_and_dtypes_agree_with_the_safetensors_package(single: Path) -> None:
    with (
        open_checkpoint(single) as checkpoint,
        safe_open(single / "model.safetensors", framework="numpy") as reference,
    ):
        assert set(checkpoint.tensors) == set(reference.keys())
        for name, info in checkpoint.tensors.items():
            piece = reference.get_slice(name)
            assert (info.dtype, list(info.shape)) == (piece.get_dtype(), piece.get_shape())
            assert info.size_bytes == checkpoint.read(name).nbytes


# proves: Q3
def test_rows_are_slices_of_the_two_dimensional_view(single: Path) -> None:
    written = make_tensors()
    with open_checkpoint(single) as checkpoint:
        for name, whole in written.items():
            info = checkpoint.tensors[name]
            flat = whole.reshape(info.num_rows, info.num_columns)
            for start, stop in ((0, info.num_rows), (1, 2), (2, 2), (1, info.num_rows)):
                if not start <= stop <= info.num_rows:
                    continue
                rows = checkpoint.read_rows(name, start, stop)
                assert rows.shape == (stop - start, info.num_columns)
                assert rows.flags.c_contiguous
                assert rows.tobytes() == np.ascontiguousarray(flat[start:stop]).tobytes()
        rows = checkpoint.read_rows("F32.2.(5, 6)", 1, 3)
        assert rows.tobytes() != written["F32.2.(5, 6)"][2:4].tobytes()  # negative control
        with pytest.raises(AssertionError):
            checkpoint.read_rows("F32.2.(5, 6)", 3, 6)


# proves: B3
def test_unknown_tensor_names_the_nearest(single: Path) -> None:
    with open_checkpoint(single) as checkpoint, pytest.raises(WeightError, match=r"F32\.1"):
        checkpoint.read("F32.1.(8,)")


def write_shards(folder: Path, shards: dict[str, dict[str, np.ndarray]]) -> dict[str, str]:
    for name, tensors in shards.items():
        save_file(tensors, folder / name)
    weight_map = {tensor: name for name, tensors in shards.items() for tensor in tensors}
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return weight_map


SHARDS = {
    "model-00001-of-00002.safetensors": {"a": np.arange(6.0, dtype=np.float32).reshape(2, 3)},
    "model-00002-of-00002.safetensors": {
        "b": np.arange(4, dtype=np.float16),
        "c": np.ones((1, 1), dtype=np.float32),
    },
}


# proves: Q3
def test_shards_are_read_through_their_index(make_folder: Callable[..., Path]) -> None:
    folder = make_folder({})
    write_shards(folder, SHARDS)
    with open_checkpoint(folder) as checkpoint:
        assert set(checkpoint.tensors) == {"a", "b", "c"}
        assert checkpoint.read("a").tolist() == [[0, 1, 2], [3, 4, 5]]
        assert checkpoint.read("b").tolist() == [0, 1, 2, 3]
        assert [path.name for path in checkpoint.weight_paths] == list(SHARDS)
        assert checkpoint.notes == ()


# proves: B3
def test_tensors_outside_the_index_are_kept_and_reported(make_folder: Callable[..., Path]) -> None:
    folder = make_folder({})
    weight_map = write_shards(folder, SHARDS)
    del weight_map["c"]
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    with open_checkpoint(folder) as checkpoint:
        assert "c" in checkpoint.tensors
        assert len(checkpoint.notes) == 1
        assert "c" in checkpoint.notes[0]


# proves: Q3
def test_a_lone_file_needs_no_index(make_folder: Callable[..., Path], pack: Any) -> None:
    folder = make_folder({"weights.safetensors": pack({})})
    with open_checkpoint(folder) as checkpoint:
        assert dict(checkpoint.tensors) == {}


# proves: Q3
def test_symbolic_links_of_the_hub_cache_are_followed(tmp_path: Path, single: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    shutil.move(single, blobs)
    snapshot.mkdir()
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(f"../blobs/{path.name}")
    with open_checkpoint(snapshot) as checkpoint:
        assert len(checkpoint.tensors) == len(DTYPES) * len(SHAPES)


# proves: B3
def test_config_is_raw_and_keeps_what_python_json_takes(
    make_folder: Callable[..., Path], pack: Any
) -> None:
    text = '{"model_type": "x", "auto_map": {"A": "evil.B"}, "z": NaN, "y": -Infinity}'
    folder = make_folder({"model.safetensors": pack({}), "config.json": text}, config=None)
    with open_checkpoint(folder) as checkpoint:
        assert checkpoint.config["auto_map"] == {"A": "evil.B"}
        assert checkpoint.config["y"] == float("-inf")
        assert checkpoint.generation_config == {}
    (folder / "generation_config.json").write_text('{"eos_token_id": [1, 2]}')
    with open_checkpoint(folder) as checkpoint:
        assert checkpoint.generation_config == {"eos_token_id": [1, 2]}


# proves: B11
def test_tokenizer_files_are_copied_and_code_is_not(
    make_folder: Callable[..., Path], pack: Any, tmp_path: Path
) -> None:
    files = {"tokenizer.json": "{}", "chat_template.jinja": "{{x}}", "tokenizer.model": b"\x00\xff"}
    code = {"tokenization_evil.py": "raise SystemExit", "README.md": "hi"}
    folder = make_folder({"model.safetensors": pack({}), **files, **code})
    target = tmp_path / "out"
    target.mkdir()
    with open_checkpoint(folder) as checkpoint:
        assert set(checkpoint.tokenizer_files()) == set(files)
        assert checkpoint.write_tokenizer(target) == checkpoint.tokenizer_files()
    assert {path.name for path in target.iterdir()} == set(files)
    assert (target / "tokenizer.model").read_bytes() == b"\x00\xff"


# proves: Q3
def test_a_file_cut_short_while_open_is_an_error_not_a_crash(single: Path) -> None:
    with open_checkpoint(single) as checkpoint:
        checkpoint.read("F64.2.(5, 6)")  # control: readable before
        os.truncate(single / "model.safetensors", 4000)
        last = list(checkpoint.tensors)[-1]
        with pytest.raises(CheckpointError, match="it ends at byte 4,000 now"):
            checkpoint.read(last)


STREAM = """
import resource, sys
from assay.checkpoint import open_checkpoint
checkpoint = open_checkpoint(sys.argv[1])
step = int(sys.argv[2])
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
checkpoint.read_rows("w", 0, 1)
before = peak()
total = 0.0
for start in range(0, 16384, step):
    total += float(checkpoint.read_rows("w", start, start + step)[0, 0])
print(peak() - before, total)
"""


# proves: Q3
def test_streaming_keeps_the_resident_set_small(make_folder: Callable[..., Path]) -> None:
    folder = make_folder({})
    weight = np.ones((16384, 1024), dtype=np.float32)  # 64 MiB
    save_file({"w": weight}, folder / "model.safetensors")
    grown = {}
    for step in (256, 16384):
        command = [sys.executable, "-c", STREAM, str(folder), str(step)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        grown[step], total = map(float, done.stdout.split())
        assert total == 16384 / step
    assert grown[256] < 8
    assert grown[16384] > 60  # negative control: the measure sees a tensor read whole


# proves: B12
def test_opening_imports_neither_torch_nor_transformers(single: Path) -> None:
    code = (
        "import sys; from assay.checkpoint import open_checkpoint; open_checkpoint(sys.argv[1]);"
        "print([m for m in ('torch', 'transformers', 'tokenizers', 'safetensors', 'gguf', 'numpy')"
        " if m in sys.modules])"
    )
    command = [sys.executable, "-c", code, str(single)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['numpy']"  # numpy: the control that the list can be non-empty


def test_tensor_info_counts_rows_and_columns() -> None:
    info = TensorInfo(name="w", dtype="F32", shape=(3, 4, 2), size_bytes=96)
    assert (info.num_rows, info.num_columns) == (3, 8)
    scalar = TensorInfo(name="s", dtype="F32", shape=(), size_bytes=4)
    assert (scalar.num_rows, scalar.num_columns) == (1, 1)
