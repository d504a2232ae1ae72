"""Load a folder once in onnxruntime-genai, in a child process, before anyone says it works."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ._folder import GenaiFolder, read_folder
from ._genai import explain_failure, is_missing_provider
from ._machine import describe_machine, read_available_bytes
from ._spawn import has_genai, run_child

__all__ = ["LoadReport", "load_once"]

# Measured on int4 folders: resident memory of the loaded model over the size of its files.
MEMORY_FACTOR = 1.8
_NUM_TOKENS = 2


@dataclass(frozen=True, kw_only=True)
class LoadReport:
    """The outcome of loading a folder once.

    status: "ok", "skipped" (the folder may be fine, `reason` says why nobody tried) or "failed".
    stage: how far the child came: start, import, config, load, tokenizer, generate, exit.
    seconds: of the whole child process; load_s: of the model alone.
    peak_rss_bytes: of the child process.
    """

    status: Literal["ok", "skipped", "failed"]
    reason: str
    stage: str = ""
    seconds: float = 0.0
    load_s: float | None = None
    peak_rss_bytes: int | None = None
    token_ids: tuple[int, ...] = ()
    runtime_version: str = ""

    @property
    def ok(self) -> bool:
        """Did it load and generate?"""
        return self.status == "ok"

    def to_json(self) -> dict[str, Any]:
        """Plain data, fit for a manifest."""
        return asdict(self)

    def to_text(self) -> str:
        """One or a few lines."""
        if self.status != "ok":
            return f"load once: {self.status}: {self.reason}"
        peak = f", peak {self.peak_rss_bytes / 2**20:.0f} MiB" if self.peak_rss_bytes else ""
        return (
            f"load once: ok in onnxruntime-genai {self.runtime_version}: "
            f"{self.seconds:.1f} s in a child process{peak}"
        )


def load_once(folder: str | Path, *, timeout_s: float = 600.0) -> LoadReport:
    """Load the folder in a child process and generate two tokens.

    Failures of the runtime, crashes and time-outs are reported, not raised; a folder that isn't
    one (no genai_config.json, no model file) raises RuntimeFolderError.
    """
    found = read_folder(folder)
    if not has_genai():
        return LoadReport(status="skipped", reason="onnxruntime-genai isn't installed")
    reason = _why_too_big(found)
    if reason:
        return LoadReport(status="skipped", reason=reason)
    job = {
        "folder": str(found.path),
        "prompt_ids": _short_prompt(found),
        "new_tokens": _NUM_TOKENS,
        "repeats": 1,
        "max_repeats": 1,
        "with_tokenizer": True,
        "stop_at_eos": True,
        "check_logits": True,
    }
    result = run_child(job, timeout_s=timeout_s)
    status: Literal["ok", "skipped", "failed"] = "ok" if result.outcome == "ok" else "failed"
    reason = result.message
    if result.outcome == "error":
        reason = _reason_of(found, result.stage, result.message)
        status = "skipped" if is_missing_provider(result.message) else "failed"
    elif result.outcome != "ok":
        reason = f"{result.message} (while at: {result.stage})"
    return LoadReport(
        status=status,
        reason=reason,
        stage=result.stage,
        seconds=result.seconds,
        load_s=result.load_s,
        peak_rss_bytes=result.peak_rss_bytes,
        token_ids=result.token_ids,
        runtime_version=describe_machine().versions["onnxruntime-genai"],
    )


def _reason_of(folder: GenaiFolder, stage: str, message: str) -> str:
    if stage == "import":
        return f"onnxruntime-genai is installed but can't be imported: {message}"
    doing = {"generate": "generating", "tokenizer": "reading the tokenizer"}.get(stage, "loading")
    error = explain_failure(folder, message, doing=doing)
    return f"{error.found}. {error.next_step}"


def _why_too_big(folder: GenaiFolder) -> str:
    """The reason to skip, or "" where it fits or nobody knows."""
    needed = int(MEMORY_FACTOR * folder.size_bytes)
    available = read_available_bytes()
    if available is None or needed <= available:
        return ""
    return (
        f"loading takes about {needed / 2**30:.1f} GiB ({MEMORY_FACTOR} times the folder), "
        f"and {available / 2**30:.1f} GiB are available"
    )


def _short_prompt(folder: GenaiFolder) -> list[int]:
    """A few ids that any model has; the first is the model's own start token where it has one."""
    start = folder.bos_token_id if folder.bos_token_id is not None else 1
    return [token % folder.vocab_size for token in (start, 5, 7, 11)]
