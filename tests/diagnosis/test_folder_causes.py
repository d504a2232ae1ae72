"""Faults of a folder's files are named with file and key, or with the node.

proves: P8, P9. Control of each: the folder before the fault.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from assay.diagnosis import Diagnosis, diagnose_folder
from assay.diagnosis.folder_causes import FOLDER_CAUSES
from tests.diagnosis.planting.rooms import write_tokenizer
from tests.twins.cases import BASES
from tests.twins.twin import build_twin, export_twin

pytestmark = pytest.mark.twin
TYPES = ("llama", "gemma2", "gpt2")
Plant = Callable[[Path], None]


@pytest.fixture(scope="module", params=TYPES)
def healthy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export with a tokenizer and a chat template, its checkpoint beside it as hf."""
    room = tmp_path_factory.mktemp(request.param)
    build_twin(BASES[request.param], 0.12, room / "hf")
    write_tokenizer(room / "hf")
    template = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
    (room / "hf" / "chat_template.jinja").write_text(template)
    folder = export_twin(room / "hf", room / "healthy")
    assert diagnose_folder(folder, room / "hf").causes == ()
    return folder


def _graph(edit: Callable[[Any], None]) -> Plant:
    def plant(folder: Path) -> None:
        graph = onnx.load(str(folder / "model.onnx"), load_external_data=False)
        edit(graph)
        (folder / "model.onnx").write_bytes(graph.SerializeToString())

    return plant


def _config(*keys: str, value: Any) -> Plant:
    def plant(folder: Path) -> None:
        file = folder / "genai_config.json"
        config = json.loads(file.read_text())
        inner = config
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value
        file.write_text(json.dumps(config))

    return plant


def _tokenizer(edit: Callable[[Any], None]) -> Plant:
    def plant(folder: Path) -> None:
        file = folder / "tokenizer.json"
        content = json.loads(file.read_text())
        edit(content)
        file.write_text(json.dumps(content))

    return plant


def _write(name: str, content: bytes) -> Plant:
    return lambda folder: (folder / name).write_bytes(content) and None  # type: ignore[func-returns-value]


def _remove(name: str) -> Plant:
    return lambda folder: (folder / name).unlink()


def _cut(name: str) -> Plant:
    def plant(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])

    return plant


def _twice(graph: Any) -> None:
    graph.graph.node[4].name = graph.graph.node[3].name


def _value_twice(graph: Any) -> None:
    graph.graph.node[-1].output.append(graph.graph.node[0].output[0])


def _dangle(graph: Any) -> None:
    graph.graph.node[-1].input[0] = "nobody"


def _disorder(graph: Any) -> None:
    last = graph.graph.node.pop()
    graph.graph.node.insert(0, last)


def _foreign(graph: Any) -> None:
    graph.graph.node[-1].domain = "foreign"


def _external(key: str, value: str) -> Callable[[Any], None]:
    def edit(graph: Any) -> None:
        tensors = [t for t in graph.graph.initializer if t.external_data]
        for entry in tensors[-1].external_data:
            if entry.key == key:
                entry.value = value

    return edit


def _overlap(graph: Any) -> None:
    tensors = [t for t in graph.graph.initializer if t.external_data]
    place = {entry.key: entry.value for entry in tensors[0].external_data}
    for entry in tensors[1].external_data:
        if entry.key == "offset":
            entry.value = str(int(place.get("offset", 0)) + 4)


def _other_ids(content: Any) -> None:
    words = content["model"]["vocab"]
    first, second = list(words)[5:7]
    words[first], words[second] = words[second], words[first]


def _other_rules(content: Any) -> None:
    first = next(word for word in content["model"]["vocab"] if word.isalnum())
    content["normalizer"] = {"type": "Replace", "pattern": {"String": first[0]}, "content": "~"}


