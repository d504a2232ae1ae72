"""The tokenizer rebuilt from a GGUF file gives the ids of the tokenizer it was made from.

Each original is trained here with the `tokenizers` library as the model family's own tokenizer.json
has it, then stored as llama.cpp's converter does; transformers' GGUF loader is a second witness.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from assay.checkpoint import open_checkpoint
from assay.checkpoint._pretokenizers import _KINDS
from assay.errors import CheckpointError

CORPUS = [
    "The quick brown fox jumps over the lazy dog. Don't they're we'll I'M HE'S 12345 678 90!",
    "def f(x):\n    return  x + 1\n\n\nclass A:\n\tpass  # 3.14159\r\n" * 3,
    "été naïve Größe 漢字 かな 한국어 العربية हिन्दी 😀👩‍👩‍👧 ½ Ⅷ ① \u00a0 \u3000",
    "if (a<b && c>d) { return a[i]--; }  http://a.b/c?d=e&f=g#h   1,000  22 333 4444",
] * 4
HARD = [
    "", " ", "   ", "\n", "\n\n\n x", "\t\ttab  two", "a  12 345", "  12", "x 1", "1234567890 3.14",
    "don't WE'LL I'm", "def f(x):\n    return  x + 1\n", "😀 été 漢字 한국어", "a\r\nb\r\n",
    "👩‍👩‍👧‍👦🇫🇷",
    "e\u0301 — “quotes”", "½ Ⅷ ①", "trailing  ", "<|im_start|>user\nHi<|im_end|>", "<s>x</s> <pad>",
    "\u2581x \u2581", "unseen: ΩЖ\U00020000", "<think>hm</think> a", "x" * 40 + " " * 30 + "y",
]  # fmt: skip
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
GPT2_SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def split_then_bytes(expression: str) -> Any:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(expression), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


ORIGINALS = {
    "gpt-2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "default": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "smollm": pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    ),
    "llama-bpe": split_then_bytes(LLAMA3_SPLIT),
    "qwen2": split_then_bytes(QWEN2_SPLIT),
}


def train_byte_level(pre_tokenizer: Any) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("<think>", normalized=False)])
    return tokenizer


def describe_byte_level(tokenizer: Tokenizer, pre: str) -> dict[str, Any]:
    """Metadata as llama.cpp's converter writes it."""
    vocab = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    kinds = {**dict.fromkeys(SPECIAL, 3), "<think>": 4}
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [token for token, _ in vocab],
        "tokenizer.ggml.token_type": [kinds.get(token, 1) for token, _ in vocab],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in merges],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
    }


def write(path: Path, folder: Path) -> list[str]:
    folder.mkdir(exist_ok=True)
    with open_checkpoint(path) as checkpoint:
        names = checkpoint.write_tokenizer(folder)
        assert names == checkpoint.tokenizer_files()
    return names


def load_reference(path: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)


# proves: B11
@pytest.mark.parametrize("pre", ORIGINALS)
def test_byte_level_ids_are_the_originals(
    pre: str, make_gguf: Callable[..., Path], tmp_path: Path
) -> None:
    original = train_byte_level(ORIGINALS[pre])
    path = make_gguf(changes=describe_byte_level(original, pre))
    write(path, tmp_path / "out")
    rebuilt = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    for text in (*HARD, *CORPUS):
        assert rebuilt.encode(text).ids == original.encode(text).ids, text
        ids = original.encode(text).ids
        assert rebuilt.decode(ids) == original.decode(ids)
    other = train_byte_level(pre_tokenizers.Whitespace())  # negative control: texts tell them apart
    assert any(other.encode(text).ids != original.encode(text).ids for text in HARD)


