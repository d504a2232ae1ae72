"""What the judge feeds: a fixed text in several scripts and code, or seeded ids without one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.errors import OptionError

__all__ = ["build_opening", "build_prompts", "load_tokenizer", "random_ids"]

Ids = npt.NDArray[np.int64]
_SEED = 20240229
_MAX_SHARE = 0.3  # of one token in a text; a space among single letters has 0.18

OPENING_TEXT = "The capital of France is Paris. The capital of Italy is"


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a folder by its tokenizer.json, or None when it has none.

    Read with the tokenizers package: no code of the checkpoint runs.
    """
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    return Tokenizer.from_file(str(path)) if path.is_file() else None


def random_ids(vocab_size: int, num_tokens: int, *, avoid: Sequence[int] = ()) -> Ids:
    """Seeded ids over the whole vocabulary but for special ones: the same on every machine."""
    allowed = np.setdiff1d(np.arange(vocab_size), np.asarray(avoid, np.int64))
    words = allowed if len(allowed) else np.arange(vocab_size)
    return np.random.default_rng(_SEED).choice(words, num_tokens).astype(np.int64)


def build_prompts(
    num_tokens: int,
    *,
    vocab_size: int,
    tokenizer: Any = None,
    avoid: Sequence[int] = (),
    prompts: Sequence[str | Sequence[int]] | None = None,
) -> list[Ids]:
    """The prompts to judge on, each [S] with S at most num_tokens.

    Without `prompts`: one of exactly num_tokens, the built-in text (prompt.txt) followed by
    seeded ids. avoid: special ids.
    Raises OptionError for a text without a tokenizer and for ids outside the vocabulary.
    """
    if prompts:
        return [_encode(prompt, tokenizer, vocab_size)[:num_tokens] for prompt in prompts]
    filler = random_ids(vocab_size, num_tokens, avoid=avoid)
    if tokenizer is None:
        return [filler]
    text = _encode(_read_text(), tokenizer, vocab_size)
    if np.bincount(text).max() > _MAX_SHARE * len(text):
        return [filler]  # a tokenizer that knows few of its words gives one id again and again
    return [np.concatenate([text, filler])[:num_tokens]]


def build_opening(*, vocab_size: int, tokenizer: Any = None, avoid: Sequence[int] = ()) -> Ids:
    """A short prompt [S] to generate from."""
    if tokenizer is None:
        return random_ids(vocab_size, 12, avoid=avoid)
    return _encode(OPENING_TEXT, tokenizer, vocab_size)


def _read_text() -> str:
    return Path(__file__).with_name("prompt.txt").read_text(encoding="utf-8")


def _encode(prompt: str | Sequence[int], tokenizer: Any, vocab_size: int) -> Ids:
    if isinstance(prompt, str):
        if tokenizer is None:
            raise OptionError(
                "prompts",
                "a text can't be turned into ids: the folder has no tokenizer.json",
                next_step="Give token ids instead.",
            )
        prompt = tokenizer.encode(prompt).ids
    ids_S = np.asarray(prompt, np.int64).reshape(-1)
    if not len(ids_S) or ids_S.min() < 0 or ids_S.max() >= vocab_size:
        raise OptionError(
            "prompts",
            "it is empty or holds ids that the model doesn't have",
            expected=f"ids from 0 to {vocab_size - 1}",
        )
    return ids_S
