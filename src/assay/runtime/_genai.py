"""onnxruntime-genai itself: importing it, and its errors in our words."""

from __future__ import annotations

import re
from typing import Any

from assay.errors import DependencyError, RuntimeFolderError

from ._folder import GenaiFolder

__all__ = ["explain_failure", "import_genai", "is_missing_provider"]

_EXPORT_AGAIN = "Export the model again."
# (pattern in the runtime's message, what was found, what to do now)
_KNOWN_FAILURES = (
    (
        r"Unsupported model_type in config\.json: (?P<what>\S+)",
        "this onnxruntime-genai doesn't know the model type `{what}` (model.type)",
        "Install a newer onnxruntime-genai, or export with a type that it knows.",
    ),
    (
        r'External data path does not exist: "?(?P<what>[^"\n]+)',
        "the weights file {what} isn't there",
        "Copy the whole folder, model.onnx and its data file, or export the model again.",
    ),
    (
        r"External initializer: (?P<what>\S+) offset.*(out of bounds|can not be read)",
        "the weights file ends before the tensor {what}",
        "The copy or download is cut short: copy the folder again, or export again.",
    ),
    (r"File doesn't exist", "the model file isn't there", _EXPORT_AGAIN),
    (r"Protobuf parsing failed", "the model file isn't an ONNX model", _EXPORT_AGAIN),
    (
        r"Failed to open a json file: (?P<what>\S+)",
        "the tokenizer file {what} isn't there",
        "Copy the tokenizer files of the original model into the folder.",
    ),
    (
        r"JSON Error: (?P<what>.*)",
        "the runtime can't read genai_config.json ({what})",
        "Undo what was edited there, or export the model again.",
    ),
    (
        r"Empty chat template",
        "the folder has no chat template",
        "Use the prompt as it is: chat=False (--raw).",
    ),
    (
        r"the logits hold NaN",
        "the logits hold NaN or infinity",
        "The precision's range is too small for this model: export in fp32 (or bf16 on a GPU).",
    ),
    (
        r"(?i)bad_alloc|failed to allocate memory|BFCArena.*alloc",
        "the model doesn't fit in memory",
        "Free memory, use a smaller precision, or a shorter prompt.",
    ),
    (
        r"(?P<what>\S+) is not a registered function/op|No Op registered for (?P<what2>\S+)",
        "this onnxruntime doesn't have the operator {what}",
        "Install a newer onnxruntime and onnxruntime-genai.",
    ),
)
_MISSING_PROVIDER = re.compile(
    r"interface not available|[Pp]rovider .*(is not|isn't) (enabled|supported|available)"
    r"|execution provider is not|Failed to load (shared )?library"
)


def import_genai() -> Any:
    """Import onnxruntime-genai, or raise DependencyError with how to install it."""
    try:
        import onnxruntime_genai
    except ImportError as exc:
        raise DependencyError(
            "onnxruntime-genai",
            f"it can't be imported ({exc})",
            next_step="Install it: pip install onnxruntime-genai (or assay[genai]).",
        ) from exc
    return onnxruntime_genai


def is_missing_provider(message: str) -> bool:
    """Does the runtime say that this machine or build lacks the folder's execution provider?"""
    return _MISSING_PROVIDER.search(message) is not None


def explain_failure(folder: GenaiFolder, message: str, *, doing: str) -> RuntimeFolderError:
    """Put the runtime's message into found and next step.

    doing: what was under way ("loading", "generating"), for a message that isn't in the table.
    """
    where = str(folder.path)
    if is_missing_provider(message):
        names = ", ".join(folder.providers) or "its execution provider"
        return RuntimeFolderError(
            where,
            f"the folder is for {names}, which this onnxruntime-genai or machine doesn't have "
            f"({_first_line(message)})",
            next_step=f"Install the onnxruntime-genai build for {names}, or export with -e cpu.",
        )
    for pattern, found, next_step in _KNOWN_FAILURES:
        match = re.search(pattern, message, re.DOTALL if "offset" in pattern else 0)
        if match:
            groups = match.groupdict()
            what = groups.get("what") or groups.get("what2") or ""
            return RuntimeFolderError(
                where,
                found.format(what=what.strip()),
                next_step=f"{next_step} The runtime said: {_first_line(message)}",
            )
    return RuntimeFolderError(
        where,
        f"onnxruntime-genai failed while {doing}: {_first_line(message)}",
        next_step="Run `assay verify` on the folder to find what is wrong with it.",
    )


def _first_line(message: str, limit: int = 300) -> str:
    text = " ".join(message.split())
    return text if len(text) <= limit else text[: limit - 3] + "..."
