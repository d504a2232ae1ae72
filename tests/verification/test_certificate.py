"""parity.json: what voids it, what doesn't, and what a hostile one can do: nothing."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from tests.pipeline.tiny import write_llama

from assay.errors import AssayError, OutputError, RuntimeFolderError, UnjudgedError
from assay.pipeline import export
from assay.runtime._candidates import TUNABLE_DEFAULTS
from assay.runtime._rewrite import refresh_manifest, write_session_options
from assay.verification import Check, Verdict
from assay.verification.certificate import (
    check_certificate,
    parse_certificate,
    read_certificate,
    write_certificate,
)
from assay.verification.file_hashes import HASHED_WITHOUT, IGNORED, hash_file, snapshot_folder

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "certificate.md"


def make_verdict(status: Any = "pass") -> Verdict:
    """A verdict as the judge gives it."""
    passed = {"pass": True, "fail": False, "unjudged": None}[status]
    metrics = {"rel_l2": 1e-6, "corr": float("nan")}
    prompts = [{"num_tokens": 3, "sha256": "0" * 64, "source": "user"}]
    checks = (Check("prefill", passed, metrics=metrics),)
    return Verdict(status, "out", "llama", "float32", checks, {"x": "1"}, {"prompts": prompts})


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported tiny llama; leave it as it is."""
    place = tmp_path_factory.mktemp("certificate")
    return export(write_llama(place / "llama"), place / "out", check_loading=False).folder


@pytest.fixture
def folder(exported: Path, tmp_path: Path) -> Path:
    """A copy with a certificate that says pass."""
    copy = tmp_path / "out"
    shutil.copytree(exported, copy)
    write_certificate(copy, make_verdict())
    return copy


def test_what_it_holds(folder: Path) -> None:
    """proves: P10. Control: the hashes are those of hashlib, and no file is left out."""
    content = json.loads((folder / "parity.json").read_text())
    assert content["verdict"]["verdict"] == "pass"
    assert content["verdict"]["checks"][0]["metrics"] == {"rel_l2": 1e-6, "corr": None}
    assert content["prompts"] == make_verdict().evidence["prompts"]
    assert {"environment", "prompts"} & set(content["verdict"]) == set()
    assert set(content["files"]) == {path.name for path in folder.iterdir()} - {"parity.json"}
    for name, entry in content["files"].items():
        digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        assert (entry["sha256"] == digest) == (name not in HASHED_WITHOUT)
    site = content["environment"]["packages"]["onnxruntime"]
    assert site["imported_from"].startswith(site["installed_at"])


@pytest.mark.parametrize(("status", "code"), [("pass", 0), ("fail", 1), ("unjudged", 2)])
def test_an_untouched_folder_holds(status: str, code: int, folder: Path) -> None:
    """A verdict of fail holds, and isn't a pass. proves: P10. Control: the changes below."""
    write_certificate(folder, make_verdict(status))
    check = check_certificate(folder)
    assert (check.holds, check.status, check.exit_code) == (True, status, code)
    assert check.to_text().startswith("HOLDS")
    for path in folder.iterdir():  # new times, same bytes
        path.write_bytes(path.read_bytes())
    assert check_certificate(folder).holds


def flip_byte(path: Path, at: int) -> None:
    """Change one byte, keeping the size."""
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(bytes(content))


def change_json(path: Path, *keys: str, value: Any) -> None:
    """Set one value, leaving the rest."""
    content = json.loads(path.read_text())
    place = content
    for key in keys[:-1]:
        place = place.setdefault(key, {})
    place[keys[-1]] = value
    path.write_text(json.dumps(content, indent=2))


