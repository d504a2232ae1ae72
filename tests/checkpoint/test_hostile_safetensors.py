"""Broken and hostile folders: each gets one clear error, and the honest twin opens."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.checkpoint import open_checkpoint
from assay.errors import CheckpointError

HONEST = {
    "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
    "b": {"dtype": "F16", "shape": [3], "data_offsets": [16, 22]},
}
DATA = bytes(22)


def change(tensor: str, **keys: Any) -> dict[str, Any]:
    return {**HONEST, tensor: {**HONEST[tensor], **keys}}


def refuse(path: Path, *words: str) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(path)
    error = caught.value
    for word in words:
        assert word in str(error), str(error)
    assert error.where
    assert error.next_step, "an error says what to do now"
    return error


# proves: Q3
def test_the_honest_file_opens(make_folder: Callable[..., Path], pack: Any) -> None:
    header = {"__metadata__": {"format": "pt"}, **HONEST}
    with open_checkpoint(make_folder({"model.safetensors": pack(header, DATA)})) as checkpoint:
        assert list(checkpoint.tensors) == ["a", "b"]


HEADERS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "overlap": (change("b", data_offsets=[14, 20]), ("'b'", "overlaps", "16")),
    "hole": (change("b", data_offsets=[18, 24]), ("'b'", "hole", "16")),
    "first hole": ({"a": {**HONEST["a"], "data_offsets": [4, 20]}}, ("'a'", "hole")),
    "reversed": (change("b", data_offsets=[22, 16]), ("'b'", "6 bytes")),
    "size": (change("a", data_offsets=[0, 20]), ("'a'", "20 bytes", "16 bytes")),
    "negative shape": (change("a", shape=[-2, -2]), ("'a'", "non-negative")),
    "negative offset": (change("a", data_offsets=[-16, 0]), ("'a'", "non-negative")),
    "boolean shape": (change("a", shape=[True, 4]), ("'a'", "non-negative")),
    "fractional shape": (change("a", shape=[2.0, 2]), ("'a'", "non-negative")),
    "huge shape": (change("a", shape=[2**61, 2**61]), ("'a'", "2**62")),
    "absurd shape": (change("a", shape=[2**80]), ("'a'",)),
    "shape text": (change("a", shape="22"), ("'a'", "shape")),
    "dtype": (change("a", dtype="F4"), ("'a'", "F4", "BF16")),
    "dtype kind": (change("a", dtype=["F32"]), ("'a'",)),
    "no dtype": ({"a": {"shape": [1], "data_offsets": [0, 4]}}, ("'a'", "None")),
    "three offsets": (change("a", data_offsets=[0, 8, 16]), ("'a'", "two")),
    "entry": ({"a": [0, 16]}, ("'a'", "object")),
    "list": (b"[1, 2]  ", ("a JSON list", "object")),
    "not JSON": (b'{"a": }', ("line 1",)),
    "not UTF-8": (b'{"\xff": 1}', ("JSON",)),
    "nested": (b"[" * 100_000, ("JSON",)),
    "long number": (b'{"a": ' + b"9" * 10_000 + b"}", ("JSON",)),
    "twice": (
        b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
        b'"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}',
        ("'a'", "twice"),
    ),
}


# proves: Q3
@pytest.mark.parametrize("fault", HEADERS)
def test_a_lying_header_is_refused(fault: str, make_folder: Callable[..., Path], pack: Any) -> None:
    header, words = HEADERS[fault]
    folder = make_folder({"model.safetensors": pack(header, DATA)})
    refuse(folder, "model.safetensors", *words)


# proves: Q3
@pytest.mark.parametrize("length", [0, 1, 10_000, 100_000_001, 2**63, 2**64 - 1])
def test_a_lying_header_length_is_refused(
    length: int, make_folder: Callable[..., Path], pack: Any
) -> None:
    folder = make_folder({"model.safetensors": pack(HONEST, DATA, length=length)})
    refuse(folder, "model.safetensors", f"{length:,}", "header")


# proves: Q3
@pytest.mark.parametrize("kept", [0, 7, 8, 60, -1])
def test_a_truncated_file_says_found_and_expected(
    kept: int, make_folder: Callable[..., Path], pack: Any
) -> None:
    whole = pack(HONEST, DATA)
    folder = make_folder({"model.safetensors": whole[:kept]})
    error = refuse(folder, "model.safetensors", f"{len(whole[:kept]):,} bytes", "download it again")
    if kept == -1:
        assert f"{len(whole):,} bytes" in error.expected


# proves: Q3
def test_trailing_bytes_are_refused(make_folder: Callable[..., Path], pack: Any) -> None:
    refuse(make_folder({"model.safetensors": pack(HONEST, DATA + b"x")}), "longer")


# proves: Q3
def test_a_git_lfs_pointer_is_named(make_folder: Callable[..., Path]) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    refuse(make_folder({"model.safetensors": pointer}), "LFS", "git lfs pull")


# proves: Q3
@pytest.mark.parametrize(
    "name",
    ["../x.safetensors", "/etc/x.safetensors", "d/x.safetensors", "..\\x.safetensors",
     "C:x.safetensors", ".safetensors", "x.bin", "x\0.safetensors", "", 3],
)  # fmt: skip
def test_an_index_that_points_elsewhere_is_refused(
    name: Any, make_folder: Callable[..., Path], pack: Any, tmp_path: Path
) -> None:
    (tmp_path / "x.safetensors").write_bytes(pack(HONEST, DATA))
    index = {"weight_map": {"a": name, "b": name}}
    files = {"model.safetensors.index.json": index, "model-1.safetensors": pack(HONEST, DATA)}
    refuse(make_folder(files), "model.safetensors.index.json", "without a path")


# proves: B3
def test_an_index_that_does_not_fit_is_refused(make_folder: Callable[..., Path], pack: Any) -> None:
    index_name = "model.safetensors.index.json"
    shard = {"m1.safetensors": pack(HONEST, DATA)}

    def with_index(weight_map: Any, **files: bytes) -> Path:
        return make_folder({**shard, **files, index_name: {"weight_map": weight_map}})

    good = {"a": "m1.safetensors", "b": "m1.safetensors"}
    open_checkpoint(with_index(good)).close()  # control
    refuse(with_index({**good, "c": "m2.safetensors"}), index_name, "m2.safetensors", "Download")
    refuse(with_index({**good, "c": "m1.safetensors"}), "'c'", "none of the shards")
    refuse(with_index({}), "weight_map")
    refuse(make_folder({**shard, index_name: "{"}), index_name, "line 1")
    other = pack({"c": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}, b"\0")
    files = {"m2.safetensors": other}
    refuse(with_index({**good, "c": "m2.safetensors", "b": "m2.safetensors"}, **files), "'b'")
    twice = {"m2.safetensors": pack(HONEST, DATA)}
    refuse(with_index({"a": "m1.safetensors", "b": "m2.safetensors"}, **twice), "also in")


# proves: Q3
def test_shards_without_an_index_are_refused(make_folder: Callable[..., Path], pack: Any) -> None:
    names = ("m1.safetensors", "m2.safetensors")
    refuse(make_folder(dict.fromkeys(names, pack({}))), "2 safetensors files", "index")


CONFIGS = {
    "missing": (None, ("no config.json", "config.json and *.safetensors")),
    "list": ("[]", ("a JSON list", "object")),
    "broken": ('{\n"model_type": "llama",\n oops}', ("line 3",)),
    "no model_type": ("{}", ("model_type is None", "llama")),
    "model_type kind": ('{"model_type": 3}', ("model_type is 3",)),
    "too large": ('{"model_type": "x", "y": "' + "z" * (17 << 20) + '"}', ("bytes", "at most")),
}


# proves: B3
@pytest.mark.parametrize("fault", CONFIGS)
def test_a_bad_config_is_refused(fault: str, make_folder: Callable[..., Path], pack: Any) -> None:
    config, words = CONFIGS[fault]
    refuse(make_folder({"model.safetensors": pack(HONEST, DATA)}, config=config), *words)


# proves: Q3
def test_a_folder_without_weights_says_what_is_there(
    make_folder: Callable[..., Path], tmp_path: Path
) -> None:
    refuse(make_folder({}, name="empty"), "no weights", "*.safetensors")
    pickled = make_folder({"pytorch_model.bin": b"\x80\x04."}, name="pickled")
    refuse(pickled, "pytorch_model.bin", "runs code", "save_pretrained")
    adapter = make_folder({"adapter_model.safetensors": b""}, name="adapter")
    refuse(adapter, "adapter", "merge_and_unload")
    refuse(tmp_path / "nowhere", "doesn't exist", "download")
    refuse(make_folder({"a.gguf": b"", "b.gguf": b""}, name="two"), "2 GGUF files", "one of them")
    lone = make_folder({"x.safetensors": b""}, name="lone")
    refuse(lone / "x.safetensors", "one file of a checkpoint", str(lone))


# proves: Q3
def test_safetensors_win_over_gguf_and_pickles(make_folder: Callable[..., Path], pack: Any) -> None:
    others = {"model.gguf": b"GGUF", "pytorch_model.bin": b"\x80"}
    with open_checkpoint(make_folder({"model.safetensors": pack(HONEST, DATA), **others})) as found:
        assert [path.name for path in found.weight_paths] == ["model.safetensors"]


# proves: Q3
def test_what_is_not_a_file_does_not_hang(make_folder: Callable[..., Path]) -> None:
    folder = make_folder({}, name="pipe")
    os.mkfifo(folder / "model.safetensors")
    refuse(folder, "isn't a regular file")
    folder = make_folder({}, name="device")
    (folder / "model.safetensors").symlink_to("/dev/zero")
    refuse(folder, "isn't a regular file")
    folder = make_folder({}, name="dangling")
    (folder / "model.safetensors").symlink_to("gone")
    refuse(folder)


# proves: Q3
def test_no_mutation_gets_past_the_checks(
    make_folder: Callable[..., Path], pack: Any, rng: np.random.Generator
) -> None:
    """Any byte changed: the file opens and reads, or CheckpointError; never anything else."""
    whole = pack(HONEST, DATA)
    folder = make_folder({"model.safetensors": whole})
    outcomes = {True: 0, False: 0}
    for _ in range(400):
        broken = bytearray(whole)
        for place in rng.integers(0, len(whole), rng.integers(1, 4)):
            broken[place] = rng.integers(0, 256)
        (folder / "model.safetensors").write_bytes(broken)
        try:
            with open_checkpoint(folder) as checkpoint:
                for name, info in checkpoint.tensors.items():
                    assert checkpoint.read(name).nbytes == info.size_bytes
            outcomes[True] += 1
        except CheckpointError:
            outcomes[False] += 1
    assert min(outcomes.values()) > 0, "both happen, so the test can see each"


# proves: Q3
def test_a_deep_config_is_an_error_not_a_crash(make_folder: Callable[..., Path], pack: Any) -> None:
    deep = '{"model_type": "x", "y": ' + "[" * 200_000 + "]" * 200_000 + "}"
    folder = make_folder({"model.safetensors": pack(HONEST, DATA)}, config=None)
    (folder / "config.json").write_text(deep)
    refuse(folder, "config.json", "JSON")
    (folder / "config.json").write_text(json.dumps({"model_type": "x", "y": [[[]]]}))
    open_checkpoint(folder).close()  # control
