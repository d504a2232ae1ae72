"""The vocabulary in a GGUF file: tokens, which are special, whether bos and eos are added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from assay.checkpoint._gguf_config import END_NAMES, find_token_id
from assay.checkpoint._gguf_header import GgufHeader
from assay.checkpoint._pretokenizers import find_pre_tokenizer

__all__ = ["SPACE", "Vocabulary", "read_vocabulary"]

SPACE = "\u2581"
_CONTROL, _USER_DEFINED = 3, 4
_MAX_TOKEN_LENGTH = 4096
_NAMED = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """ids: token -> id, in order of the ids, each id from 0 once.

    named: bos, eos, unk and pad, those that the file names.
    special: ids of tokens matched whole in text and left out of decoded text.
    user_defined: ids matched whole that stay in decoded text (Gemma's "\\n\\n").
    """

    ids: dict[str, int]
    named: dict[str, str]
    special: frozenset[int]
    user_defined: frozenset[int]
    adds_bos: bool
    adds_eos: bool


def read_vocabulary(header: GgufHeader) -> Vocabulary:
    """Read and check the vocabulary of a byte-level ("gpt2") or SentencePiece ("llama") file."""
    family = header.get("tokenizer.ggml.model", str, "")
    if family not in ("gpt2", "llama"):
        raise header.fail(
            f"metadata tokenizer.ggml.model is {family!r}",
            "gpt2 (byte-level BPE) or llama (SentencePiece BPE)",
            "Use the model's safetensors checkpoint instead.",
        )
    tokens = _read_tokens(header)
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    if len(ids) != len(tokens):
        twice = next(token for token_id, token in enumerate(tokens) if ids[token] != token_id)
        raise header.fail(f"has token {twice!r} twice in its vocabulary", "each token once")
    named_ids = {name: find_token_id(header, key) for name, key in _NAMED.items()}
    for token_id in named_ids.values():
        if token_id is not None and token_id >= len(tokens):
            raise header.fail(f"names token {token_id}", f"one of {len(tokens):,} tokens")
    named = {name: tokens[number] for name, number in named_ids.items() if number is not None}
    control, user_defined = _read_kinds(header, len(tokens))
    # Gemma's runs of spaces are user-defined in the file; spelled anew they are plain pieces.
    user_defined = {number for number in user_defined if tokens[number].strip(SPACE)}
    special = control | {ids[token] for token in (*named.values(), *END_NAMES) if token in ids}
    # Old files have no flag: SentencePiece vocabularies and Llama 3's add bos (llama.cpp).
    adds_bos = family == "llama" or find_pre_tokenizer(header).adds_bos
    adds_bos = header.get("tokenizer.ggml.add_bos_token", bool, adds_bos)
    adds_eos = header.get("tokenizer.ggml.add_eos_token", bool, False)
    return Vocabulary(
        ids=ids,
        named=named,
        special=frozenset(special),
        user_defined=frozenset(user_defined - special),
        adds_bos=adds_bos and "bos" in named,
        adds_eos=adds_eos and "eos" in named,
    )


def _read_tokens(header: GgufHeader) -> list[str]:
    """Read the tokens. Gemma's runs of spaces are spelled with U+2581, as transformers does."""
    tokens = header.strings("tokenizer.ggml.tokens") or []
    is_gemma = header.metadata["general.architecture"] == "gemma3"
    for token_id, token in enumerate(tokens):
        if len(token) > _MAX_TOKEN_LENGTH:
            raise header.fail(
                f"token {token_id} has {len(token):,} characters", f"at most {_MAX_TOKEN_LENGTH:,}"
            )
        if not token:
            tokens[token_id] = f"[EMPTY_{token_id}]"  # llama.cpp's name for it
        elif is_gemma and not token.strip(" "):
            tokens[token_id] = SPACE * len(token)
    return tokens


def _read_kinds(header: GgufHeader, num_tokens: int) -> tuple[set[int], set[int]]:
    """Read which tokens are control and which are user-defined; files may leave it out."""
    kinds: Any = header.numbers("tokenizer.ggml.token_type")
    if kinds is None:
        return set(), set()
    if len(kinds) != num_tokens:
        raise header.fail(f"has {len(kinds):,} token types", f"{num_tokens:,}, one per token")
    control, user_defined = ((kinds == kind).nonzero()[0] for kind in (_CONTROL, _USER_DEFINED))
    return set(control.tolist()), set(user_defined.tolist())
