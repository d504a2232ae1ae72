"""tokenizer.json, tokenizer_config.json and the chat template, rebuilt from a GGUF file.

Written as JSON straight from the metadata: the format is the `tokenizers` library's own, and going
through the library would cost more memory than exporting the model. Two families: byte-level BPE
(`tokenizer.ggml.model` "gpt2") and SentencePiece-like BPE ("llama").
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from assay.checkpoint._gguf_header import GgufHeader
from assay.checkpoint._gguf_merges import (
    Merges,
    derive_merges_by_order,
    derive_merges_by_score,
    read_merges,
)
from assay.checkpoint._gguf_vocabulary import SPACE, Vocabulary, read_vocabulary
from assay.checkpoint._pretokenizers import find_pre_tokenizer
from assay.errors import OutputError

__all__ = ["list_tokenizer_files", "write_tokenizer"]


def list_tokenizer_files(header: GgufHeader) -> list[str]:
    """Name what `write_tokenizer` writes; nothing when the file has no vocabulary."""
    if "tokenizer.ggml.tokens" not in header.metadata:
        return []
    has_template = "tokenizer.chat_template" in header.metadata
    return [
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        *(["chat_template.jinja"] if has_template else []),
    ]


def write_tokenizer(header: GgufHeader, folder: Path, *, model_max_length: int) -> list[str]:
    """Write the files of `list_tokenizer_files` into a folder; return their names."""
    names = list_tokenizer_files(header)
    if not names:
        return []
    vocabulary = read_vocabulary(header)
    template = header.get("tokenizer.chat_template", str)
    special = {f"{name}_token": token for name, token in vocabulary.named.items()}
    config: dict[str, Any] = {
        **special,
        "add_bos_token": vocabulary.adds_bos,
        "add_eos_token": vocabulary.adds_eos,
        "clean_up_tokenization_spaces": False,
        "model_max_length": model_max_length,
        # Loads tokenizer.json as it is; the named classes of transformers 5 build their own.
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    if template is not None:
        config["chat_template"] = template
    path = folder
    try:
        for path in (folder / name for name in names):
            with path.open("w", encoding="utf-8", newline="\n") as file:
                if path.name == "tokenizer.json":
                    _write_tokenizer_json(file, header, vocabulary)
                elif path.name == "chat_template.jinja":
                    file.write(template or "")
                else:
                    content = config if path.name == "tokenizer_config.json" else special
                    json.dump(content, file, ensure_ascii=False, indent=2)
    except OSError as exc:
        raise OutputError(
            str(path),
            f"can't be written ({exc})",
            next_step="Check free space and permissions of the folder.",
        ) from exc
    return names


def _write_tokenizer_json(file: TextIO, header: GgufHeader, vocabulary: Vocabulary) -> None:
    """Write the small parts as one object, then the model with its vocabulary and merges."""
    if header.get("tokenizer.ggml.model", str) == "gpt2":
        parts, model, merges = _build_byte_level(header, vocabulary)
    elif header.metadata["general.architecture"] == "gemma3":
        parts, model, merges = _build_gemma(header, vocabulary)
    else:
        parts, model, merges = _build_sentencepiece(header, vocabulary)
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _list_added_tokens(vocabulary),
        **parts,
        "post_processor": _build_post_processor(vocabulary),
        "model": {"type": "BPE", "dropout": None, **model},
    }
    file.write(json.dumps(whole, ensure_ascii=False).removesuffix("}}"))
    file.write(',\n"vocab": {')
    _write_pieces(
        file, vocabulary.ids.items(), lambda batch: json.dumps(dict(batch), ensure_ascii=False)
    )
    file.write('},\n"merges": [')
    _write_pieces(file, merges, lambda batch: json.dumps(batch, ensure_ascii=False))
    file.write("]}}\n")


def _write_pieces(file: TextIO, items: Iterable[Any], dump: Any) -> None:
    """Write a long list or object in batches, so that its text is never whole in memory."""
    iterator: Iterator[Any] = iter(items)
    separator = ""
    while batch := list(islice(iterator, 4096)):
        file.write(separator + dump(batch)[1:-1])
        separator = ",\n"


def _build_byte_level(
    header: GgufHeader, vocabulary: Vocabulary
) -> tuple[dict[str, Any], dict[str, Any], Merges]:
    """GPT-2's family: text as bytes, each byte spelled as one visible character."""
    pre_tokenizer = find_pre_tokenizer(header)
    parts = {
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer.stages,
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
    }
    model = {
        "unk_token": None,
        "continuing_subword_prefix": "",
        "end_of_word_suffix": "",
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": pre_tokenizer.ignore_merges,
    }
    return parts, model, read_merges(header, vocabulary.ids)


