"""The exhaustive table of the registry: what every spec is expected to say, in `expected.txt`.

    python -m tests.registry.expected

writes the table anew; look at every changed line before you commit it.

The first rows are the classes of facts with their fields' defaults. Then comes one row for each
registered spec: the names of the type, the config defaults that its mixture of experts reads, its
moe_spec and export_spec. What isn't written is the class's default.
"""

from __future__ import annotations

import functools
from pathlib import Path

import assay.models  # noqa: F401  (registers every spec)
from assay.spec import ModelSpec, get_specs
from tests.registry.facts import SECTION_CLASSES, describe_class, describe_spec

__all__ = ["FILE", "check_expected", "describe_registry", "read_rows"]

FILE = Path(__file__).parent / "expected.txt"


def describe_registry() -> dict[str, str]:
    """Every row, by its name: `class X` or a model type."""
    classes = {f"class {cls.__name__}": describe_class(cls) for cls in SECTION_CLASSES}
    return classes | {spec.model_type: describe_spec(spec) for spec in get_specs()}


@functools.cache
def read_rows() -> dict[str, str]:
    """The rows of the file."""
    rows = {}
    for row in FILE.read_text(encoding="utf-8").split("\n["):
        name, _, facts = row.removeprefix("[").partition("]\n")
        rows[name] = facts.strip("\n") + "\n"
    return rows


def check_expected(spec: ModelSpec) -> list[str]:
    """The lines in which a spec and its row differ."""
    expected = set(read_rows().get(spec.model_type, "").splitlines())
    found = set(describe_spec(spec).splitlines())
    return [f"not expected: {line}" for line in sorted(found - expected)] + [
        f"expected: {line}" for line in sorted(expected - found)
    ]


if __name__ == "__main__":
    rows = describe_registry().items()
    FILE.write_text("\n".join(f"[{name}]\n{facts}" for name, facts in rows), encoding="utf-8")