SESSION = ("model", "decoder", "session_options")
CHANGES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "weights": ("model.onnx.data", lambda file: flip_byte(file, -7)),
    "graph": ("model.onnx", lambda file: flip_byte(file, 40)),
    "tokenizer": ("tokenizer.json", lambda file: flip_byte(file, 30)),
    "tokenizer config": ("tokenizer_config.json", lambda file: flip_byte(file, 3)),
    "chat template": ("chat_template.jinja", lambda file: flip_byte(file, -1)),
    "cut short": ("model.onnx.data", lambda file: file.write_bytes(file.read_bytes()[:-1])),
    "context length": (
        "genai_config.json",
        lambda file: change_json(file, "model", "context_length", value=64),
    ),
    "another session option": (
        "genai_config.json",
        lambda file: change_json(file, *SESSION, "graph_optimization_level", value=0),
    ),
    "the same key elsewhere": (
        "genai_config.json",
        lambda file: change_json(file, "search", "intra_op_num_threads", value=2),
    ),
    "eos": (
        "genai_config.json",
        lambda file: change_json(file, "model", "eos_token_id", value=4),
    ),
    "a key twice": (
        "genai_config.json",
        lambda file: file.write_text('{"model": {},' + file.read_text()[1:]),
    ),
    "no JSON": ("genai_config.json", lambda file: file.write_text("{")),
    "manifest": (
        "manifest.json",
        lambda file: change_json(file, "options", "precision", value="int4"),
    ),
    "a file's hash in the manifest": (
        "manifest.json",
        lambda file: change_json(file, "files", "model.onnx", value={}),
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_change_voids(case: str, folder: Path) -> None:
    """proves: P10. Control: put back, it holds again."""
    name, change = CHANGES[case]
    before = (folder / name).read_bytes()
    change(folder / name)
    assert (folder / name).read_bytes() != before
    check = check_certificate(folder)
    assert (check.changed, check.missing, check.new) == ((name,), (), ())
    assert (check.holds, check.exit_code) == (False, 1)
    assert name in check.to_text()
    (folder / name).write_bytes(before)
    assert check_certificate(folder).holds


def tune_folder(folder: Path, **more: Any) -> None:
    """What `assay tune` leaves: session options, tune.json, and the manifest brought up to date."""
    options = {"intra_op_num_threads": 2, "session.intra_op.allow_spinning": "1"}
    options |= {"session.dynamic_block_base": "4", **more}
    config = json.loads((folder / "genai_config.json").read_text())
    own = config["model"]["decoder"].get("session_options", {})
    write_session_options(folder, {**own, **options})
    (folder / "tune.json").write_text('{"changed": true}\n')
    refresh_manifest(folder, ("genai_config.json", "tune.json"))


@pytest.mark.parametrize("has_options", [True, False])
def test_tuning_does_not_void(has_options: bool, folder: Path) -> None:
    """proves: P10. Control: an option that tuning doesn't write voids."""
    if not has_options:
        config = json.loads((folder / "genai_config.json").read_text())
        del config["model"]["decoder"]["session_options"]
        (folder / "genai_config.json").write_text(json.dumps(config))
        write_certificate(folder, make_verdict())
    before = (folder / "genai_config.json").read_bytes(), (folder / "manifest.json").read_bytes()
    tune_folder(folder)
    assert (folder / "genai_config.json").read_bytes() != before[0]
    assert (folder / "manifest.json").read_bytes() != before[1]
    check = check_certificate(folder)
    assert (check.holds, check.ignored) == (True, ("parity.json", "tune.json"))
    tune_folder(folder, enable_mem_pattern=False)
    assert check_certificate(folder).changed == ("genai_config.json",)


def test_what_is_left_out_is_what_tune_writes() -> None:
    """A new option of tune's needs a new schema. proves: P10. Control: the names are compared."""
    pointers = HASHED_WITHOUT["genai_config.json"]
    assert {pointer.rsplit("/", 1)[1] for pointer in pointers} == set(TUNABLE_DEFAULTS)
    assert all(pointer.startswith("/" + "/".join(SESSION)) for pointer in pointers)


def test_indentation_does_not_void(folder: Path) -> None:
    """proves: P10. Control: of a file that is hashed as it is, it does."""
    for name, holds in (("genai_config.json", True), ("tokenizer_config.json", False)):
        value = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(value, indent=7))
        assert check_certificate(folder).holds is holds