# proves: B11
def test_digits_are_where_transformers_loader_leaves_the_original(
    make_gguf: Callable[..., Path], tmp_path: Path
) -> None:
    """smollm: transformers' loader knows no digit cut, so it isn't the witness for those texts."""
    original = train_byte_level(ORIGINALS["smollm"])
    path = make_gguf(changes=describe_byte_level(original, "smollm"))
    reference = load_reference(path)
    differ = {text for text in HARD if reference(text)["input_ids"] != original.encode(text).ids}
    assert "  12" in differ
    assert differ <= {"a  12 345", "  12", "½ Ⅷ ①"}


# proves: B11
@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "qwen2"])
def test_byte_level_agrees_with_transformers_loader(
    pre: str, make_gguf: Callable[..., Path], tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    path = make_gguf(changes=describe_byte_level(train_byte_level(ORIGINALS[pre]), pre))
    write(path, tmp_path / "out")
    reference, rebuilt = load_reference(path), AutoTokenizer.from_pretrained(tmp_path / "out")
    for text in (*HARD, *CORPUS):
        ids = reference(text)["input_ids"]
        assert rebuilt(text)["input_ids"] == ids, text
        for skip in (False, True):
            expected = reference.decode(ids, skip_special_tokens=skip)
            assert rebuilt.decode(ids, skip_special_tokens=skip) == expected
    for name in ("bos_token_id", "eos_token_id"):
        assert getattr(rebuilt, name) == getattr(reference, name)


def train_sentencepiece() -> dict[str, Any]:
    """A vocabulary in SentencePiece's order: control, bytes, then pieces scored by their merge."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace(prepend_scheme="never", split=True),
            pre_tokenizers.Punctuation("isolated"),
            pre_tokenizers.Digits(individual_digits=True),
        ]
    )
    trainer = trainers.BpeTrainer(vocab_size=500, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    pieces = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    merged = [piece for piece, _ in pieces if len(piece) > 1]
    single = [piece for piece, _ in pieces if len(piece) == 1]
    control = ["<unk>", "<s>", "</s>", "<pad>"]
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = [*control, *byte_tokens, "<think>", *merged, *single]
    kinds = [2, 3, 3, 3, *[6] * 256, 4, *[1] * len(pieces)]
    scores = [0.0] * (len(control) + 257) + [-float(rank) for rank in range(len(pieces))]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.padding_token_id": 3,
    }


# Llama 2's own tokenizer puts a space before the text and after a special token, whatever follows;
# so do SentencePiece, llama.cpp, onnxruntime-genai and transformers 4. transformers 5 doesn't.
PREFIXED = {" ", "   ", "  12", "<s>x</s> <pad>", "\u2581x \u2581", "<think>hm</think> a"}


# proves: B11
@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_sentencepiece_agrees_with_transformers_loader(
    architecture: str, make_gguf: Callable[..., Path], tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    described = train_sentencepiece()
    path = make_gguf(changes=described, architecture=architecture)
    write(path, tmp_path / "out")
    reference, rebuilt = load_reference(path), AutoTokenizer.from_pretrained(tmp_path / "out")
    differ = set()
    for text in (*HARD, *CORPUS):
        ids = reference(text)["input_ids"]
        if rebuilt(text)["input_ids"] != ids:
            differ.add(text)
        assert rebuilt.decode(ids) == reference.decode(ids)
    assert differ == (PREFIXED if architecture == "llama" else set())
    assert rebuilt("the")["input_ids"][0] == 1, "bos comes first without a flag, as in llama.cpp"


# proves: B11
def test_sentencepiece_merges_go_by_score(make_gguf: Callable[..., Path], tmp_path: Path) -> None:
    described = train_sentencepiece() | {"tokenizer.ggml.add_space_prefix": False}
    tokens, kinds = (described[f"tokenizer.ggml.{key}"][:261] for key in ("tokens", "token_type"))
    described["tokenizer.ggml.tokens"] = [*tokens, "a", "b", "c", "ab", "bc"]
    described["tokenizer.ggml.token_type"] = [*kinds, 1, 1, 1, 1, 1]
    found = {}
    for best, scores in {"ab": [-1.0, -2.0], "bc": [-2.0, -1.0]}.items():
        described["tokenizer.ggml.scores"] = [0.0] * 261 + [-9.0] * 3 + scores
        write(make_gguf(changes=described, name=f"{best}.gguf"), tmp_path / best)
        tokenizer = Tokenizer.from_file(str(tmp_path / best / "tokenizer.json"))
        found[best] = tokenizer.encode("abc", add_special_tokens=False).tokens
    assert found == {"ab": ["ab", "c"], "bc": ["a", "bc"]}


# proves: B11
def test_flags_of_the_file_reach_the_tokenizer(
    make_gguf: Callable[..., Path], tmp_path: Path
) -> None:
    changes = train_sentencepiece() | {
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_eos_token": True,
        "tokenizer.ggml.add_space_prefix": False,
        "tokenizer.chat_template": "{{ bos_token }}{{ 'é' }}",
    }
    names = write(make_gguf(changes=changes), tmp_path / "out")
    assert names[-1] == "chat_template.jinja"
    assert (tmp_path / "out" / names[-1]).read_text("utf-8") == "{{ bos_token }}{{ 'é' }}"
    config = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text("utf-8"))
    assert config["chat_template"] == "{{ bos_token }}{{ 'é' }}"
    assert (config["bos_token"], config["eos_token"], config["unk_token"], config["pad_token"]) == (
        "<s>", "</s>", "<unk>", "<pad>",
    )  # fmt: skip
    assert config["model_max_length"] == 128
    rebuilt = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    ids = rebuilt.encode("the").ids
    assert ids[0] != 1
    assert ids[-1] == 2
    assert rebuilt.decode(ids) == "the"
    added = json.loads((tmp_path / "out" / "tokenizer.json").read_text("utf-8"))["added_tokens"]
    special = {entry["content"]: entry["special"] for entry in added}
    assert special == {"<unk>": True, "<s>": True, "</s>": True, "<pad>": True, "<think>": False}


BROKEN = {
    "family": ({"tokenizer.ggml.model": "t5"}, ("'t5'", "gpt2")),
    "pre-tokenizer": ({"tokenizer.ggml.pre": "mystery"}, ("'mystery'", "smollm")),
    "twice": ({"tokenizer.ggml.tokens": ["a", "b", "a"]}, ("'a' twice",)),
    "types": ({"tokenizer.ggml.token_type": [1, 1]}, ("2 token types",)),
    "merge": ({"tokenizer.ggml.merges": ["Ġ nothing"]}, ("merge 0", "'Ġ nothing'")),
    "merge form": ({"tokenizer.ggml.merges": ["single"]}, ("merge 0", "'single'")),
    "tokens": ({"tokenizer.ggml.tokens": [1, 2, 3]}, ("tokenizer.ggml.tokens", "strings")),
    "long": ({"tokenizer.ggml.tokens": ["a", "b", "c" * 5000]}, ("token 2", "5,000")),
    "eos": ({"tokenizer.ggml.tokens": ["a"]}, ("names token",)),
}


# proves: B11
@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_vocabulary_is_refused(
    fault: str, make_gguf: Callable[..., Path], tmp_path: Path
) -> None:
    changes, words = BROKEN[fault]
    whole = describe_byte_level(train_byte_level(ORIGINALS["gpt-2"]), "gpt-2")
    write(make_gguf(changes=whole), tmp_path / "control")
    with pytest.raises(CheckpointError) as caught:
        write(make_gguf(changes=whole | changes), tmp_path / "out")
    for word in words:
        assert word in str(caught.value), str(caught.value)


# proves: B11
def test_an_unnamed_cut_is_noted(make_gguf: Callable[..., Path]) -> None:
    whole = describe_byte_level(train_byte_level(ORIGINALS["gpt-2"]), "gpt-2")
    for pre, num_notes in (("gpt-2", 0), ("default", 1), (None, 1)):
        with open_checkpoint(make_gguf(changes=whole | {"tokenizer.ggml.pre": pre})) as checkpoint:
            assert len(checkpoint.notes) == num_notes


# proves: B11
def test_a_file_without_a_vocabulary_has_no_tokenizer_files(
    make_gguf: Callable[..., Path], tmp_path: Path
) -> None:
    assert write(make_gguf(), tmp_path / "out") == []
    assert list((tmp_path / "out").iterdir()) == []


def test_every_kind_of_pre_tokenizer_is_one_that_the_library_loads() -> None:
    for kind, found in _KINDS.items():
        model = {"type": "BPE", "vocab": {}, "merges": []}
        content = {"version": "1.0", "model": model, "pre_tokenizer": found.stages}
        content |= {"added_tokens": [], "normalizer": None, "decoder": None, "post_processor": None}
        tokenizer = Tokenizer.from_str(json.dumps(content))
        assert tokenizer.pre_tokenizer.pre_tokenize_str("it's 12"), kind


def load_in_genai(folder: Path) -> Any:
    """The runtime's own tokenizer; it wants a model beside it, so it gets one that does nothing."""
    import onnx
    import onnxruntime_genai
    from onnx import TensorProto, helper

    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["b", "s"])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["b", "s"])
    cast = helper.make_node("Cast", ["input_ids"], ["logits"], to=TensorProto.FLOAT)
    graph = helper.make_graph([cast], "nothing", [ids], [logits])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), folder / "model.onnx")
    sizes = ("head_size", "hidden_size", "num_attention_heads", "num_hidden_layers")
    decoder = {
        "session_options": {},
        "filename": "model.onnx",
        **dict.fromkeys(sizes, 1),
        "inputs": {"input_ids": "input_ids"},
        "outputs": {"logits": "logits"},
    }
    model = {"type": "llama", "vocab_size": 600, "context_length": 64, "decoder": decoder}
    model |= {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    config = {"model": model, "search": {"max_length": 64}}
    (folder / "genai_config.json").write_text(json.dumps(config))
    return onnxruntime_genai.Tokenizer(onnxruntime_genai.Model(str(folder)))


def list_differing(folder: Path, expected: Tokenizer) -> list[str]:
    runtime = load_in_genai(folder)
    return [
        text
        for text in HARD
        if text
        and list(runtime.encode(text)) != expected.encode(text, add_special_tokens=False).ids
    ]


# proves: B11
@pytest.mark.parametrize("pre", ORIGINALS)
def test_the_runtime_reads_the_same_ids(
    pre: str, make_gguf: Callable[..., Path], tmp_path: Path
) -> None:
    original = train_byte_level(ORIGINALS[pre])
    folder = tmp_path / "out"
    write(make_gguf(changes=describe_byte_level(original, pre)), folder)
    assert list_differing(folder, original) == []


# proves: B11
@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_the_runtime_reads_the_same_sentencepiece_ids(
    architecture: str, make_gguf: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    write(make_gguf(changes=train_sentencepiece(), architecture=architecture), folder)
    differing = list_differing(folder, Tokenizer.from_file(str(folder / "tokenizer.json")))
    # the runtime takes a U+2581 that the text itself begins with for its own prefix
    assert differing == (["\u2581x \u2581"] if architecture == "llama" else [])


# proves: B11
def test_the_runtime_passes_over_the_digits_stage(
    make_gguf: Callable[..., Path], tmp_path: Path
) -> None:
    """Why "smollm" is spelled as two Splits; and the control of the tests above."""
    original = train_byte_level(ORIGINALS["smollm"])
    folder = tmp_path / "out"
    write(make_gguf(changes=describe_byte_level(original, "smollm")), folder)
    original.save(str(folder / "tokenizer.json"))
    assert "  12" in list_differing(folder, original)
