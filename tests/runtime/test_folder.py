"""Reading a folder: what is wrong with it is said before the runtime is asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.errors import RuntimeFolderError
from assay.runtime import read_folder


def test_reads_what_the_config_says(fake_folder: Path) -> None:  # proves: B11
    found = read_folder(fake_folder)
    assert found.eos_token_ids == (2, 5)
    assert (found.bos_token_id, found.vocab_size, found.context_length) == (1, 64, 2048)
    assert found.size_bytes == len(b"not a model")
    assert found.kv_bytes_per_token == 2 * 2 * 2 * 16 * 4
    assert not found.has_chat_template


@pytest.mark.parametrize("eos", [7, None])
def test_reads_a_single_or_missing_end_token(fake_folder, edit_config, eos) -> None:  # proves: B11
    edit_config(fake_folder, **{"model.eos_token_id": eos})
    assert read_folder(fake_folder).eos_token_ids == ((7,) if eos else ())


@pytest.mark.parametrize("where", ["chat_template.jinja", "tokenizer_config.json"])
def test_finds_the_chat_template_in_both_places(
    fake_folder: Path, where: str
) -> None:  # proves: B11
    content = "x" if where.endswith("jinja") else json.dumps({"chat_template": "x"})
    (fake_folder / where).write_text(content)
    assert read_folder(fake_folder).has_chat_template


def test_names_providers(fake_folder: Path, edit_config) -> None:  # proves: B10
    edit_config(
        fake_folder,
        **{"model.decoder.session_options.provider_options": [{"cuda": {}}, {"DML": {}}]},
    )
    assert read_folder(fake_folder).providers == ("cuda", "DML")


def test_refuses_what_is_no_folder(tmp_path: Path) -> None:  # proves: B11
    with pytest.raises(RuntimeFolderError, match="no such folder"):
        read_folder(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(RuntimeFolderError, match="this is a file"):
        read_folder(tmp_path / "file")


def test_sends_a_checkpoint_to_export(tmp_path: Path) -> None:  # proves: B11
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(RuntimeFolderError, match="assay export"):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "isn't JSON"),
        ("[]", "no `model` section"),
        ('{"model": {}}', "no `model.decoder` section"),
        ('{"model": {"vocab_size": "9", "decoder": {}}}', "`model.vocab_size` is '9'"),
        ('{"model": {"vocab_size": 9, "decoder": {}}}', "`model.context_length` is None"),
    ],
)
def test_names_what_is_broken_in_the_config(fake_folder, text, message) -> None:  # proves: B11
    (fake_folder / "genai_config.json").write_text(text)
    with pytest.raises(RuntimeFolderError, match=message) as caught:
        read_folder(fake_folder)
    assert caught.value.next_step


def test_names_a_missing_model_file(fake_folder: Path) -> None:  # proves: B11
    (fake_folder / "model.onnx").unlink()
    with pytest.raises(RuntimeFolderError, match=r"model\.onnx"):
        read_folder(fake_folder)
