"""Measure prefill and decode speed of a folder in a fresh child process."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from assay.errors import RuntimeFolderError

from ._folder import GenaiFolder
from ._genai import explain_failure
from ._spawn import ChildResult, Run, run_child

__all__ = ["Speed", "check_lengths", "keep_quiet_runs", "measure_child", "measure_speed"]

# A run is disturbed when others kept more than this many processors busy meanwhile.
QUIET_OTHERS_CPUS = 0.25
_EXTRA_REPEATS = 2


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Tokens a second in prefill and decode: the medians of one child's runs."""

    prefill: float
    decode: float
    disturbed: bool

    def score_against(self, base: Speed) -> float:
        """Geometric mean of the two speed-ups over another measurement: neither counts more."""
        return float(((self.prefill / base.prefill) * (self.decode / base.decode)) ** 0.5)


def check_lengths(folder: GenaiFolder, prompt_tokens: int, new_tokens: int) -> None:
    """Refuse lengths that measure nothing or don't fit the model's context."""
    total = prompt_tokens + new_tokens
    if prompt_tokens < 1 or new_tokens < 2 or total > folder.context_length:
        raise RuntimeFolderError(
            str(folder.path),
            f"{prompt_tokens} prompt and {new_tokens} new tokens can't be measured",
            expected=(
                f"at least 1 and 2, together at most {folder.context_length} (the model's context)"
            ),
            next_step="Choose other lengths (--prompt-tokens, --new-tokens).",
        )


def measure_child(
    folder: GenaiFolder,
    *,
    session_options: dict[str, Any] | None,
    prompt_tokens: int,
    new_tokens: int,
    repeats: int,
    timeout_s: float,
) -> ChildResult:
    """Run one warm-up and `repeats` runs in a child; more where others disturb them."""
    job = {
        "folder": str(folder.path),
        "session_options": session_options or {},
        "prompt_tokens": prompt_tokens,
        "vocab_size": folder.vocab_size,
        "new_tokens": new_tokens,
        "repeats": repeats + 1,
        "max_repeats": repeats + 1 + _EXTRA_REPEATS,
    }
    return run_child(job, timeout_s=timeout_s)


def keep_quiet_runs(runs: Sequence[Run]) -> tuple[tuple[Run, ...], bool]:
    """Drop the warm-up, and the disturbed runs where quiet ones remain; True: none was quiet."""
    rest = tuple(runs[1:]) or tuple(runs)
    quiet = tuple(
        run for run in rest if run.others_cpus is None or run.others_cpus <= QUIET_OTHERS_CPUS
    )
    return (quiet, False) if quiet else (rest, True)


def measure_speed(folder: GenaiFolder, result: ChildResult) -> Speed:
    """The medians of a child's runs; RuntimeFolderError where it failed."""
    if result.outcome != "ok":
        raise explain_failure(folder, result.message, doing=f"measuring ({result.stage})")
    runs, disturbed = keep_quiet_runs(result.runs)
    return Speed(
        prefill=statistics.median(run.prefill_tokens_per_s for run in runs),
        decode=statistics.median(run.decode_tokens_per_s for run in runs),
        disturbed=disturbed,
    )
