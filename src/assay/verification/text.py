"""Text in and out: tokenizer, chat template and end tokens, against the reference's own.

A wrong tokenizer or a lost end token makes a right graph useless, and no logits show it. What the
folder's files say must equal the reference's. Where onnxruntime-genai reads right files otherwise
than transformers does, that is told, but it isn't the folder's fault.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from assay.verification.folder import ModelFolder
from assay.verification.verdict import Check

__all__ = [
    "HARD_TEXTS",
    "MESSAGES",
    "find_end_ids",
    "judge_text",
    "load_reference_tokenizer",
    "read_template",
]

HARD_TEXTS = (
    "Hello world",
    "  two leading, two trailing  ",
    "a\tb\r\nc\n\n\n d",
    "1234567890 3.14 1,000",
    "don't WE'LL I'm naïve e\u0301 “quotes” — …",
    "def f(x):\n    return  x + 1\n",
    "日本語 漢字 한국어 العربية हिन्दी עברית",
    "😀 👩‍👩‍👧‍👦 🇫🇷 \u200b\u00a0½ Ⅷ",
    "unseen: Ωж \U00020000 \U0001f9ff",
    "x" * 40 + " " * 30 + "y",
    "<s>x</s> <pad> <|im_start|>user\nHi<|im_end|> <|endoftext|> <eos>",
)
MESSAGES = (
    {"role": "user", "content": "What is the capital of France?"},
    {"role": "assistant", "content": "Paris."},
    {"role": "user", "content": "And of Italy?"},
)
_NUM_SHOWN = 3
Encode = Callable[[str], list[int]]


def load_reference_tokenizer(source: str | Path) -> Any:
    """transformers' tokenizer of a checkpoint or .gguf file; None where there is none."""
    from transformers import AutoTokenizer

    path = Path(source)
    where, options = (str(source), {})
    if path.suffix == ".gguf":
        where, options = str(path.parent), {"gguf_file": path.name}
    try:
        return AutoTokenizer.from_pretrained(where, **options)
    except Exception:  # noqa: BLE001  (tokenizers raises nothing narrower)
        return None


def judge_text(
    folder: ModelFolder,
    tokenizer: Any,
    end_ids: set[int],
    runtime: dict[str, Any] | None,
    *,
    is_rebuilt: bool = False,
) -> list[Check]:
    """Three checks. tokenizer, end_ids: the reference's, from transformers.

    runtime: what onnxruntime-genai gave for HARD_TEXTS and MESSAGES, or None. is_rebuilt: the
    reference's tokenizer is transformers' guess from a GGUF file, which leaves out how some of
    them cut digits; then other ids are told, and not held against the folder.
    """
    checks = [_judge_end_tokens(folder, end_ids, tokenizer)]
    if tokenizer is None or not (folder.path / "tokenizer.json").is_file():
        reason = "the reference has no tokenizer" if tokenizer is None else "no tokenizer.json"
        return [*checks, Check("tokenizer", None, required=False, detail=reason)]
    return [
        *checks,
        _judge_tokenizer(folder, tokenizer, runtime, is_rebuilt),
        _judge_template(folder, tokenizer, runtime),
    ]


def find_end_ids(model: Any) -> set[int]:
    """The ids that end a text, of the reference's config and of its generation config."""
    sources = (model.config.get_text_config(), getattr(model, "generation_config", None))
    return {i for source in sources for i in _as_ids(getattr(source, "eos_token_id", None))}


def _judge_end_tokens(folder: ModelFolder, wanted: set[int], tokenizer: Any) -> Check:
    """Every id that ends the reference's text ends the folder's."""
    section = folder.config.get("model", {})
    if "eos_token_id" not in section:
        return Check("end_tokens", None, required=False, detail="no genai_config.json")
    found = set(_as_ids(section["eos_token_id"]))
    missing = sorted(wanted - found)
    metrics = {"eos_token_id": sorted(found), "reference_eos_token_id": sorted(wanted)}
    if not wanted:
        return Check("end_tokens", None, metrics, required=False, detail="the reference has none")
    names = ", ".join(f"{i} {_name_token(tokenizer, i)}".strip() for i in missing)
    detail = f"generation won't stop at {names}" if missing else ""
    return Check("end_tokens", not missing, metrics, detail=detail)


