"""Generating: the tokens are the model's own, and every way to stop has its name."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from tokenizers import Tokenizer

from assay.errors import DependencyError, OptionError, RuntimeFolderError
from assay.runtime import generate, open_model
from tests.runtime.tiny import CONTEXT_LENGTH, VOCAB_SIZE

PROMPT = "w1 w2 w3"


def pick_greedily(folder: Path, prompt_ids: list[int], num_tokens: int) -> list[int]:
    """Greedy tokens from plain ONNX Runtime, each from a fresh pass over all that came before."""
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    ids = list(prompt_ids)
    for _ in range(num_tokens):
        feeds = {}
        for entry in session.get_inputs():
            if entry.name.startswith("past"):
                feeds[entry.name] = np.zeros((1, 2, 0, 16), np.float32)
            elif entry.name == "input_ids":
                feeds[entry.name] = np.array([ids], np.int64)
            else:
                feeds[entry.name] = np.ones((1, len(ids)), np.int64)
        logits = session.run(["logits"], feeds)[0]
        ids.append(int(logits[0, -1].argmax()))
    return ids[len(prompt_ids) :]


def encode(folder: Path, text: str, *, add_special_tokens: bool = True) -> list[int]:
    """The ids by the folder's tokenizer.json."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return list(tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)


@pytest.fixture(scope="module")
def model(exported: Path):
    """The tiny folder, loaded once."""
    return open_model(exported)


@pytest.fixture(scope="module")
def greedy(exported: Path) -> list[int]:
    """What the model says after <s> and the prompt."""
    ids = encode(exported, PROMPT)
    assert ids[0] == 1
    return pick_greedily(exported, ids, 8)


def test_greedy_tokens_are_the_models_own(model, greedy: list[int]) -> None:  # proves: B11
    result = model.generate(PROMPT, max_new_tokens=8, chat=False)
    assert list(result.token_ids) == greedy
    assert result.stop_reason == "max_new_tokens"
    assert result.ttft_s > 0
    assert result.tokens_per_second > 0
    # negative control: another prompt gives other tokens
    assert list(model.generate("w9 w8", max_new_tokens=8, chat=False).token_ids) != greedy


def test_stops_at_any_end_token(folder, edit_config, greedy) -> None:  # proves: B11
    stop = greedy[2]
    edit_config(folder, **{"model.eos_token_id": [2, stop]})
    result = generate(folder, PROMPT, max_new_tokens=8, chat=False)
    assert list(result.token_ids) == greedy[: greedy.index(stop) + 1]
    assert result.stop_reason == "eos"


def test_stops_where_the_context_ends(folder, edit_config) -> None:  # proves: B11
    said = pick_greedily(folder, encode(folder, PROMPT), CONTEXT_LENGTH - 9)
    never_said = next(token for token in range(VOCAB_SIZE) if token not in said)
    edit_config(folder, **{"model.eos_token_id": never_said})
    result = generate(folder, PROMPT, max_new_tokens=10_000, chat=False)
    assert result.stop_reason == "context_length"
    assert result.num_prompt_tokens + len(result.token_ids) == CONTEXT_LENGTH


def test_streams_the_text_as_it_comes(model) -> None:  # proves: B11
    pieces: list[str] = []
    result = model.generate(PROMPT, max_new_tokens=8, chat=False, stream=pieces.append)
    assert len(pieces) == len(result.token_ids)
    assert "".join(pieces) == result.text


def test_samples_by_seed(model) -> None:  # proves: B11
    one, same, other = (
        model.generate(PROMPT, max_new_tokens=12, temperature=2.0, seed=seed, chat=False).token_ids
        for seed in (1, 1, 2)
    )
    assert one == same
    assert one != other


def test_the_template_is_used_where_there_is_one(model, exported) -> None:  # proves: B11
    chat = model.generate(PROMPT, max_new_tokens=8)
    assert chat.used_chat
    # no start token is added: templates bring theirs
    ids = encode(exported, f"w3 {PROMPT} w4", add_special_tokens=False)
    assert list(chat.token_ids) == pick_greedily(exported, ids, 8)
    assert chat.num_prompt_tokens == len(ids)
    assert not model.generate(PROMPT, max_new_tokens=2, chat=False).used_chat


def test_without_a_template_auto_takes_the_prompt_as_it_is(folder: Path) -> None:  # proves: B11
    (folder / "chat_template.jinja").unlink()
    assert not generate(folder, PROMPT, max_new_tokens=2).used_chat
    with pytest.raises(RuntimeFolderError, match="no chat template"):
        generate(folder, PROMPT, max_new_tokens=2, chat=True)


def test_a_template_that_does_not_run_says_so(folder: Path) -> None:  # proves: B11
    (folder / "chat_template.jinja").write_text("{% for %}")
    with pytest.raises(RuntimeFolderError, match="chat template"):
        generate(folder, PROMPT, max_new_tokens=2)


def test_a_start_token_that_the_runtime_forgets_is_added(model, folder) -> None:  # proves: P8
    result = model.generate(PROMPT, max_new_tokens=1, chat=False)
    assert "no start token (1)" in result.notes[0]
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    tokenizer["post_processor"] = None
    file.write_text(json.dumps(tokenizer))
    agreed = generate(folder, PROMPT, max_new_tokens=1, chat=False)
    assert agreed.notes == ()
    assert agreed.num_prompt_tokens == result.num_prompt_tokens - 1


@pytest.mark.parametrize(
    "options",
    [{"max_new_tokens": 0}, {"temperature": -0.1}, {"top_p": 0.0}, {"top_p": 1.5}, {"top_k": -1}],
)
def test_impossible_options_are_refused(model, options) -> None:  # proves: B12
    with pytest.raises(OptionError, match=next(iter(options))):
        model.generate(PROMPT, **options)


def test_a_prompt_that_fills_the_context_is_refused(model) -> None:  # proves: B12
    with pytest.raises(OptionError, match="1 to 95 tokens"):
        model.generate("w1 " * 200, chat=False)


def test_a_folder_that_the_runtime_refuses(folder: Path, edit_config) -> None:  # proves: B11
    edit_config(folder, **{"model.type": "zorgon"})
    with pytest.raises(RuntimeFolderError, match="zorgon"):
        open_model(folder)


def test_without_the_runtime(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # proves: B11
    monkeypatch.setitem(sys.modules, "onnxruntime_genai", None)
    with pytest.raises(DependencyError, match="pip install onnxruntime-genai"):
        generate(exported, PROMPT)


def test_reports_as_data_and_text(model) -> None:  # proves: B12
    result = model.generate(PROMPT, max_new_tokens=3, chat=False)
    assert json.loads(json.dumps(result.to_json()))["token_ids"] == list(result.token_ids)
    assert "3 new" in result.to_text()
