"""What stands in a folder beside graph and weights: tokenizer, configuration, manifest."""

from __future__ import annotations

import hashlib
import json
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.pipeline import export
from assay.version import __version__
from tests.pipeline.running import draw_ids, load_graph, open_session, run_logits
from tests.pipeline.tiny import TEMPLATE, write_llama

FILES = [
    "chat_template.jinja",
    "genai_config.json",
    "manifest.json",
    "model.onnx",
    "model.onnx.data",
    "tokenizer.json",
    "tokenizer_config.json",
]


def test_all_files_are_there(folder: Path, checkpoints: dict[bool, Path]) -> None:
    """proves: B11. Control: test_a_checkpoint_without_a_tokenizer has fewer."""
    assert sorted(path.name for path in folder.iterdir()) == FILES
    source = checkpoints["-tied" in folder.name]
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (folder / name).read_bytes() == (source / name).read_bytes()
    assert (folder / "chat_template.jinja").read_text() == TEMPLATE
    assert folder.stat().st_mode & 0o777 == 0o755, "others may read it"


def test_a_checkpoint_without_a_tokenizer(tmp_path: Path) -> None:
    """Only what is there is copied, and code never. proves: B11"""
    checkpoint = write_llama(tmp_path / "checkpoint")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (checkpoint / name).unlink()
    (checkpoint / "tokenization_custom.py").write_text("print('never')")
    folder = export(checkpoint, tmp_path / "out", check_loading=False).folder
    assert sorted(path.name for path in folder.iterdir()) == [
        "genai_config.json", "manifest.json", "model.onnx", "model.onnx.data",
    ]  # fmt: skip


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """A JSON file of a folder."""
    content: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
    return content


