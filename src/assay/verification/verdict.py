"""A verdict: pass, fail or unjudged, with the checks and numbers behind it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from assay.environment import read_environment

__all__ = ["Check", "Status", "Verdict", "reach_verdict"]

Status = Literal["pass", "fail", "unjudged"]
_EXIT_CODES = {"pass": 0, "fail": 1, "unjudged": 2}


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    passed: None when it could not be judged; `detail` then says why.
    bound: what the metrics were held against, by name.
    required: whether a check that could not be judged leaves the whole folder unjudged.
    outcome: a name for a known special end, such as "reference_overflows_float16".
    """

    name: str
    passed: bool | None
    metrics: dict[str, Any] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)
    detail: str = ""
    required: bool = True
    outcome: str = ""


@dataclass(frozen=True)
class Verdict:
    """The judgement of one folder. exit_code: 0 pass, 1 fail, 2 could not judge.

    environment: versions of what took part. evidence: what is shown beside the checks: positions,
    layers, prompts, cost.
    """

    status: Status
    folder: str
    reference: str
    precision: str
    checks: tuple[Check, ...]
    environment: dict[str, str]
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 2 could not judge."""
        return _EXIT_CODES[self.status]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; the key `verdict` holds the status."""
        return {
            "schema": 1,
            "verdict": self.status,
            "exit_code": self.exit_code,
            "folder": self.folder,
            "reference": self.reference,
            "precision": self.precision,
            "checks": [_plain(check.__dict__) for check in self.checks],
            **_plain(self.evidence),
            "environment": self.environment,
        }

    def to_json(self) -> str:
        """The dictionary as JSON; NaN and infinity become null."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False, ensure_ascii=False)

    def to_text(self) -> str:
        """The verdict on the first line, then a line for each check."""
        what = f"{self.folder} ({self.precision}) against {self.reference}"
        lines = [f"{self.status.upper()}  {what}"]
        marks = {True: "pass", False: "FAIL", None: "  - "}
        for check in self.checks:
            numbers = "  ".join(f"{k}={_show(v)}" for k, v in _headline(check).items())
            lines.append(f"  {marks[check.passed]}  {check.name:<22} {numbers}".rstrip())
            if check.detail:
                lines.extend(f"          {line}" for line in check.detail.splitlines())
        return "\n".join(lines)


def reach_verdict(
    checks: Sequence[Check],
    *,
    folder: str,
    reference: str,
    precision: str,
    evidence: dict[str, Any] | None = None,
) -> Verdict:
    """Fail if any check failed; unjudged if a required one couldn't be judged; else pass."""
    status: Status = "pass"
    if any(check.passed is False for check in checks):
        status = "fail"
    elif any(check.passed is None and check.required for check in checks) or not checks:
        status = "unjudged"
    environment = read_environment().to_versions()
    return Verdict(status, folder, reference, precision, tuple(checks), environment, evidence or {})


_SHOWN = (
    "rel_l2",
    "noise",
    "corr",
    "scale",
    "kl_nats_per_token",
    "argmax_mismatches",
    "argmax_share",
    "num_tensors",
    "num_failed",
    "worst_rel_l2",
    "num_tokens",
    "num_agreeing",
    "prefill_rel_l2",
)


def _headline(check: Check) -> dict[str, Any]:
    """The numbers that fit a line, each with the bound it was held against."""
    shown = {k: check.metrics[k] for k in _SHOWN if k in check.metrics}
    if "rel_l2" in shown:
        shown.pop("worst_rel_l2", None)
    shown.update({f"bound_{k}": v for k, v in check.bound.items()})
    return shown


def _show(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not (abs(value) < float("inf")):
        return None
    if hasattr(value, "item") and not isinstance(value, (bool, int, float, str)):
        return _plain(value.item())
    return value
