"""Which session options are tried, and how the chosen ones go into a folder's."""

from __future__ import annotations

import dataclasses

import pytest

from assay.runtime import describe_machine
from assay.runtime._candidates import THREADS, list_thread_candidates, list_variants, merge_options

SPINNING = "session.intra_op.allow_spinning"
BLOCK_BASE = "session.dynamic_block_base"


@pytest.mark.parametrize(
    ("num_cpus", "num_cores", "expected"),
    [
        (1, 1, [1]),
        (2, 2, [1, 2]),
        (4, 2, [1, 2, 4]),
        (8, 8, [1, 2, 4, 7, 8]),
        (32, 16, [4, 8, 15, 16, 32]),
    ],
)
def test_thread_counts_end_at_the_processors(num_cpus, num_cores, expected) -> None:  # proves: B11
    machine = dataclasses.replace(
        describe_machine(), num_cpus=num_cpus, num_physical_cores=num_cores
    )
    assert [c.options[THREADS] for c in list_thread_candidates(machine)] == expected


def test_variants_keep_the_threads() -> None:  # proves: B11
    machine = dataclasses.replace(describe_machine(), num_cpus=4, num_physical_cores=4)
    best = list_thread_candidates(machine)[-1]
    variants = list_variants(best)
    assert {candidate.options[THREADS] for candidate in variants} == {4}
    assert len({candidate.name for candidate in [best, *variants]}) == len(variants) + 1


def test_one_thread_has_no_variants() -> None:  # proves: B11
    machine = dataclasses.replace(describe_machine(), num_cpus=1, num_physical_cores=1)
    assert list_variants(list_thread_candidates(machine)[0]) == []


def test_merging_keeps_what_is_not_tuned_and_drops_defaults() -> None:  # proves: B11
    before = {"log_id": "kept", BLOCK_BASE: "4", THREADS: 7, "session.other": "1"}
    after = merge_options(before, {THREADS: 2, SPINNING: "1", BLOCK_BASE: "0"})
    assert after == {"log_id": "kept", THREADS: 2, "session.other": "1", SPINNING: "1"}
    assert before[THREADS] == 7
    # negative control: a value that isn't the default stays
    assert merge_options(before, {BLOCK_BASE: "16"})[BLOCK_BASE] == "16"
