# proves: B11, P8
"""Text in and out: what the folder's files say is held against the reference's tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.pipeline.tiny import write_llama
from tokenizers import Tokenizer, models, pre_tokenizers

from assay.pipeline import export
from assay.verification import verify_folder

NAMES = ("end_tokens", "tokenizer", "chat_template")


@pytest.fixture
def checkpoint(tmp_path):
    return write_llama(tmp_path / "checkpoint")


@pytest.fixture
def folder(checkpoint, tmp_path):
    return export(checkpoint, tmp_path / "out", check_loading=False).folder


def judge(folder: Path, checkpoint: Path, *, use_genai: bool = True):
    verdict = verify_folder(
        folder, checkpoint, num_tokens=60, num_greedy_tokens=4, use_genai=use_genai
    )
    return verdict, {c.name: c for c in verdict.checks if c.name in NAMES}


@pytest.mark.parametrize("use_genai", [True, False])
def test_an_export_speaks_as_its_checkpoint(folder, checkpoint, use_genai):
    verdict, checks = judge(folder, checkpoint, use_genai=use_genai)
    assert verdict.status == "pass"
    assert set(checks) == set(NAMES)
    assert all(check.passed for check in checks.values()), checks
    assert checks["tokenizer"].metrics["num_texts"] > 8


def test_a_lost_end_token_fails(folder, checkpoint):
    """generation_config ends at 5 and 2; a folder that knows one of them runs on."""
    file = folder / "genai_config.json"
    config = json.loads(file.read_text())
    assert set(config["model"]["eos_token_id"]) >= {5, 2}
    config["model"]["eos_token_id"] = 2
    file.write_text(json.dumps(config))
    verdict, checks = judge(folder, checkpoint)
    assert verdict.status == "fail"
    assert checks["end_tokens"].passed is False
    assert "5" in checks["end_tokens"].detail
    assert checks["tokenizer"].passed


def test_another_tokenizer_fails(folder, checkpoint):
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, "a": 1, "world": 9}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    verdict, checks = judge(folder, checkpoint, use_genai=False)
    assert verdict.status == "fail"
    assert checks["tokenizer"].passed is False
    assert checks["tokenizer"].metrics["num_differing"] >= 1


@pytest.mark.parametrize("use_genai", [True, False])
def test_another_chat_template_is_told(folder, checkpoint, use_genai):
    """Rendered it fails; unrendered it is told, since two texts may mean the same."""
    (folder / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.content }}{% endfor %}"
    )
    verdict, checks = judge(folder, checkpoint, use_genai=use_genai)
    assert checks["chat_template"].passed is (False if use_genai else None)
    assert verdict.status == ("fail" if use_genai else "pass")


def test_a_missing_chat_template_fails(folder, checkpoint):
    (folder / "chat_template.jinja").unlink()
    file = folder / "tokenizer_config.json"
    config = json.loads(file.read_text())
    config.pop("chat_template", None)
    file.write_text(json.dumps(config))
    verdict, checks = judge(folder, checkpoint)
    assert verdict.status == "fail"
    assert checks["chat_template"].passed is False


def test_a_template_of_other_words_that_renders_the_same_passes(folder, checkpoint):
    """What counts is the text that comes out."""
    file = folder / "chat_template.jinja"
    text = file.read_text()
    file.write_text(
        text.replace("for m in", "for message in").replace("m.content", "message.content")
    )
    _, checks = judge(folder, checkpoint)
    assert checks["chat_template"].passed
    assert file.read_text() != text


def test_a_tokenizer_rebuilt_from_gguf_is_no_record(folder, checkpoint):
    """A few other ids are told; a tokenizer that shares nothing fails all the same."""
    from transformers import AutoTokenizer

    from assay.verification.folder import open_folder
    from assay.verification.text import judge_text

    class Other:
        """Differs in texts with digits."""

        chat_template = None
        all_special_ids = ()

        def __init__(self, every):
            self.inner, self.every = AutoTokenizer.from_pretrained(checkpoint), every

        def encode(self, text):
            return self.inner.encode(text) + ([1] if self.every or "1234" in text else [])

    def check(**options):
        found = judge_text(open_folder(folder), Other(options.pop("every")), {2}, None, **options)
        return next(c for c in found if c.name == "tokenizer").passed

    assert check(every=False, is_rebuilt=True) is None
    assert check(every=False) is False
    assert check(every=True, is_rebuilt=True) is False