def check_hashes(folder: Path) -> None:
    """The manifest lists every other file with its size and hash."""
    files = read_json(folder, "manifest.json")["files"]
    there = {path.name: path.read_bytes() for path in folder.iterdir()}
    del there["manifest.json"]
    assert files == {
        name: {"size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in there.items()
    }


def test_the_manifest_tells_what_was_written(folder: Path, tmp_path: Path) -> None:
    """proves: B11. Control: one flipped byte is found."""
    check_hashes(folder)
    manifest = read_json(folder, "manifest.json")
    assert manifest["schema_version"] == 1
    assert manifest["source"] == {"path": folder.name.split("-")[1], "model_type": "llama"}
    assert manifest["options"]["precision"] == folder.name.split("-")[0]
    assert manifest["options"]["symmetric"] == ("asymmetric" not in folder.name)
    assert manifest["options"]["group_size"] == 32
    versions = manifest["versions"]
    assert {"python", "numpy", "onnxruntime", "onnx-ir", "numba"} <= set(versions)
    assert versions["onnx-ir"] == metadata.version("onnx-ir")
    assert manifest["load_once"] == {"status": "skipped", "reason": "switched off by the user"}
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in folder.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    content = bytearray((copy / "model.onnx.data").read_bytes())
    content[5000] ^= 1
    (copy / "model.onnx.data").write_bytes(content)
    with pytest.raises(AssertionError):
        check_hashes(copy)


def test_a_source_tree_knows_its_version(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """proves: B11. Control: of another package that isn't installed nothing is claimed."""

    def refuse(package: str) -> str:
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(metadata, "version", refuse)
    folder = export(llama, tmp_path / "out", check_loading=False).folder
    versions = read_json(folder, "manifest.json")["versions"]
    assert versions["assay"] == __version__
    assert versions["onnxruntime"] is None


def test_the_manifest_names_every_quantized_matrix(folder: Path) -> None:
    """With its grid, its tensors and their rows, for the judge. proves: B11, P7

    Control: a float folder names none.
    """
    weights = read_json(folder, "manifest.json")["weights"]
    if not folder.name.startswith("int"):
        assert weights == {}
        return
    stored = {tensor.name for tensor in load_graph(folder).graph.initializer}
    for entry in weights.values():
        assert {name for name in entry["initializers"].values() if name} <= stored
    tensors = {part["tensor"] for entry in weights.values() for part in entry["parts"]}
    assert {name for name in tensors if "layers.1" in name} == {
        f"model.layers.1.{name}.weight"
        for name in (
            "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
            "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
        )
    }  # fmt: skip
    assert not any("norm" in name for name in tensors), "norms are never quantized"


def test_genai_config_is_complete(folder: Path) -> None:
    """proves: B11. Control: test_token_ids varies the sources."""
    config = read_json(folder, "genai_config.json")
    model, decoder = config["model"], config["model"]["decoder"]
    assert model["type"] == "llama"
    assert model["vocab_size"] == 72
    assert model["context_length"] == config["search"]["max_length"] == 128
    assert model["eos_token_id"] == [5, 2, 3], "generation_config's first, then config's"
    assert model["bos_token_id"] == 1
    assert config["search"]["temperature"] == 0.6
    assert config["search"]["top_p"] == 0.9
    tied = "-tied" in folder.name
    sizes = ("head_size", "hidden_size", "num_attention_heads", "num_key_value_heads")
    assert tuple(decoder[name] for name in sizes) == (16, 72 if tied else 64, 4, 2)
    assert decoder["num_hidden_layers"] == 2
    assert config["search"]["past_present_share_buffer"] == ("gqa" in folder.name)
    session = open_session(folder)
    inputs = {value.name for value in session.get_inputs()}
    expected = set()
    for name in decoder["inputs"].values():
        expected |= {name % layer for layer in range(2)} if "%d" in name else {name}
    assert inputs == expected
    outputs = {value.name for value in session.get_outputs()}
    expected = {"logits"} | {
        decoder["outputs"][f"present_{kind}_names"] % layer
        for kind in ("key", "value")
        for layer in range(2)
    }
    assert outputs == expected


TOKEN_IDS: dict[str, tuple[dict[str, Any] | None, dict[str, Any], tuple[Any, Any, Any]]] = {
    "one each": ({"eos_token_id": 5}, {"eos_token_id": 2}, (1, [5, 2], 5)),
    "same": ({"eos_token_id": 2}, {"eos_token_id": 2}, (1, [2], 2)),
    "lists": ({"eos_token_id": [5, 6]}, {"eos_token_id": [6, 2]}, (1, [5, 6, 2], 5)),
    "no generation_config": (None, {"eos_token_id": [4, 2]}, (1, [4, 2], 4)),
    "pad": ({"pad_token_id": 7}, {"eos_token_id": 2}, (1, [2], 7)),
    "negative pad": ({"pad_token_id": -1}, {"eos_token_id": 2}, (1, [2], 2)),
    "no bos": ({"eos_token_id": 5}, {"bos_token_id": None}, (5, [5, 3], 5)),
}


@pytest.mark.parametrize("case", TOKEN_IDS)
def test_token_ids(case: str, tmp_path: Path) -> None:
    """All end tokens of both files, none twice (mobius 521). proves: B11"""
    generation, config, expected = TOKEN_IDS[case]
    checkpoint = write_llama(tmp_path / "checkpoint", generation=generation, **config)
    folder = export(checkpoint, tmp_path / "out", check_loading=False).folder
    model = read_json(folder, "genai_config.json")["model"]
    assert (model["bos_token_id"], model["eos_token_id"], model["pad_token_id"]) == expected


def test_context_length_is_the_model_s_or_the_user_s(tmp_path: Path, llama: Path) -> None:
    """proves: B11. Control: frequencies that depend on the length end it at the trained one."""
    dynamic = write_llama(
        tmp_path / "dynamic",
        rope_scaling={
            "rope_type": "longrope",
            "original_max_position_embeddings": 48,
            "short_factor": [1.0] * 8,
            "long_factor": [2.0] * 8,
        },
    )
    lengths = {
        name: read_json(
            export(source, tmp_path / name, check_loading=False, context_length=asked).folder,
            "genai_config.json",
        )["model"]["context_length"]
        for name, source, asked in (
            ("own", llama, 0), ("asked", llama, 40), ("trained", dynamic, 0),
        )
    }  # fmt: skip
    assert lengths == {"own": 128, "asked": 40, "trained": 48}


def test_all_logits_or_the_last(llama: Path, tmp_path: Path) -> None:
    """proves: B11. The last position of all is the only one of the other."""
    ids = draw_ids(72, 9)
    last = run_logits(export(llama, tmp_path / "last", check_loading=False).folder, ids)
    every = export(llama, tmp_path / "every", check_loading=False, all_logits=True).folder
    assert last.shape == (1, 1, 72)
    assert run_logits(every, ids).shape == (1, 9, 72)
    np.testing.assert_allclose(run_logits(every, ids)[:, -1:], last, rtol=1e-5, atol=1e-6)
    assert not np.allclose(run_logits(every, ids)[:, :1], last, rtol=1e-3)  # control
