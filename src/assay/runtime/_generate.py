"""Generate text with a folder in onnxruntime-genai, in this process, and time it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from assay.errors import OptionError

from ._folder import GenaiFolder, read_folder
from ._genai import explain_failure, import_genai
from ._prompt import EncodedPrompt, encode_prompt

__all__ = ["Generation", "LoadedModel", "generate", "open_model"]

StopReason = Literal["eos", "max_new_tokens", "context_length"]


@dataclass(frozen=True, kw_only=True)
class Generation:
    """Generated text with what it cost.

    token_ids: the new tokens, the end token included where the model gave one.
    ttft_s: prompt in to first new token, without loading.
    tokens_per_second: of the tokens after the first; 0 where there is none.
    notes: what a reader should know, such as a tokenizer that disagrees with tokenizer.json.
    """

    text: str
    token_ids: tuple[int, ...]
    num_prompt_tokens: int
    ttft_s: float
    tokens_per_second: float
    stop_reason: StopReason
    used_chat: bool
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    def to_text(self) -> str:
        """The text, then a line of numbers."""
        lines = [
            self.text,
            f"[{self.num_prompt_tokens} prompt tokens, {len(self.token_ids)} new, "
            f"first after {self.ttft_s:.2f} s, {self.tokens_per_second:.1f} tokens/s, "
            f"stopped by {self.stop_reason}]",
        ]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A folder that is loaded and can generate any number of times."""

    folder: GenaiFolder
    load_s: float
    _genai: Any
    _model: Any
    _tokenizer: Any

    def generate(
        self,
        prompt: str,
        *,
        max_new_tokens: int = 128,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        seed: int | None = None,
        chat: bool | None = None,
        stream: Callable[[str], None] | None = None,
    ) -> Generation:
        """Continue a prompt; see `generate`."""
        _check_options(max_new_tokens, temperature, top_p, top_k)
        encoded = encode_prompt(self.folder, self._tokenizer, prompt, chat=chat)
        limit = self.folder.context_length
        num_prompt = len(encoded.token_ids)
        if num_prompt >= limit or num_prompt == 0:
            found = "is empty" if num_prompt == 0 else f"has {num_prompt} tokens"
            raise OptionError(
                "prompt",
                f"it {found}",
                expected=f"1 to {limit - 1} tokens (the model's context is {limit})",
                next_step="Give another prompt.",
            )
        search: dict[str, Any] = {
            "max_length": min(num_prompt + max_new_tokens, limit),
            "min_length": 0,
            "do_sample": temperature > 0,
        }
        if temperature > 0:
            search |= {"temperature": temperature, "top_p": top_p, "top_k": top_k}
        if seed is not None:
            search["random_seed"] = seed
        try:
            return self._run(encoded, search, stream or _ignore)
        except RuntimeError as exc:
            raise explain_failure(self.folder, str(exc), doing="generating") from exc

    def _run(
        self, encoded: EncodedPrompt, search: dict[str, Any], stream: Callable[[str], None]
    ) -> Generation:
        import numpy as np

        params = self._genai.GeneratorParams(self._model)
        params.set_search_options(**search)
        generator = self._genai.Generator(self._model, params)
        decoder = self._tokenizer.create_stream()
        token_ids: list[int] = []
        pieces: list[str] = []
        started = time.perf_counter()
        first = 0.0
        generator.append_tokens(np.asarray(encoded.token_ids, dtype=np.int32))
        while not generator.is_done():
            generator.generate_next_token()
            token_ids.append(int(generator.get_next_tokens()[0]))
            first = first or time.perf_counter()
            if token_ids[-1] not in self.folder.eos_token_ids:
                pieces.append(decoder.decode(token_ids[-1]))
                stream(pieces[-1])
        decode_s = time.perf_counter() - first
        num_total = len(encoded.token_ids) + len(token_ids)
        stop_reason: StopReason = "max_new_tokens"
        if token_ids and token_ids[-1] in self.folder.eos_token_ids:
            stop_reason = "eos"
        elif num_total >= self.folder.context_length:
            stop_reason = "context_length"
        return Generation(
            text="".join(pieces),
            token_ids=tuple(token_ids),
            num_prompt_tokens=len(encoded.token_ids),
            ttft_s=first - started,
            tokens_per_second=(len(token_ids) - 1) / decode_s if len(token_ids) > 1 else 0.0,
            stop_reason=stop_reason,
            used_chat=encoded.used_chat,
            notes=encoded.notes,
        )


def open_model(folder: str | Path) -> LoadedModel:
    """Load a folder into this process.

    Raises DependencyError without onnxruntime-genai, RuntimeFolderError for a folder that the
    runtime refuses.
    """
    found = read_folder(folder)
    genai = import_genai()
    started = time.perf_counter()
    try:
        model = genai.Model(genai.Config(str(found.path)))
        tokenizer = genai.Tokenizer(model)
    except RuntimeError as exc:
        raise explain_failure(found, str(exc), doing="loading") from exc
    return LoadedModel(
        folder=found,
        load_s=time.perf_counter() - started,
        _genai=genai,
        _model=model,
        _tokenizer=tokenizer,
    )


def generate(
    folder: str | Path,
    prompt: str,
    *,
    max_new_tokens: int = 128,
    temperature: float = 0.0,
    top_p: float = 1.0,
    top_k: int = 0,
    seed: int | None = None,
    chat: bool | None = None,
    stream: Callable[[str], None] | None = None,
) -> Generation:
    """Load a folder and continue a prompt.

    temperature 0 is greedy; above it, top_p, top_k (0: all) and seed hold.
    chat: put the prompt into the folder's chat template; None does so where there is one.
    stream: called with each piece of text as it comes.
    Raises what `open_model` raises, and OptionError for impossible options.
    """
    return open_model(folder).generate(
        prompt,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        seed=seed,
        chat=chat,
        stream=stream,
    )


def _check_options(max_new_tokens: int, temperature: float, top_p: float, top_k: int) -> None:
    for name, value, holds, expected in (
        ("max_new_tokens", max_new_tokens, max_new_tokens >= 1, "at least 1"),
        ("temperature", temperature, temperature >= 0, "0 (greedy) or more"),
        ("top_p", top_p, 0 < top_p <= 1, "above 0, at most 1"),
        ("top_k", top_k, top_k >= 0, "0 (all tokens) or more"),
    ):
        if not holds:
            raise OptionError(name, f"{value} is out of range", expected=expected)


def _ignore(piece: str) -> None:
    """Where nobody listens."""