COUNTS = ("added_tokens.json", "vocab.txt", "adapter.onnx", "weights.bin", "sub/deep/file.json")
IGNORES = ("README.md", "LICENSE", "Notice.txt", ".gitattributes", ".cache/x.json", "report.html")


@pytest.mark.parametrize("name", COUNTS + IGNORES)
def test_a_file_that_is_added(name: str, folder: Path) -> None:
    """proves: P10. Control: the one half counts, the other is ignored."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("{}")
    check = check_certificate(folder)
    assert check.holds is (name in IGNORES)
    assert check.new == ((name,) if name in COUNTS else ())
    if name in COUNTS:
        assert name in check.to_text()
        write_certificate(folder, make_verdict())
        assert name in read_certificate(folder).files


def test_a_file_that_is_removed_or_renamed(folder: Path) -> None:
    """proves: P10. Control: put back, it holds."""
    (folder / "tokenizer.json").rename(folder / "tokens.json")
    check = check_certificate(folder)
    assert (check.missing, check.new) == (("tokenizer.json",), ("tokens.json",))
    assert check.exit_code == 1
    (folder / "tokens.json").unlink()
    assert check_certificate(folder).missing == ("tokenizer.json",)


def test_a_folder_of_links_is_judged_by_what_they_lead_to(folder: Path, tmp_path: Path) -> None:
    """As the hub's cache has it. proves: P10. Control: a change behind the link voids."""
    links = tmp_path / "links"
    links.mkdir()
    for path in folder.iterdir():
        (links / path.name).symlink_to(path)
    assert check_certificate(links).holds
    flip_byte(folder / "model.onnx.data", 5)
    assert check_certificate(links).changed == ("model.onnx.data",)
    (folder / "model.onnx.data").unlink()
    assert check_certificate(links).missing == ("model.onnx.data",)


@pytest.mark.skipif(os.name != "posix", reason="names of bytes, and pipes")
def test_odd_things_in_the_folder(folder: Path) -> None:
    """A name that is no text; a pipe, which would block. proves: P10. Control: the name counts."""
    odd = os.fsdecode(b"odd-\xff.bin")
    (folder / odd).write_bytes(b"x")
    os.mkfifo(folder / "pipe.bin")
    assert check_certificate(folder).new == (odd,)
    assert "\\udcff" in check_certificate(folder).to_text()
    write_certificate(folder, make_verdict())
    assert check_certificate(folder).holds


