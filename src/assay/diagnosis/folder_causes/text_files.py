"""Tokenizer and chat template against the checkpoint's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assay.diagnosis.finding import Cause
from assay.diagnosis.folder_causes.table import make_cause
from assay.verification.text import HARD_TEXTS, load_reference_tokenizer, read_template

__all__ = ["examine_text"]

_TOKENIZER = "tokenizer.json"
_NUM_WORDS = 200


def examine_text(folder: Path, reference: Path) -> Iterator[Cause]:
    """What turns text into other ids, or chats into other text, than the checkpoint's files do.

    A reference that is a single file has no files of its own to compare with.
    """
    if not reference.is_dir():
        return
    yield from _examine_tokenizer(folder, reference)
    yield from _examine_template(folder, reference)


def _examine_tokenizer(folder: Path, reference: Path) -> Iterator[Cause]:
    if not (reference / _TOKENIZER).is_file():
        return
    if not (folder / _TOKENIZER).is_file():
        if not any(folder.glob("tokenizer*.model")):
            yield make_cause("tokenizer_missing", _TOKENIZER, "the checkpoint has one")
        return
    found = _load(folder / _TOKENIZER)
    # The file's own words, and as transformers' class of the type reads them: tools follow either.
    originals = [t for t in (_load(reference / _TOKENIZER), _load_whole(reference)) if t]
    if not originals:
        return
    if found is None:
        yield make_cause("tokenizer_unreadable", _TOKENIZER, "the tokenizers library refuses it")
        return
    ours = found.get_vocab(with_added_tokens=True)
    words = [original.get_vocab(with_added_tokens=True) for original in originals]
    if ours not in words:
        both = ours.keys() | words[0].keys()
        differing = sorted(word for word in both if ours.get(word) != words[0].get(word))
        evidence = f"{len(differing)} words have other ids, such as {differing[0]!r}"
        yield make_cause("tokenizer_vocabulary", _TOKENIZER, evidence)
        return
    known = " ".join(sorted(words[0])[:_NUM_WORDS])
    for text in (*HARD_TEXTS, known):
        right, given = [_encode(original, text) for original in originals], _encode(found, text)
        if given not in right:
            evidence = f"{text[:30]!r} gives {given[:6]}, the checkpoint's gives {right[0][:6]}"
            yield make_cause("tokenizer_rules", _TOKENIZER, evidence)
            return


def _load(file: Path) -> Any:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(file))
    except Exception:  # noqa: BLE001  (tokenizers raises nothing narrower)
        return None


def _load_whole(reference: Path) -> Any:
    """The tokenizer that transformers makes of a checkpoint; None where it makes none."""
    return getattr(load_reference_tokenizer(reference), "backend_tokenizer", None)


def _encode(tokenizer: Any, text: str) -> list[int]:
    """Without special tokens at the ends, which other tools put there by other means."""
    return list(tokenizer.encode(text, add_special_tokens=False).ids)


def _examine_template(folder: Path, reference: Path) -> Iterator[Cause]:
    own, found = read_template(reference), read_template(folder)
    if not own:
        return
    if not found:
        yield make_cause("template_missing", "chat_template.jinja", "the checkpoint has one")
    elif (error := _parse(found)) is not None:
        yield make_cause("template_unreadable", "chat_template.jinja", error)
    elif found.strip() != own.strip():
        place = next((i for i, (a, b) in enumerate(zip(own, found, strict=False)) if a != b), None)
        where = "at its end" if place is None else f"from letter {place} on: {found[place:][:40]!r}"
        yield make_cause("template_differs", "chat_template.jinja", f"another text {where}")


def _parse(template: str) -> str | None:
    """What is wrong with a template's syntax; it is not run."""
    from jinja2 import TemplateSyntaxError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    try:
        environment.parse(
            template.replace("{% generation %}", "").replace("{% endgeneration %}", "")
        )
    except TemplateSyntaxError as exc:
        return f"line {exc.lineno}: {exc.message}"
    return None
