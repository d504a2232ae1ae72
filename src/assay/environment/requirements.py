"""Requirements as package metadata writes them (PEP 508)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from assay.environment.markers import holds_marker
from assay.environment.versions import holds

__all__ = ["Requirement", "meets", "normalize", "parse_requirement"]

_REQUIREMENT = re.compile(
    r"\s*(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*"
    r"(?P<rest>@[^;]*|\([^)]*\)|[^;]*?)\s*(?:;(?P<marker>.*))?",
    re.DOTALL,
)
_CLAUSE = re.compile(r"\s*(?P<operator>===|~=|==|!=|<=|>=|<|>)\s*(?P<version>[^\s,<>=!~]+)\s*")


@dataclass(frozen=True)
class Requirement:
    """One line of a package's metadata.

    clauses: (operator, version) pairs that must all hold. marker: "" where it always applies.
    """

    name: str
    clauses: tuple[tuple[str, str], ...]
    marker: str

    def applies(self, extra: str = "") -> bool:
        """Is it asked for on this machine, with one extra or with none?

        A marker that can't be read applies to nobody: better silent than wrong.
        """
        return holds_marker(self.marker, extra=extra)

    def to_text(self) -> str:
        """Name and clauses, such as numpy>=1.22,<2.6."""
        return self.name + ",".join(f"{operator}{version}" for operator, version in self.clauses)


def normalize(name: str) -> str:
    """A distribution's name as indexes compare it: onnx_ir and ONNX.IR are onnx-ir."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse_requirement(text: str) -> Requirement | None:
    """Read one `Requires-Dist` value; None where it isn't one."""
    match = _REQUIREMENT.fullmatch(text)
    if match is None:
        return None
    rest = match["rest"].strip().removeprefix("(").removesuffix(")").strip()
    if rest.startswith("@"):
        rest = ""  # a direct address: whatever is installed meets it
    clauses = []
    for part in filter(None, (part.strip() for part in rest.split(","))):
        clause = _CLAUSE.fullmatch(part)
        if clause is None:
            return None
        clauses.append((clause["operator"], clause["version"]))
    return Requirement(match["name"], tuple(clauses), (match["marker"] or "").strip())


def meets(version: str, requirement: Requirement) -> bool:
    """Does an installed version meet every clause? Pre-releases count as versions.

    A version that isn't PEP 440's meets everything: nothing can be said against it.
    """
    return all(holds(version, operator, wanted) for operator, wanted in requirement.clauses)
