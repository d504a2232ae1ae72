"""From a person's prompt to token ids: chat template, special tokens, what doesn't agree."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from assay.errors import RuntimeFolderError

from ._folder import GenaiFolder

__all__ = ["EncodedPrompt", "encode_prompt"]


@dataclass(frozen=True, kw_only=True)
class EncodedPrompt:
    """The text as the model sees it, its ids, and notes for the reader."""

    text: str
    token_ids: tuple[int, ...]
    used_chat: bool
    notes: tuple[str, ...]


def encode_prompt(
    folder: GenaiFolder, tokenizer: Any, prompt: str, *, chat: bool | None
) -> EncodedPrompt:
    """Apply the chat template (chat=None: where the folder has one) and encode.

    tokenizer: the runtime's. The template runs there. The ids come from tokenizer.json through the
    tokenizers library, since the runtime's own encoder leaves out special tokens that the file
    adds (the start token of Gemma); where the two differ, a note says so. A templated text gets no
    special tokens added, as in transformers.
    Raises RuntimeFolderError where a template is asked for and is missing or doesn't run.
    """
    use_chat = folder.has_chat_template if chat is None else chat
    text = _apply_template(folder, tokenizer, prompt) if use_chat else prompt
    runtime_ids = [int(token) for token in tokenizer.encode(text)]
    exact_ids = _encode_exactly(folder, text, add_special_tokens=not use_chat)
    if exact_ids is None or exact_ids == runtime_ids:
        return EncodedPrompt(text=text, token_ids=tuple(runtime_ids), used_chat=use_chat, notes=())
    note = (
        f"the runtime's tokenizer gives {_name_difference(runtime_ids, exact_ids)}; "
        "the ids of tokenizer.json are used"
    )
    return EncodedPrompt(text=text, token_ids=tuple(exact_ids), used_chat=use_chat, notes=(note,))


def _apply_template(folder: GenaiFolder, tokenizer: Any, prompt: str) -> str:
    if not folder.has_chat_template:
        raise RuntimeFolderError(
            str(folder.path),
            "the folder has no chat template",
            expected="chat_template.jinja, or chat_template in tokenizer_config.json",
            next_step="Use the prompt as it is: chat=False (--raw).",
        )
    messages = json.dumps([{"role": "user", "content": prompt}], ensure_ascii=False)
    try:
        return str(tokenizer.apply_chat_template(messages, add_generation_prompt=True))
    except RuntimeError as exc:
        raise RuntimeFolderError(
            str(folder.path),
            f"the runtime can't run the folder's chat template ({exc})",
            next_step="Use the prompt as it is: chat=False (--raw).",
        ) from exc


def _encode_exactly(
    folder: GenaiFolder, text: str, *, add_special_tokens: bool
) -> list[int] | None:
    """The ids by tokenizer.json; None where there is no such file."""
    file = folder.path / "tokenizer.json"
    if not file.is_file():
        return None
    import tokenizers

    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(file))
    except Exception as exc:  # the library raises plain Exception for a damaged file
        raise RuntimeFolderError(
            str(file), f"it can't be read ({exc})", next_step="Copy the original's file again."
        ) from exc
    return list(tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)


def _name_difference(runtime_ids: Sequence[int], exact_ids: Sequence[int]) -> str:
    if list(exact_ids[1:]) == list(runtime_ids):
        return f"no start token ({exact_ids[0]})"
    pairs = zip(runtime_ids, exact_ids, strict=False)
    first = next((i for i, (a, b) in enumerate(pairs) if a != b), len(exact_ids))
    return f"other ids from position {first} on ({len(runtime_ids)} against {len(exact_ids)})"
