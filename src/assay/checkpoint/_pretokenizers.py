"""How byte-level vocabularies cut text before merging, by llama.cpp's name for the kind.

The expressions are those of the original models' tokenizer.json files; llama.cpp lists the same
(src/llama-vocab.cpp). "smollm" and its kin cut digits one by one before the rest, which
transformers' own GGUF loader leaves out: it gives other ids where several spaces precede a digit.
The cut is spelled as two Splits, not as the originals' Digits and ByteLevel: the ids are the same,
and onnxruntime-genai 0.18 passes Digits over without a word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from assay.checkpoint._gguf_header import GgufHeader

__all__ = ["PreTokenizer", "find_pre_tokenizer"]

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """stages: the `pre_tokenizer` entry of tokenizer.json.

    ignore_merges: a piece that is a token is taken whole, whatever the merges say.
    adds_bos: bos comes first when the file has no flag for it.
    """

    stages: dict[str, Any]
    ignore_merges: bool = False
    adds_bos: bool = False


def _byte_level(*, use_regex: bool) -> dict[str, Any]:
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def _split(*expressions: str) -> dict[str, Any]:
    splits = [
        {
            "type": "Split",
            "pattern": {"Regex": expression},
            "behavior": "Isolated",
            "invert": False,
        }
        for expression in expressions
    ]
    return {"type": "Sequence", "pretokenizers": [*splits, _byte_level(use_regex=False)]}


_GPT2_KIND = PreTokenizer(_byte_level(use_regex=True))
_DIGITS_KIND = PreTokenizer(_split(r"\p{N}", _GPT2))
_LLAMA3_KIND = PreTokenizer(_split(_LLAMA3), ignore_merges=True, adds_bos=True)
_QWEN2_KIND = PreTokenizer(_split(_QWEN2))
_KINDS = {
    # "default": the converter didn't know the model; GPT-2's cut is what its family has
    **dict.fromkeys(("default", "gpt-2", "olmo", "mpt"), _GPT2_KIND),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell"), _DIGITS_KIND),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"), _LLAMA3_KIND),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez"), _QWEN2_KIND),
    "tekken": PreTokenizer(_split(_TEKKEN), ignore_merges=True, adds_bos=True),
}


def find_pre_tokenizer(header: GgufHeader) -> PreTokenizer:
    """Find the cut for `tokenizer.ggml.pre`; an unknown kind is an error, not a guess."""
    kind = header.get("tokenizer.ggml.pre", str, "default")
    if kind not in _KINDS:
        raise header.fail(
            f"metadata tokenizer.ggml.pre is {kind!r}",
            f"one of {', '.join(sorted(_KINDS))}",
            "Take the tokenizer from the model's repository, or report the kind.",
        )
    return _KINDS[kind]