def edit(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    """Replace keys of a certificate."""
    return lambda content: {**content, **changes}


def name_file(name: str) -> Callable[[dict[str, Any]], Any]:
    """A certificate that names one file more."""
    return lambda content: {
        **content,
        "files": {**content["files"], name: {"sha256": "0" * 64, "size_bytes": 1}},
    }


def leave_out(key: str) -> Callable[[dict[str, Any]], Any]:
    """A certificate without a key."""
    return lambda content: {k: v for k, v in content.items() if k != key}


HOSTILE: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a list": (lambda content: [content], "list"),
    "newer": (edit(schema_version=2), "a newer assay"),
    "older": (edit(schema_version=0), "an older assay"),
    "version as text": (edit(schema_version="1"), "schema_version"),
    "version as truth": (edit(schema_version=True), "schema"),
    "no verdict": (leave_out("verdict"), "`verdict` is missing"),
    "verdict as text": (edit(verdict="pass"), "`verdict` is a str"),
    "odd verdict": (edit(verdict={"verdict": "superb", "checks": []}), "none of our words"),
    "no checks": (edit(verdict={"verdict": "pass"}), "verdict.checks"),
    "no files": (leave_out("files"), "`files` is missing"),
    "files as a list": (edit(files=["model.onnx"]), "`files` is a list"),
    "empty files": (edit(files={}), "`files` is empty"),
    "entry as text": (edit(files={"a": "b"}), "SHA-256"),
    "short hash": (edit(files={"a": {"sha256": "00"}}), "SHA-256"),
    "capital hash": (edit(files={"a": {"sha256": "A" * 64}}), "SHA-256"),
    "size below zero": (edit(files={"a": {"sha256": "0" * 64, "size_bytes": -1}}), "size"),
    "size as truth": (edit(files={"a": {"sha256": "0" * 64, "size_bytes": True}}), "size"),
    "no time": (edit(written_at="yesterday"), "written_at"),
    "environment as text": (edit(environment="clean"), "environment"),
    "prompts as an object": (edit(prompts={}), "prompts"),
    **{
        f"name {name!r}": (name_file(name), "leads out of the folder")
        for name in (
            "../secret", "/etc/passwd", "a/../../b", "..", ".", "", "a//b", "./a", "a/", "..\\b",
            "C:/x", "a\0b",
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_certificate_is_one_clear_error(case: str, folder: Path) -> None:
    """proves: P10. Control: the same certificate, untouched, is read."""
    change, word = HOSTILE[case]
    content = dict(read_certificate(folder).content)
    (folder / "parity.json").write_text(json.dumps(change(content)))
    with pytest.raises(UnjudgedError) as caught:
        check_certificate(folder)
    assert word in str(caught.value)
    assert "parity.json" in caught.value.where
    assert "assay verify" in caught.value.next_step
    (folder / "parity.json").write_text(json.dumps(content))
    assert check_certificate(folder).holds


RAW: dict[str, tuple[Callable[[Path], Any], str]] = {
    "empty": (lambda file: file.write_bytes(b""), "isn't JSON"),
    "cut": (lambda file: file.write_bytes(file.read_bytes()[:-9]), "isn't JSON"),
    "bytes": (lambda file: file.write_bytes(b"\xff\xfe"), "isn't JSON"),
    "deep": (lambda file: file.write_bytes(b"[" * 200_000), "isn't JSON"),
    "huge number": (lambda file: file.write_bytes(b'{"a": ' + b"9" * 9999 + b"}"), "JSON"),
    "oversize": (lambda file: os.truncate(file, 1 << 40), "bytes"),
    "absent": (lambda file: file.unlink(), "no certificate"),
    "a folder": (lambda file: (file.unlink(), file.mkdir()), "isn't a file"),
    "a pipe": (lambda file: (file.unlink(), os.mkfifo(file)), "isn't a file"),
    "a link to nothing": (lambda file: (file.unlink(), file.symlink_to("x")), "no certificate"),
}


@pytest.mark.parametrize("case", RAW)
def test_a_certificate_that_can_not_be_read(case: str, folder: Path) -> None:
    """proves: P10. Control: test_an_untouched_folder_holds."""
    change, word = RAW[case]
    change(folder / "parity.json")
    with pytest.raises(UnjudgedError, match=word) as caught:
        check_certificate(folder)
    assert len(str(caught.value)) < 2000


def test_names_can_not_steer_the_terminal(folder: Path) -> None:
    """proves: P10. Control: the escape stands in the certificate."""
    content = name_file("\x1b[2Jmodel")(dict(read_certificate(folder).content))
    (folder / "parity.json").write_text(json.dumps(content))
    check = check_certificate(folder)
    assert check.missing == ("\x1b[2Jmodel",)
    assert "\x1b" not in check.to_text()


def test_a_failing_write_leaves_the_old_one(folder: Path, monkeypatch: Any) -> None:
    """proves: P10, B11. Control: without the failure it is replaced."""
    before = (folder / "parity.json").read_bytes()
    names = sorted(path.name for path in folder.iterdir())

    def fail(*arguments: Any) -> None:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(OutputError, match="Read-only"):
            write_certificate(folder, make_verdict("fail"))
    assert (folder / "parity.json").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == names
    write_certificate(folder, make_verdict("fail"))
    assert check_certificate(folder).status == "fail"


def test_a_folder_that_changes_while_it_is_judged(folder: Path) -> None:
    """What was judged isn't what is there. proves: P10. Control: untouched, it is written."""
    before = snapshot_folder(folder)
    write_certificate(folder, make_verdict("unjudged"), before=before)
    flip_byte(folder / "model.onnx.data", 9)
    os.utime(folder / "model.onnx.data", ns=(0, before["model.onnx.data"][1] + 1))
    (folder / "late.json").touch()
    with pytest.raises(UnjudgedError, match=r"late\.json, model\.onnx\.data changed"):
        write_certificate(folder, make_verdict(), before=before)
    assert read_certificate(folder).status == "unjudged"


def move_weights(folder: Path, name: str) -> None:
    """Let the graph read its weights from another place."""
    model = onnx.load(str(folder / "model.onnx"), load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = name
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    (folder / "model.onnx.data").rename(folder / name)


@pytest.mark.parametrize("name", ["../weights.data", "weights.md", ".weights"])
def test_weights_that_no_certificate_covers(name: str, folder: Path) -> None:
    """They could change without a trace. proves: P10. Control: another plain name is covered."""
    move_weights(folder, name)
    with pytest.raises(RuntimeFolderError, match="isn't a file of this folder"):
        write_certificate(folder, make_verdict())
    shutil.move(folder / name, folder / "model.onnx.data")
    move_weights(folder, "weights.data")
    write_certificate(folder, make_verdict())
    assert "weights.data" in read_certificate(folder).files


def test_a_graph_outside_of_the_folder(folder: Path) -> None:
    """proves: P10. Control: the name as it was exported."""
    change_json(folder / "genai_config.json", "model", "decoder", "filename", value="../m.onnx")
    with pytest.raises(AssayError, match=r"it reads \.\./m\.onnx"):
        write_certificate(folder, make_verdict())
    name = "model.onnx"
    change_json(folder / "genai_config.json", "model", "decoder", "filename", value=name)
    write_certificate(folder, make_verdict())


def test_hashing_is_fast(tmp_path: Path) -> None:
    """100 MB in a second or two. proves: P10. Control: all of it is read."""
    size = 100_000_000
    with open(tmp_path / "weights.data", "wb") as file:
        file.truncate(size)
    start = time.perf_counter()
    entry = hash_file(tmp_path, "weights.data")
    assert time.perf_counter() - start < 2
    assert entry["size_bytes"] == size
    with open(tmp_path / "weights.data", "r+b") as file:
        file.seek(size - 1)
        file.write(b"\1")
    assert hash_file(tmp_path, "weights.data")["sha256"] != entry["sha256"]


def test_the_documented_example_is_one(folder: Path, tmp_path: Path) -> None:
    """It is read, and has the keys that are written. proves: P10. Control: one key less differs."""
    text = DOCUMENT.read_text(encoding="utf-8")
    (block,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    example = json.loads(block)
    parse_certificate(block.encode("utf-8"), tmp_path)
    written = json.loads((folder / "parity.json").read_text())

    def list_keys(content: dict[str, Any]) -> list[Any]:
        """What the schema fixes; a list's or map's entries by their first one."""
        files, environment = content["files"], content["environment"]
        return [
            list(content),
            [sorted(entry) for entry in content["prompts"]],
            sorted(content["verdict"]),
            [sorted(check) for check in content["verdict"]["checks"]],
            {name: entry["without"] for name, entry in files.items() if "without" in entry},
            sorted(files["model.onnx"]),
            list(environment),
            list(environment["packages"]["onnxruntime"]),
        ]

    assert list_keys(example) == list_keys(written)
    assert list_keys(leave_out("assay_version")(example)) != list_keys(written)
    for pattern in IGNORED:
        assert f"`{pattern}`" in text or pattern == ".*"