CONFIG = "genai_config.json: model"
FAULTS: tuple[tuple[str, str, Plant], ...] = (
    ("graph_missing", "model.onnx", _remove("model.onnx")),
    ("graph_unreadable", "model.onnx", _write("model.onnx", b"\xff\xff not a graph")),
    ("duplicate_node", "", _graph(_twice)),
    ("duplicate_value", "", _graph(_value_twice)),
    ("dangling_input", "", _graph(_dangle)),
    ("node_order", "", _graph(_disorder)),
    ("opset_missing", "", _graph(_foreign)),
    ("data_missing", "", _remove("model.onnx.data")),
    ("data_outside", "", _graph(_external("location", "../../etc/passwd"))),
    ("data_truncated", "", _cut("model.onnx.data")),
    ("data_truncated", "", _graph(_external("offset", "99999999"))),
    ("data_size", "", _graph(_external("length", "12"))),
    ("data_overlap", "", _graph(_overlap)),
    ("config_unreadable", "genai_config.json", _write("genai_config.json", b"{")),
    (
        "config_filename",
        f"{CONFIG}.decoder.filename",
        _config("model", "decoder", "filename", value="decoder.onnx"),
    ),
    ("config_type", f"{CONFIG}.type", _config("model", "type", value="whisper")),
    (
        "config_sizes",
        f"{CONFIG}.decoder.head_size",
        _config("model", "decoder", "head_size", value=24),
    ),
    (
        "config_sizes",
        f"{CONFIG}.decoder.num_hidden_layers",
        _config("model", "decoder", "num_hidden_layers", value=2),
    ),
    ("config_vocabulary", f"{CONFIG}.vocab_size", _config("model", "vocab_size", value=300)),
    (
        "config_names",
        f"{CONFIG}.decoder.inputs.past_key_names",
        _config("model", "decoder", "inputs", "past_key_names", value="past.%d.k"),
    ),
    (
        "config_names",
        f"{CONFIG}.decoder.outputs.logits",
        _config("model", "decoder", "outputs", "logits", value="scores"),
    ),
    ("eos_incomplete", f"{CONFIG}.eos_token_id", _config("model", "eos_token_id", value=[])),
    ("eos_incomplete", f"{CONFIG}.eos_token_id", _config("model", "eos_token_id", value=7)),
    ("bos_wrong", f"{CONFIG}.bos_token_id", _config("model", "bos_token_id", value=9)),
    ("tokenizer_missing", "tokenizer.json", _remove("tokenizer.json")),
    ("tokenizer_unreadable", "tokenizer.json", _write("tokenizer.json", b'{"model": 3}')),
    ("tokenizer_vocabulary", "tokenizer.json", _tokenizer(_other_ids)),
    ("tokenizer_rules", "tokenizer.json", _tokenizer(_other_rules)),
    ("template_missing", "chat_template.jinja", _remove("chat_template.jinja")),
    ("template_unreadable", "chat_template.jinja", _write("chat_template.jinja", b"{% for %}")),
    ("template_differs", "chat_template.jinja", _write("chat_template.jinja", b"{{ messages }}")),
)


@pytest.mark.parametrize(
    ("cause", "place", "plant"), FAULTS, ids=[f"{n}-{f[0]}" for n, f in enumerate(FAULTS)]
)
def test_the_file_is_named(
    cause: str, place: str, plant: Plant, healthy: Path, tmp_path: Path
) -> None:
    """The cause, its place and nothing unrelated beside it."""
    folder = tmp_path / "out"
    shutil.copytree(healthy, folder)
    plant(folder)
    found: Diagnosis = diagnose_folder(folder, healthy.parent / "hf")
    assert cause in {c.id for c in found.causes}, found.to_text()
    assert found.exit_code == 1
    moved = cause == "data_overlap"  # whose values are wrong too
    assert moved or all(c.id in FOLDER_CAUSES for c in found.causes), found.to_text()
    if place:
        assert place in {c.place for c in found.causes if c.id == cause}


def test_every_cause_of_files_is_planted_or_told() -> None:
    """The window's and the types' causes need a folder of their own kind. Control: none beside."""
    planted = {cause for cause, _, _ in FAULTS}
    assert set(FOLDER_CAUSES) - planted == {"config_window", "shape_error"}
