"""The session options that are worth trying on a machine, and what a folder says already.

Only options that leave the numbers alone: threads, how they wait, how work is cut up. Names and
defaults are those of ONNX Runtime's session configuration keys; GenAI passes every string entry of
`session_options` on, and sets half of the machine's processors (at most 16) as threads by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._machine import Machine

__all__ = [
    "THREADS",
    "TUNABLE_DEFAULTS",
    "Candidate",
    "list_thread_candidates",
    "list_variants",
    "merge_options",
]

THREADS = "intra_op_num_threads"
SPINNING = "session.intra_op.allow_spinning"
BLOCK_BASE = "session.dynamic_block_base"
# What each key means when it is absent; None: always written out.
TUNABLE_DEFAULTS: dict[str, Any] = {THREADS: None, SPINNING: None, BLOCK_BASE: "0"}


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A named set of session options; empty options mean the folder as it is."""

    name: str
    options: dict[str, Any]


def list_thread_candidates(machine: Machine) -> list[Candidate]:
    """Thread counts up to the processors at hand, all spinning."""
    return [_candidate(threads) for threads in _thread_counts(machine)]


def list_variants(best: Candidate) -> list[Candidate]:
    """What else to try around the best thread count: nothing for one, which has no workers."""
    threads = best.options[THREADS]
    if threads == 1:
        return []
    return [_candidate(threads, spinning="0"), _candidate(threads, block_base="4")]


def merge_options(current: dict[str, Any], chosen: dict[str, Any]) -> dict[str, Any]:
    """A folder's session options with the chosen ones: defaults are dropped, the rest stays."""
    merged = dict(current)
    for key, value in chosen.items():
        if value == TUNABLE_DEFAULTS[key]:
            merged.pop(key, None)
        else:
            merged[key] = value
    return merged


def _thread_counts(machine: Machine) -> list[int]:
    cpus, cores = machine.num_cpus, machine.num_physical_cores
    counts = {1, cpus, cores, max(1, cores // 2), max(1, cores // 4), max(1, cores - 1)}
    if cpus > 8:
        counts.discard(1)
    return sorted(counts)


def _candidate(threads: int, *, spinning: str = "1", block_base: str = "0") -> Candidate:
    name = f"threads={threads} spinning={spinning}"
    if block_base != "0":
        name += f" block_base={block_base}"
    options = {THREADS: threads, SPINNING: spinning, BLOCK_BASE: block_base}
    return Candidate(name=name, options=options)
