"""Why a verdict is what it is, in a sentence, and what to do next: by which check failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from assay.reports.bounds import list_held
from assay.reports.check_names import describe_check
from assay.reports.numbers import count
from assay.reports.results import list_checks

__all__ = ["list_notes", "tell_next_step", "tell_reason"]

Check = Mapping[str, Any]

# The first row that fits speaks: outcomes, then names, the earlier stage of the way first.
_BY_OUTCOME = {
    "encoding_fault": "The packed tensors marked below decode to something else than the original: "
    "look at how scales, zero points and nibbles were written, and export again.",
    "reference_overflows_float16": "The model can't be run in float16. Export it in bf16 or fp32.",
    "runtime_error": "The runtime refused the folder: its words stand below, beside the check.",
    "RuntimeFolderError": "The folder can't be loaded: what is wrong stands beside the check.",
}
_BY_NAME = {
    "loads": "The folder can't be loaded: what is wrong stands beside the check.",
    "weights": "Look at the packed tensors at the top of the ranking: they don't decode to the "
    "original within their grid.",
    "prefill": "Look at the layers: where relL2 leaves the noise, the error enters. Then at the "
    "positions: an error that grows with the position points to rope or the mask.",
    "decode": "The whole prompt in one pass is right, so look at how keys and values are cached "
    "and at the positions of later tokens.",
    "window": "The rest is right, so look at the window of the attention.",
    "left_padded_batch": "The rest is right, so look at the mask and the position ids of padded "
    "rows.",
    "as_shipped": "The graph is right up to its last step, so look at how it picks the last "
    "position.",
    "end_to_end_prefill": "Use more bits, smaller groups or zero points.",
    "genai": "Run the folder in onnxruntime-genai and compare its `genai_config.json` with the "
    "model's config.",
    "tokenizer": "Copy the reference's tokenizer files into the folder.",
    "chat_template": "Copy the reference's chat template into the folder.",
    "end_tokens": "Put the missing ids into `eos_token_id` of `genai_config.json`.",
}
_UNJUDGED = {
    "window": "Judge it again with a longer prompt: `assay verify FOLDER -r MODEL -n TOKENS`.",
    "weights": "Give the checkpoint that the folder was made from as the reference.",
    "reference": "Mend what stands beside the check, then judge the folder again.",
}
_NUM_NAMED = 4
_PASS = (
    "The folder can be used. Its verdict holds as long as its files don't change: "
    "`assay verify FOLDER --certificate` tells."
)


def tell_reason(status: str, checks: Sequence[Check]) -> str:
    """One plain sentence."""
    if status == "pass":
        counted = [check for check in checks if isinstance(check.get("passed"), bool)]
        return f"The folder computes what the reference computes: {_all_passed(len(counted))}."
    if status == "fail":
        return _tell_failed(checks)
    open_checks = _list_open(checks)
    if not open_checks:
        return "Nothing could be judged."
    first = open_checks[0]
    why = _first_line(first).rstrip(".")
    named = describe_check(str(first.get("name"))).plain
    more = f", and {count(len(open_checks) - 1, 'more check')}" if len(open_checks) > 1 else ""
    start = "Nothing failed, but one thing could not be judged"
    return f"{start}: {named}{more}{f' ({why})' if why else ''}."


def tell_next_step(status: str, checks: Sequence[Check]) -> str:
    """What to do now, or ""."""
    if status == "pass":
        return _PASS
    if status == "unjudged":
        names = _list_bases(_list_open(checks))
        found = next((text for name, text in _UNJUDGED.items() if name in names), "")
        return found or "Mend what stands beside the open check, then judge the folder again."
    failed = [check for check in checks if check.get("passed") is False]
    outcomes = {str(check.get("outcome")) for check in failed}
    names = _list_bases(failed)
    by_outcome = (text for outcome, text in _BY_OUTCOME.items() if outcome in outcomes)
    by_name = (text for name, text in _BY_NAME.items() if name in names)
    default = "Look at the numbers of the failed check below."
    return next(by_outcome, None) or next(by_name, default)


def list_notes(verdict: Mapping[str, Any]) -> list[str]:
    """What a reader must know although it didn't decide: named ends of checks that didn't fail."""
    notes = []
    for check in list_checks(verdict):
        name = describe_check(str(check.get("name")))
        told = str(check.get("detail") or "").strip()
        unproved = name.base == "weights" and check.get("passed") is None
        if told and check.get("passed") is not False and (check.get("outcome") or unproved):
            notes.append(f"{name.plain.capitalize()}: {told}" if name.title[0].isupper()
                         else f"{name.plain}: {told}")  # fmt: skip
    return notes


def _all_passed(number: int) -> str:
    return "the one check that counts passed" if number == 1 else f"all {number} checks passed"


def _list_open(checks: Sequence[Check]) -> list[Check]:
    return [c for c in checks if c.get("passed") is None and c.get("required", True)]


def _list_bases(checks: Sequence[Check]) -> set[str]:
    """The checks' names without prompt and without the part of the proof; the end result keeps it,
    for it asks something else.
    """
    bases = (describe_check(str(check.get("name"))).base for check in checks)
    return {base.removeprefix("decoded_") for base in bases}


def _tell_failed(checks: Sequence[Check]) -> str:
    """How many failed and which, and the first number that lies beyond its bound."""
    failed = [check for check in checks if check.get("passed") is False]
    counted = [check for check in checks if isinstance(check.get("passed"), bool)]
    names = [describe_check(str(check.get("name"))).plain for check in failed]
    more = [f"and {len(names) - _NUM_NAMED} more"] if len(names) > _NUM_NAMED else []
    told = f"{len(failed)} of {count(len(counted), 'check')} failed"
    told += f": {', '.join([*names[:_NUM_NAMED], *more])}." if names else "."
    for check, name in zip(failed, names, strict=True):
        for held in list_held(check):
            if held.ratio is not None and held.ratio > 1:
                return f"{told} In {name}, {held.name} is {held.value}, allowed is {held.allowed}."
    return f"{told} {_first_line(failed[0])}" if failed else told


def _first_line(check: Check) -> str:
    lines = str(check.get("detail") or "").strip().splitlines()
    return lines[0] if lines else ""
