"""docs/registry.md says what every field is and who reads it. proves: S2, S3, S4"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

import assay
from assay.spec.model_spec import RuntimeSpec, WeightsSpec
from tests.registry.facts import SECTION_CLASSES

TEXT = (Path(__file__).parents[2] / "docs/registry.md").read_text(encoding="utf-8")
READERS = {
    "look-ups", "files", "resolve", "graph", "quantization", "runtime", "doctor", "checks",
}  # fmt: skip
CLASSES = (*SECTION_CLASSES, WeightsSpec, RuntimeSpec)


def read_tables(text: str) -> dict[str, dict[str, tuple[str, str]]]:
    """Class -> field -> (meaning, readers)."""
    tables = {}
    for part in text.split("\n### ")[1:]:
        name, _, rest = part.partition("\n")
        rows = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|$", rest, re.MULTILINE)
        tables[name] = {field: (meaning, readers) for field, meaning, readers in rows}
    return tables


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_field_is_documented(cls: type) -> None:
    """Each once, none that isn't there. Control: a text without the class's table."""
    fields = {field.name for field in dataclasses.fields(cls)}
    table = read_tables(TEXT)[cls.__name__]
    assert table.keys() == fields
    for meaning, readers in table.values():
        assert len(meaning) > 5
        assert set(readers.split(", ")) <= READERS
    without = TEXT.replace(f"### {cls.__name__}\n", "")
    assert read_tables(without).get(cls.__name__) is None


def test_every_look_up_is_exported() -> None:
    """The functions of the page are assay's own. Control: one that isn't there."""
    named = set(re.findall(r"`(\w+)\([\w, ]*\)`", TEXT.split("## What a section")[0]))
    assert len(named) >= 10
    assert [name for name in named if not hasattr(assay, name)] == []
    assert not hasattr(assay, "get_no_spec")


def test_the_example_of_the_page_is_whole() -> None:
    """It registers, and group_expert_tensors reads its files. Control: without the type."""
    code = TEXT.split("```python\n")[1].split("```")[0]
    names: dict[str, object] = {}
    imports = (
        "from assay.spec import ConfigSpec, ModelSpec\nfrom assay.spec.markers import key, when\n"
        "from assay.spec.moe import MoESpec\nfrom assay.spec.moe_patterns import *\n"
        "found = []\nregister = found.append\n"
    )
    exec(imports + code, names)
    from tests.registry.files_check import registered
    from tests.registry.published import E, H, I, L

    (spec,) = names["found"]  # type: ignore[misc]
    config = {
        "model_type": "made_up", "num_hidden_layers": L, "hidden_size": H,
        "num_experts": E, "moe_intermediate_size": I,
    }  # fmt: skip
    tensors = {
        f"model.layers.{layer}.mlp.experts.{expert}.{name}.weight": (
            "BF16",
            (H, I) if name == "down_proj" else (I, H),
        )
        for layer in range(L)
        for expert in range(E)
        for name in ("gate_proj", "up_proj", "down_proj")
    }
    with registered(spec):
        assert len(assay.group_expert_tensors(config, tensors).groups) == L * E * 3
    with pytest.raises(assay.AssayError):
        assay.group_expert_tensors(config, tensors)
