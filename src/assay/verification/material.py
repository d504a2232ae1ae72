"""What a folder is judged on: how many tokens, which prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from assay.errors import UnjudgedError
from assay.verification.folder import ModelFolder
from assay.verification.prompts import build_opening, build_prompts, load_tokenizer
from assay.verification.reference import find_window

if TYPE_CHECKING:
    import torch

__all__ = ["Material", "gather_prompts", "limit_tokens"]

Ids = npt.NDArray[np.int64]

_PAST_WINDOW = 32  # tokens beyond a sliding window that make it show
_MAX_SCORE_BYTES = 4 << 30


@dataclass(frozen=True)
class Material:
    """prompts: each [S]. opening: a short one to generate from."""

    prompts: list[Ids]
    opening: Ids


def gather_prompts(
    folder: ModelFolder,
    model: torch.nn.Module,
    reference: str | Path,
    num_tokens: int,
    prompts: Sequence[str | Sequence[int]] | None,
) -> Material:
    """The built-in prompt, or the user's, in the folder's own tokenizer."""
    tokenizer = load_tokenizer(folder.path) or load_tokenizer(Path(reference))
    config: Any = model.config
    vocab_size = config.get_text_config().vocab_size
    special = _special_ids(folder, config)
    options: dict[str, Any] = {"vocab_size": vocab_size, "tokenizer": tokenizer, "avoid": special}
    if tokenizer is not None and tokenizer.get_vocab_size() > vocab_size:
        options["tokenizer"] = None  # it belongs to another model, or the words don't fit
    return Material(build_prompts(num_tokens, prompts=prompts, **options), build_opening(**options))


def _special_ids(folder: ModelFolder, config: Any) -> list[int]:
    """bos, eos and pad of the folder and the reference."""
    found: list[int] = []
    for source in (folder.config.get("model", {}), config.get_text_config().to_dict()):
        for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
            value = source.get(key)
            found += value if isinstance(value, list) else [value]
    return [i for i in found if isinstance(i, int)]


def limit_tokens(model: torch.nn.Module, folder: ModelFolder, num_tokens: int) -> int:
    """The prompt's length: past the window if that can be, within what model and folder hold.

    dynamic and longrope scaling change their frequencies past the original length, so a cached
    decode that crosses it equals no full forward; the judge stays below.
    """
    config: Any = model.config
    text = config.get_text_config()
    limits = [
        getattr(text, "max_position_embeddings", None),
        getattr(text, "n_positions", None),
        folder.config.get("model", {}).get("context_length"),
    ]
    rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    kind = rope.get("rope_type", rope.get("type"))
    if kind in ("dynamic", "longrope", "su"):
        original = rope.get("original_max_position_embeddings") or getattr(
            text, "original_max_position_embeddings", None
        )
        limits.append(original or getattr(text, "max_position_embeddings", None))
    most = min(
        (value for value in limits if isinstance(value, int) and value > 0), default=num_tokens
    )
    window = find_window(config) or 0
    wanted = num_tokens
    if num_tokens < window + _PAST_WINDOW <= most:
        scores = 3 * 8 * text.num_attention_heads * (window + _PAST_WINDOW) ** 2  # float64, eager
        wanted = window + _PAST_WINDOW if scores <= _MAX_SCORE_BYTES else num_tokens
    limit = min(most, wanted)
    if limit < 8:
        raise UnjudgedError(
            "num_tokens", f"{limit} tokens are too few to judge on", expected="at least 8"
        )
    return limit
