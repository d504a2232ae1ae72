"""What tuning measured and did, as data, as text and as tune.json."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import Any

from ._machine import Machine
from ._trials import OBJECTIVE, Trial

__all__ = ["TuneReport"]


@dataclass(frozen=True, kw_only=True)
class TuneReport:
    """The outcome of tuning.

    changed: genai_config.json was (or, in a dry run, would be) rewritten.
    prefill_gain, decode_gain: winner over the folder as it was, medians of the confirming pairs,
    which choose nothing and so aren't flattered; 1.0 where nothing changes.
    before, after: the decoder's session options.
    """

    folder: str
    changed: bool
    dry_run: bool
    chosen: str
    prefill_gain: float
    decode_gain: float
    before: dict[str, Any]
    after: dict[str, Any]
    trials: tuple[Trial, ...]
    prompt_tokens: int
    new_tokens: int
    seconds: float
    machine: Machine
    measured_at: str
    objective: str = OBJECTIVE

    @property
    def disturbed(self) -> bool:
        """Did others keep the machine busy during a measurement?"""
        return any(speed.disturbed for trial in self.trials for speed in trial.speeds)

    def to_json(self) -> dict[str, Any]:
        """Plain data: what tune.json holds."""
        return {**asdict(self), "disturbed": self.disturbed}

    def to_text(self) -> str:
        """A table of medians in tokens a second, and what was done."""
        lines = [
            f"{'stage':9}{'session options':32}{'prefill':>9}{'decode':>9}{'score':>8}",
            *(_row(trial) for trial in self.trials),
            "",
            f"{self.prompt_tokens} prompt and {self.new_tokens} new tokens, {self.seconds:.0f} s.",
            f"Score: {self.objective}.",
            f"Machine: {self.machine.to_text()}.",
            self._verdict(),
        ]
        if self.disturbed:
            lines.append("Other programs were busy meanwhile (*): for a surer choice tune again.")
        return "\n".join(lines)

    def _verdict(self) -> str:
        if not self.changed:
            return "The folder as it is is the best: nothing was changed."
        changes = ", ".join(
            f"{key}: {self.before.get(key, 'unset')} -> {self.after.get(key, 'unset')}"
            for key in sorted(set(self.before) | set(self.after))
            if self.before.get(key) != self.after.get(key)
        )
        return (
            f"{'Would change (dry run)' if self.dry_run else 'Changed'} {changes}: "
            f"prefill {self.prefill_gain:.2f} and decode {self.decode_gain:.2f} times as fast."
        )


def _row(trial: Trial) -> str:
    head = f"{trial.stage:9}{trial.name:32}"
    if trial.failed:
        return f"{head}  failed: {trial.failed}"
    quiet = [speed for speed in trial.speeds if not speed.disturbed] or trial.speeds
    prefill = statistics.median(speed.prefill for speed in quiet)
    decode = statistics.median(speed.decode for speed in quiet)
    mark = "*" * (len(quiet) < len(trial.speeds) or any(speed.disturbed for speed in quiet))
    return f"{head}{prefill:9.1f}{decode:9.1f}{trial.score:8.3f}{mark}"