def _build_gemma(
    header: GgufHeader, vocabulary: Vocabulary
) -> tuple[dict[str, Any], dict[str, Any], Merges]:
    """Gemma: spaces become U+2581, no prefix; merges in the order of the vocabulary."""
    space = {"String": " "}
    parts = {
        "normalizer": {"type": "Replace", "pattern": space, "content": SPACE},
        "pre_tokenizer": {
            "type": "Split",
            "pattern": space,
            "behavior": "MergedWithPrevious",
            "invert": False,
        },
        "decoder": _build_decoder(strip=False),
    }
    if "tokenizer.ggml.merges" in header.metadata:
        merges = read_merges(header, vocabulary.ids)
    else:
        merges = derive_merges_by_order(vocabulary.ids)
    return parts, _build_fallback_model(vocabulary), merges


def _build_sentencepiece(
    header: GgufHeader, vocabulary: Vocabulary
) -> tuple[dict[str, Any], dict[str, Any], Merges]:
    """Llama 2 and its kin: merges by score, and a space before the text and after each special
    token (unless the file says no), as SentencePiece, llama.cpp and the originals have it.

    transformers 5 has its own way (no second space before one, none after a special token).
    """
    adds_prefix = header.get("tokenizer.ggml.add_space_prefix", bool, True)
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    prepend = [{"type": "Prepend", "prepend": SPACE}] if adds_prefix else []
    parts = {
        "normalizer": {"type": "Sequence", "normalizers": [*prepend, replace]},
        "pre_tokenizer": None,
        "decoder": _build_decoder(strip=adds_prefix),
    }
    if "tokenizer.ggml.merges" in header.metadata:
        merges = read_merges(header, vocabulary.ids)
    else:
        scores = header.numbers("tokenizer.ggml.scores")
        if scores is None or len(scores) != len(vocabulary.ids):
            raise header.fail(
                "has neither merges nor a score for each token", "one of them for its vocabulary"
            )
        merges = derive_merges_by_score(vocabulary.ids, scores.tolist())
    return parts, _build_fallback_model(vocabulary), merges


def _build_fallback_model(vocabulary: Vocabulary) -> dict[str, Any]:
    """Characters without a token are spelled as byte tokens `<0x0A>`."""
    return {
        "unk_token": vocabulary.named.get("unk"),
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": True,
        "ignore_merges": False,
    }


def _build_decoder(*, strip: bool) -> dict[str, Any]:
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if strip:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {"type": "Sequence", "decoders": decoders}


def _list_added_tokens(vocabulary: Vocabulary) -> list[dict[str, Any]]:
    tokens = list(vocabulary.ids)
    return [
        {
            "id": token_id,
            "content": tokens[token_id],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": token_id in vocabulary.special,
        }
        for token_id in sorted(vocabulary.special | vocabulary.user_defined)
    ]


def _build_post_processor(vocabulary: Vocabulary) -> dict[str, Any] | None:
    """A template that adds bos and eos as the file says; None when it adds neither."""
    before = [vocabulary.named["bos"]] if vocabulary.adds_bos else []
    after = [vocabulary.named["eos"]] if vocabulary.adds_eos else []
    if not before and not after:
        return None

    def sequence(name: str, type_id: int) -> list[dict[str, Any]]:
        return [
            *({"SpecialToken": {"id": token, "type_id": type_id}} for token in before),
            {"Sequence": {"id": name, "type_id": type_id}},
            *({"SpecialToken": {"id": token, "type_id": type_id}} for token in after),
        ]

    return {
        "type": "TemplateProcessing",
        "single": sequence("A", 0),
        "pair": sequence("A", 0) + sequence("B", 1),
        "special_tokens": {
            token: {"id": token, "ids": [vocabulary.ids[token]], "tokens": [token]}
            for token in before + after
        },
    }
