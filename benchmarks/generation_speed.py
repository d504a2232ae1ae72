"""How fast the folders run: prefill and decode in onnxruntime-genai, interleaved."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from processes import name_load
from results import make_table, median_of, ratio_of_pairs, spread_of

from assay.runtime import TuneReport, bench, read_folder, tune, wait_until_quiet

# Requirement: decode and prefill over the builder's folder, at least.
AS_IT_COMES_LIMITS = (1.4, 1.8)
SAME_OPTIONS_LIMITS = (1.0, 1.1)


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A folder, with session options laid over its own."""

    name: str
    folder: Path
    session_options: dict[str, Any]


def tune_copy(folder: Path) -> tuple[Path, TuneReport]:
    """Tune a copy of a folder, so that it can be measured beside the folder as exported."""
    copy = folder.with_name(f"{folder.name}-tuned")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    report = tune(copy, progress=lambda done, total, name: print(f"  tune {done}/{total} {name}"))
    return copy, report


def compare_speeds(
    ours: Path,
    theirs: Path,
    floats: list[tuple[str, Path]],
    *,
    num_rounds: int,
    prompt_tokens: int,
    new_tokens: int,
) -> tuple[dict[str, Any], str]:
    """Tune ours, then measure it beside the builder's folder as it comes and with our options.

    floats: further folders to list, as they come.
    """
    tuned, tune_report = tune_copy(ours)
    options = _tuned_options(tuned)
    variants = [
        Variant(name="assay int4, tuned", folder=tuned, session_options={}),
        Variant(name="assay int4, as exported", folder=ours, session_options={}),
        Variant(name="genai builder int4, as it comes", folder=theirs, session_options={}),
        Variant(name="genai builder int4, our options", folder=theirs, session_options=options),
        *(Variant(name=name, folder=folder, session_options={}) for name, folder in floats),
    ]
    values = _measure(variants, num_rounds, prompt_tokens, new_tokens)
    rows = [
        [
            name,
            f"{median_of(numbers['prefill']):.0f}",
            spread_of(numbers["prefill"]),
            f"{median_of(numbers['decode']):.1f}",
            spread_of(numbers["decode"]),
            f"{median_of(numbers['time to first token']):.3f}",
            f"{median_of(numbers['load']):.2f}",
            f"{median_of(numbers['peak memory']):.0f}",
        ]
        for name, numbers in values.items()
    ]
    head = ["folder", "prefill tok/s", "range", "decode tok/s", "range"]
    head += ["first token s", "load s", "peak MiB"]
    names = [variant.name for variant in variants]
    as_it_comes = _gains(values[names[0]], values[names[2]])
    same_options = _gains(values[names[0]], values[names[3]])
    text = "\n".join(
        [
            make_table(head, rows),
            "",
            _sentence("the builder's folder as it comes", as_it_comes, AS_IT_COMES_LIMITS),
            _sentence("the same with our session options", same_options, SAME_OPTIONS_LIMITS),
            f"Session options found by tuning: {options}.",
            f"{prompt_tokens} prompt and {new_tokens} new tokens, medians of {num_rounds} "
            "interleaved rounds, every run a fresh process after one warm-up; gains are medians "
            "of the rounds' ratios. int4 on both sides: group size 32, symmetric, head and tied "
            "embedding int4, accuracy level 4. Difference by design: assay's graph computes the "
            "logits of the last position only.",
        ]
    )
    data = {
        "values": values,
        "gain_over_builder": as_it_comes,
        "gain_over_builder_same_options": same_options,
        "tuned_options": options,
        "tune": tune_report.to_json(),
    }
    return {**data, **name_load()}, text


def _measure(
    variants: list[Variant], num_rounds: int, prompt_tokens: int, new_tokens: int
) -> dict[str, dict[str, list[float]]]:
    values: dict[str, dict[str, list[float]]] = {variant.name: {} for variant in variants}
    for number in range(num_rounds):
        for variant in variants if number % 2 == 0 else reversed(variants):
            wait_until_quiet(20.0)
            report = bench(
                variant.folder,
                prompt_tokens=prompt_tokens,
                new_tokens=new_tokens,
                runs=1,
                session_options=variant.session_options,
            )
            for summary in report.summaries:
                values[variant.name].setdefault(summary.name, []).append(summary.median)
            disturbed = values[variant.name].setdefault("disturbed", [])
            disturbed.append(float(report.num_disturbed))
            print(f"  {variant.name}: {_short(values[variant.name])}", flush=True)
    return values


def _tuned_options(folder: Path) -> dict[str, Any]:
    """The session options that decide speed, as the tuned folder has them."""
    options = read_folder(folder).session_options
    return {
        key: value
        for key, value in options.items()
        if key == "intra_op_num_threads" or key.startswith("session.")
    }


def _gains(ours: dict[str, list[float]], theirs: dict[str, list[float]]) -> dict[str, float]:
    return {name: ratio_of_pairs(ours[name], theirs[name]) for name in ("decode", "prefill")}


def _sentence(what: str, gains: dict[str, float], limits: tuple[float, float]) -> str:
    holds = gains["decode"] >= limits[0] and gains["prefill"] >= limits[1]
    return (
        f"assay tuned over {what}: decode {gains['decode']:.2f}, prefill {gains['prefill']:.2f} "
        f"(required {limits[0]} and {limits[1]}: {'holds' if holds else 'FAILS'})."
    )


def _short(numbers: dict[str, list[float]]) -> str:
    note = " (disturbed)" if numbers["disturbed"][-1] else ""
    return f"prefill {numbers['prefill'][-1]:.0f}, decode {numbers['decode'][-1]:.1f}{note}"