def _judge_tokenizer(
    folder: ModelFolder, reference: Any, runtime: dict[str, Any] | None, is_rebuilt: bool
) -> Check:
    ours = _open_tokenizer(folder.path)
    differing = [
        text for text in HARD_TEXTS if ours(text) != [int(i) for i in reference.encode(text)]
    ]
    metrics: dict[str, Any] = {"num_texts": len(HARD_TEXTS), "num_differing": len(differing)}
    if differing:
        shown = ", ".join(repr(text[:30]) for text in differing[:_NUM_SHOWN])
        if is_rebuilt and len(differing) < len(HARD_TEXTS) // 2:
            detail = f"other ids than transformers makes of the GGUF file: {shown}"
            return Check("tokenizer", None, metrics, detail=detail, required=False)
        return Check("tokenizer", False, metrics, detail=f"other ids than the original's: {shown}")
    told = _compare_runtime(reference, runtime, metrics) if runtime else []
    return Check(
        "tokenizer",
        True,
        metrics,
        detail="\n".join(told),
        outcome="runtime_reads_otherwise" if told else "",
    )


def _compare_runtime(reference: Any, runtime: dict[str, Any], metrics: dict[str, Any]) -> list[str]:
    """Where the runtime parts from the original, special tokens at the ends aside."""
    special = set(reference.all_special_ids)
    ids_differ, text_differs = [], []
    for text, ids, decoded in zip(HARD_TEXTS, runtime["ids"], runtime["decoded"], strict=True):
        if _strip(ids, special) != _strip(reference.encode(text), special):
            ids_differ.append(text)
        elif decoded != reference.decode(ids, skip_special_tokens=True):
            text_differs.append(text)
    metrics["num_differing_in_runtime"] = len(ids_differ)
    told = []
    if ids_differ:
        shown = ", ".join(repr(text[:30]) for text in ids_differ[:_NUM_SHOWN])
        told.append(f"onnxruntime-genai encodes otherwise than the original: {shown}")
    if text_differs:
        shown = ", ".join(repr(text[:30]) for text in text_differs[:_NUM_SHOWN])
        told.append(f"onnxruntime-genai decodes otherwise than the original: {shown}")
    return told


def _judge_template(folder: ModelFolder, reference: Any, runtime: dict[str, Any] | None) -> Check:
    if not getattr(reference, "chat_template", None):
        return Check("chat_template", None, required=False, detail="the reference has none")
    expected = reference.apply_chat_template(
        list(MESSAGES), tokenize=False, add_generation_prompt=True
    )
    own = read_template(folder.path)
    if own is None:
        return Check("chat_template", False, detail="the folder has none, the reference has one")
    same_source = own.strip() == _as_text(reference.chat_template).strip()
    if runtime is None:
        detail = "" if same_source else "another text than the reference's; not rendered"
        passed = True if same_source else None
        return Check("chat_template", passed, required=False, detail=detail)
    if runtime.get("chat") == expected:
        return Check("chat_template", True)
    rendered = runtime.get("chat_error") or repr(runtime.get("chat"))[:200]
    if same_source:
        detail = f"the same template, which onnxruntime-genai renders otherwise: {rendered}"
        return Check("chat_template", None, required=False, detail=detail)
    return Check("chat_template", False, detail=f"renders {rendered}, not {expected[:200]!r}")


def _open_tokenizer(folder: Path) -> Encode:
    """The folder's tokenizer as transformers would read it, else by tokenizer.json alone."""
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer

    try:
        loaded = AutoTokenizer.from_pretrained(str(folder))
    except Exception:  # noqa: BLE001  (no config beside it, an unknown class)
        plain = Tokenizer.from_file(str(folder / "tokenizer.json"))
        return lambda text: list(plain.encode(text).ids)
    return lambda text: [int(i) for i in loaded.encode(text)]


def read_template(folder: Path) -> str | None:
    """A folder's chat template: of its own file, else of tokenizer_config.json; None without."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    config = folder / "tokenizer_config.json"
    if not config.is_file():
        return None
    try:
        found = json.loads(config.read_text(encoding="utf-8")).get("chat_template")
    except (ValueError, AttributeError):
        return None
    return _as_text(found) if found else None


def _as_text(template: Any) -> str:
    """A template, or the one named default among several."""
    if isinstance(template, dict):
        return str(template.get("default", ""))
    if isinstance(template, list):
        return str(next((t["template"] for t in template if t.get("name") == "default"), ""))
    return str(template)


def _strip(ids: Sequence[int], special: set[int]) -> list[int]:
    kept = [int(i) for i in ids]
    while kept and kept[0] in special:
        kept.pop(0)
    while kept and kept[-1] in special:
        kept.pop()
    return kept


def _as_ids(value: Any) -> list[int]:
    if value is None:
        return []
    return [int(i) for i in value] if isinstance(value, (list, tuple)) else [int(value)]


def _name_token(tokenizer: Any, index: int) -> str:
    if tokenizer is None:
        return ""
    try:
        return f"({tokenizer.convert_ids_to_tokens(index)})"
    except (IndexError, OverflowError, ValueError, TypeError):  # not in its vocabulary
        return ""
