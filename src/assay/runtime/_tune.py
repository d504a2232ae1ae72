"""Find the session options that are fastest on this machine and write them into the folder."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ._candidates import Candidate, list_thread_candidates, list_variants, merge_options
from ._folder import CONFIG_NAME, GenaiFolder, read_folder
from ._genai import import_genai
from ._machine import Machine, describe_machine, wait_until_quiet
from ._measure import Speed, check_lengths, measure_child, measure_speed
from ._rewrite import refresh_manifest, replace_file, write_session_options
from ._trials import Trial, compare, is_confirmed, measure_gain, pick_best
from ._tune_report import TuneReport

__all__ = ["TUNE_NAME", "tune"]

TUNE_NAME = "tune.json"
AS_IT_IS = Candidate(name="as it is", options={})
# The confirmed gain that is worth a change: below it, noise decides.
MIN_GAIN = 1.02
# How long to wait for a quiet machine: before one measurement, and in all.
_LONGEST_WAIT_S = 10.0
_PATIENCE_S = 60.0

Progress = Callable[[int, int, str], None]


def tune(
    folder: str | Path,
    *,
    prompt_tokens: int = 256,
    new_tokens: int = 64,
    rounds: int = 3,
    pairs: int = 5,
    repeats: int = 2,
    dry_run: bool = False,
    timeout_s: float = 600.0,
    progress: Progress | None = None,
) -> TuneReport:
    """Measure thread counts, then variants of the best, confirm the winner, and write it.

    Every measurement is a child process of its own; candidates take turns, so that a machine that
    slows down slows all of them. genai_config.json changes only for a gain that `pairs` fresh
    pairs confirm (median of at least 2 %); tune.json beside it keeps what was measured.
    progress: called with (measurements done, expected, what runs now).
    Raises DependencyError without onnxruntime-genai, RuntimeFolderError where the folder as it is
    doesn't run, OutputError where it can't be written; the folder is then as it was.
    """
    found = read_folder(folder)
    prompt_tokens = min(prompt_tokens, max(1, found.context_length - new_tokens))
    check_lengths(found, prompt_tokens, new_tokens)
    import_genai()
    started = time.perf_counter()
    machine = describe_machine()
    measure = _Measure(
        folder=found,
        prompt_tokens=prompt_tokens,
        new_tokens=new_tokens,
        repeats=repeats,
        timeout_s=timeout_s,
        progress=progress or _ignore,
        num_expected=rounds * (len(list_thread_candidates(machine)) + 4) + 2 * pairs + 1,
    )
    trials = _search(machine, measure, rounds, pairs)
    before = found.session_options
    after, gains = _decide(before, trials)
    report = TuneReport(
        folder=str(found.path),
        changed=after != before,
        dry_run=dry_run,
        chosen=trials[-1].name if after != before else AS_IT_IS.name,
        prefill_gain=gains[0],
        decode_gain=gains[1],
        before=before,
        after=after,
        trials=tuple(trials),
        prompt_tokens=prompt_tokens,
        new_tokens=new_tokens,
        seconds=time.perf_counter() - started,
        machine=machine,
        measured_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )
    if not dry_run:
        _write(found, report, measure)
    return report


@dataclass
class _Measure:
    """Measures one candidate in a child process, and counts for the progress bar."""

    folder: GenaiFolder
    prompt_tokens: int
    new_tokens: int
    repeats: int
    timeout_s: float
    progress: Progress
    num_expected: int
    num_done: int = 0
    patience_s: float = _PATIENCE_S

    def __call__(self, candidate: Candidate) -> Speed:
        self.progress(self.num_done, self.num_expected, candidate.name)
        self.patience_s -= wait_until_quiet(min(self.patience_s, _LONGEST_WAIT_S))
        result = measure_child(
            self.folder,
            session_options=candidate.options,
            prompt_tokens=self.prompt_tokens,
            new_tokens=self.new_tokens,
            repeats=self.repeats,
            timeout_s=self.timeout_s,
        )
        self.num_done += 1
        return measure_speed(self.folder, result)


def _search(machine: Machine, measure: _Measure, rounds: int, pairs: int) -> list[Trial]:
    """All trials; the last two are the confirming pairs of the folder as it is and the winner.

    Where no candidate ran at all, only the first comparison is there.
    """
    trials = compare("threads", [AS_IT_IS, *list_thread_candidates(machine)], rounds, measure)
    winner = pick_best(trials[1:])
    if winner is None:
        return trials
    variants = list_variants(winner.candidate)
    if variants:
        compared = compare("variants", [winner.candidate, *variants], rounds, measure)
        trials += compared
        winner = pick_best(compared) or winner
    return trials + compare("confirm", [AS_IT_IS, winner.candidate], pairs, measure)


def _decide(
    before: dict[str, Any], trials: Sequence[Trial]
) -> tuple[dict[str, Any], tuple[float, float]]:
    """The session options to write and the gains in prefill and decode (1.0 for no change)."""
    base, winner = trials[-2:]
    if winner.stage != "confirm" or winner.failed:
        return before, (1.0, 1.0)
    if not is_confirmed(winner, base, min_gain=MIN_GAIN):
        return before, (1.0, 1.0)
    after = merge_options(before, winner.options)
    return after, measure_gain(winner, base) if after != before else (1.0, 1.0)


def _write(folder: GenaiFolder, report: TuneReport, measure: _Measure) -> None:
    """Write tune.json and, where something changes, the config; put all back if that fails."""
    names = (CONFIG_NAME, TUNE_NAME) if report.changed else (TUNE_NAME,)
    files = [folder.path / name for name in names]
    before = [file.read_bytes() if file.is_file() else None for file in files]
    try:
        if report.changed:
            write_session_options(folder.path, report.after)
            measure(AS_IT_IS)  # the file itself, as the next user will load it
        kept = json.dumps(report.to_json(), indent=2, ensure_ascii=False) + "\n"
        replace_file(folder.path / TUNE_NAME, kept.encode("utf-8"))
        refresh_manifest(folder.path, names)
    except BaseException:
        for file, content in zip(files, before, strict=True):
            if content is None:
                file.unlink(missing_ok=True)
            elif file.read_bytes() != content:
                replace_file(file, content)
        raise


def _ignore(done: int, expected: int, name: str) -> None:
    """Where nobody watches."""
