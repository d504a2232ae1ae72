"""The exhaustive table: no spec is added, dropped or changed without its row. proves: S13

    python -m tests.registry.expected

writes it anew, deliberately.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from assay.spec import ModelSpec, get_spec, get_specs
from tests.registry.expected import check_expected, describe_registry, read_rows
from tests.registry.fact_mutants import list_fact_mutants
from tests.registry.facts import SECTION_CLASSES, describe_class


def test_one_row_for_each_registered_spec() -> None:
    """In order, and none for a type that isn't registered. Control: a row less, a row more."""
    rows = list(read_rows())
    assert rows == list(describe_registry())
    assert [name for name in rows if not name.startswith("class ")] == [
        spec.model_type for spec in get_specs()
    ]


@pytest.mark.parametrize("spec", get_specs(), ids=lambda spec: spec.model_type)
def test_a_spec_is_as_expected(spec: ModelSpec) -> None:
    """Fact by fact. Control: test_every_change_shows."""
    assert check_expected(spec) == []


@pytest.mark.parametrize("cls", SECTION_CLASSES, ids=lambda cls: cls.__name__)
def test_defaults_are_as_expected(cls: type) -> None:
    """What a row leaves out is written here. Control: another default gives another line."""
    assert describe_class(cls) == read_rows()[f"class {cls.__name__}"]


@pytest.mark.parametrize("spec", get_specs(), ids=lambda spec: spec.model_type)
def test_every_change_shows(spec: ModelSpec) -> None:
    """Each mutant of a spec differs from its row, but for the name of what computes a value."""
    unseen = [
        mutant.where
        for mutant in list_fact_mutants(spec)
        if mutant.spec is not None
        and mutant.kind != "another result"
        and not check_expected(mutant.spec)
    ]
    assert unseen == []


def test_an_added_spec_needs_a_row() -> None:
    """The control: a type without a row, and one whose row is another's."""
    moe: Any = get_spec("mixtral").moe_spec
    assert check_expected(ModelSpec(model_type="made_up", architectures=("X",), moe_spec=moe))
    assert check_expected(dataclasses.replace(get_spec("mixtral"), model_type="qwen3_moe"))
