"""Real files: the GGUF reader agrees with transformers' own loader and tokenizer."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from assay.checkpoint import Checkpoint, open_checkpoint
from assay.checkpoint._gguf_header import read_gguf_header
from assay.checkpoint._positional_file import PositionalFile
from assay.verification.filling import load_filled

pytestmark = pytest.mark.real

HARD = [
    "", " ", "   ", "\n", "\n\n\n x", "  \n  \n", "\t\ttab", "x 1", "1234567890 3.14159 1,000",
    "don't WE'LL I'm", "def f(x):\n    return  x+1\n", "if (a<b && c>d) { return a[i]--; }",
    "😀 é 漢字 ﬁ", "👩‍👩‍👧‍👦🇫🇷",
    "한국어 日本語 العربية हिन्दी ไทย", "e\u0301 Ça va? naïve — “quotes”",
    "<|im_start|>system\nYou <|im_end|>  <|im_start|>", "<bos>a<end_of_turn>\n",
    "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n", "<unused0><pad>[multimodal]",
    "\u2581x \u2581\u2581", "\x00\x01\x7f", "a\r\nb\r\n", "x" * 200 + " " * 30 + "y", "trailing  ",
    "http://a.b/c?d=e&f=g#h", "\u00a0nbsp\u3000ideographic", "\U0001f600\U00020000",
    "<0x0A> <0xFF>",
]  # fmt: skip
# Several spaces before a digit, or a number that isn't ASCII after a space: the original cuts
# digits first (Digits, then ByteLevel); transformers' loader doesn't. Ids of the original's rule.
SMOLLM2_DIGITS = {
    "a  12 345": ["a", "ĠĠ", "1", "2", "Ġ", "3", "4", "5"],
    "  12": ["ĠĠ", "1", "2"],
}


@pytest.fixture(scope="module", params=["smollm2", "gemma3"])
def path(request: pytest.FixtureRequest, smollm2_path: Path, gemma3_path: Path) -> Path:
    return smollm2_path if request.param == "smollm2" else gemma3_path


@pytest.fixture(scope="module")
def tokenizers(path: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Tokenizer]:
    """transformers' from the file; transformers' from what we wrote; the bare library's."""
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("tokenizer")
    with open_checkpoint(path) as checkpoint:
        checkpoint.write_tokenizer(folder)
    reference = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    written = AutoTokenizer.from_pretrained(folder)
    return reference, written, Tokenizer.from_file(str(folder / "tokenizer.json"))


# proves: Q3
def test_every_tensor_equals_transformers(path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    logging.getLogger("transformers").setLevel(logging.ERROR)
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )
    expected = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    del expected["lm_head.weight"]  # tied
    with open_checkpoint(path) as checkpoint:
        assert set(checkpoint.tensors) == set(expected)
        for name, values in expected.items():
            assert checkpoint.tensors[name].shape == values.shape
            assert _equals_in_chunks(checkpoint, name, values), name
        assert checkpoint.config["tie_word_embeddings"]
        name = "model.layers.0.self_attn.q_proj.weight"
        wrong = np.roll(expected[name], 1, axis=0)  # negative control
        assert not _equals_in_chunks(checkpoint, name, wrong)
        _compare_config(checkpoint.config, model.config)
    filled = load_filled(path)  # the doctor's reference: the same weights under the same names
    theirs = dict(model.named_parameters())
    ours = dict(filled.named_parameters())
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert type(filled) is type(model)
    buffers = dict(filled.named_buffers())
    assert all(torch.equal(buffers[name], held) for name, held in model.named_buffers())


def _equals_in_chunks(checkpoint: Checkpoint, name: str, values: np.ndarray) -> bool:
    info = checkpoint.tensors[name]
    flat = values.reshape(info.num_rows, info.num_columns)
    return all(
        np.array_equal(
            checkpoint.read_rows(name, start, min(start + 1000, info.num_rows)),
            flat[start : start + 1000],
        )
        for start in range(0, info.num_rows, 1000)
    )


def _compare_config(config: dict[str, Any], reference: Any) -> None:
    rope = reference.rope_parameters
    expected = reference.to_dict() | {"rope_scaling": None}
    expected["architectures"] = config["architectures"]
    expected["rope_theta"] = rope.get("full_attention", rope)["rope_theta"]
    if "sliding_attention" in rope:
        expected["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
    expected["rms_norm_eps"] = float(str(np.float32(expected["rms_norm_eps"])))
    assert config == {key: expected[key] for key in config}


# proves: B11
def test_ids_and_text_equal_transformers(tokenizers: tuple[Any, Any, Tokenizer]) -> None:
    reference, written, bare = tokenizers
    for text in HARD:
        ids = reference(text)["input_ids"]
        assert written(text)["input_ids"] == ids, text
        assert bare.encode(text).ids == ids, text
        for skip in (False, True):
            expected = reference.decode(ids, skip_special_tokens=skip)
            assert written.decode(ids, skip_special_tokens=skip) == expected
    assert len(written) == len(reference)
    for name in ("bos_token_id", "eos_token_id", "unk_token_id", "pad_token_id"):
        assert getattr(written, name) == getattr(reference, name)


# proves: B11
def test_merges_are_those_of_transformers(tokenizers: tuple[Any, Any, Tokenizer]) -> None:
    import json

    reference, _, bare = tokenizers
    ours, theirs = (json.loads(t.to_str())["model"] for t in (bare, reference.backend_tokenizer))
    assert ours["merges"] == theirs["merges"]
    assert ours["vocab"] == theirs["vocab"]


# proves: B11
@pytest.mark.parametrize("path", ["smollm2"], indirect=True)
def test_smollm2_cuts_digits_as_the_original_does(
    path: Path, tokenizers: tuple[Any, Any, Tokenizer]
) -> None:
    reference, written, _ = tokenizers
    for text, tokens in SMOLLM2_DIGITS.items():
        assert written.tokenize(text) == tokens
        assert reference.tokenize(text) != tokens, "transformers learned it: drop this exception"
    chat = [{"role": "user", "content": "Hi"}]
    expected = reference.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert written.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) == expected
    assert "<|im_start|>user\nHi<|im_end|>" in expected


# proves: B11
def test_generation_config_has_all_ends(smollm2_path: Path, gemma3_path: Path) -> None:
    with open_checkpoint(smollm2_path) as checkpoint:
        assert checkpoint.generation_config["eos_token_id"] == 2
    with open_checkpoint(gemma3_path) as checkpoint:
        assert checkpoint.generation_config["eos_token_id"] == [1, 106]  # <eos>, <end_of_turn>


# proves: Q3
def test_header_equals_the_gguf_packages(smollm2_path: Path) -> None:
    from gguf import GGUFReader

    reference = GGUFReader(smollm2_path)
    file = PositionalFile(smollm2_path)
    header = read_gguf_header(file)
    assert {f"GGUF.{key}" for key in ("version", "tensor_count", "kv_count")} | set(
        header.metadata
    ) == set(reference.fields)
    for key, value in header.metadata.items():
        expected = reference.fields[key].contents()
        if isinstance(expected, list):
            is_text = isinstance(expected[0], str)
            found = header.strings(key) if is_text else header.numbers(key).tolist()
            assert found == expected
        else:
            assert value == expected
    for expected in reference.tensors:
        found = header.tensors[expected.name]
        assert (found.offset, found.size_bytes) == (expected.data_offset, expected.n_bytes)
        assert found.shape == tuple(reversed(expected.shape.tolist()))
        assert found.kind == expected.tensor_type.name
    file.close()
