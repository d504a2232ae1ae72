"""Combinations of packages that don't work, as a table; and requirements that aren't met.

What conflicts is read from the packages' own metadata. The table says what then goes wrong, where
somebody has seen it, and holds what the metadata doesn't say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from assay.environment.packages import Installed, Package
from assay.environment.requirements import Requirement, meets, normalize, parse_requirement

__all__ = ["KNOWN_BAD", "Installs", "Problem", "SharedFolder", "Unmet", "find_problems"]


@dataclass(frozen=True)
class SharedFolder:
    """Two distributions own the same package."""

    package: str


@dataclass(frozen=True)
class Unmet:
    """`distribution` declares a requirement on `required` that what is installed doesn't meet."""

    distribution: str
    required: str


@dataclass(frozen=True)
class Installs:
    """Every requirement is met by what is installed."""

    requirements: tuple[str, ...]


@dataclass(frozen=True)
class KnownBad:
    """A condition, what goes wrong, what to do, and how we know."""

    condition: SharedFolder | Unmet | Installs
    goes_wrong: str
    next_step: str
    source: str


KNOWN_BAD = (
    KnownBad(
        SharedFolder("onnxruntime"),
        "they overwrite each other's files: whichever was installed last decides which execution "
        "providers there are, and removing one breaks the other",
        "Uninstall all of them, then install the one you want.",
        "https://github.com/microsoft/onnxruntime/issues/26996",
    ),
    KnownBad(
        SharedFolder("onnxruntime_genai"),
        "they overwrite each other's files: whichever was installed last decides which devices "
        "there are, and removing one breaks the other",
        "Uninstall all of them, then install the one you want.",
        "their RECORDs list the same files",
    ),
    KnownBad(
        Unmet("onnxruntime-genai", "onnxruntime"),
        "onnxruntime-genai was built for a newer onnxruntime: nobody has tested the pair, and with "
        "an old one it says 'The requested API version is not available'",
        "pip install --upgrade onnxruntime onnxruntime-genai",
        "seen with onnxruntime-genai 0.18.0 on onnxruntime 1.22.1 and 1.23.2",
    ),
    KnownBad(
        Installs(("onnxruntime<1.23",)),
        "it refuses models of opset 23, which is what assay writes ('Current official support for "
        "domain ai.onnx is till opset 22')",
        "pip install --upgrade onnxruntime",
        "seen with onnxruntime 1.22.1; 1.23.2 loads the same model",
    ),
    KnownBad(
        Unmet("numba", "numpy"),
        "`import numba` raises ImportError, and assay can't quantize",
        "pip install --upgrade numba, or install a numpy in the range that it declares.",
        "numba/__init__.py compares the versions before anything else",
    ),
    KnownBad(
        Unmet("transformers", "tokenizers"),
        "`import transformers` raises ImportError, and assay verify has no reference",
        "pip install --upgrade transformers tokenizers",
        "transformers/dependency_versions_check.py",
    ),
    KnownBad(
        Unmet("transformers", "torch"),
        "transformers switches PyTorch off, and assay verify has no reference",
        "pip install --upgrade torch, or an older transformers.",
        "is_torch_available in transformers/utils/import_utils.py",
    ),
    KnownBad(
        Unmet("assay", "transformers"),
        "the judge is written for the range that assay[verify] declares, and tested at both ends",
        "pip install --upgrade 'assay[verify]'",
        "assay's own metadata",
    ),
)
# Extras whose requirements count where the package happens to be there: {distribution: extras}.
_EXTRAS = {"assay": ("genai", "verify"), "transformers": ("torch",)}


@dataclass(frozen=True)
class Problem:
    """A combination that doesn't work. source: how we know."""

    found: str
    goes_wrong: str
    next_step: str
    source: str

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    def to_text(self) -> str:
        """One paragraph."""
        return f"{self.found}: {self.goes_wrong}. {self.next_step} ({self.source})"


def find_problems(
    packages: Sequence[Package], installed: Mapping[str, Sequence[Installed]]
) -> tuple[Problem, ...]:
    """Rows of the table that hold, and requirements that aren't met, each once."""
    problems = [*_find_shared(packages), *_find_unmet(packages, installed)]
    for row in KNOWN_BAD:
        if isinstance(row.condition, Installs):
            found = [
                _find_installed(text, packages, installed) for text in row.condition.requirements
            ]
            if all(found):
                told = " and ".join(f"{one.name} {one.version}" for one in found if one)
                problems.append(_take(row, f"{told} is installed"))
    return tuple(problems)


def _find_shared(packages: Sequence[Package]) -> Iterator[Problem]:
    for row in KNOWN_BAD:
        for package in packages:
            if row.condition == SharedFolder(package.name.imported_as):
                names = [f"{one.name} {one.version}" for one in package.candidates]
                if len(names) > 1:
                    told = f"{' and '.join(names)} are installed together"
                    yield _take(row, f"{told}, in one folder {package.name.imported_as}/")


def _find_unmet(
    packages: Sequence[Package], installed: Mapping[str, Sequence[Installed]]
) -> Iterator[Problem]:
    for package in packages:
        for owner in package.candidates if package.name.is_used else ():
            for requirement, is_optional in _list_requirements(owner):
                have = _find_providers(requirement, packages, installed)
                if any(meets(one.version, requirement) for one in have):
                    continue
                if have or not is_optional:
                    yield _tell_unmet(owner, requirement, have)


def _list_requirements(owner: Installed) -> Iterator[tuple[Requirement, bool]]:
    """What a distribution declares for this machine; True for what only an extra asks for."""
    own = normalize(owner.name)
    for text in owner.distribution.requires or ():
        requirement = parse_requirement(text)
        if requirement is None or normalize(requirement.name) == own:
            continue
        if requirement.applies():
            yield requirement, False
        elif any(requirement.applies(extra) for extra in _EXTRAS.get(own, ())):
            yield requirement, True


def _find_providers(
    requirement: Requirement,
    packages: Sequence[Package],
    installed: Mapping[str, Sequence[Installed]],
) -> Sequence[Installed]:
    """What is installed under a requirement's name, or provides the same package."""
    for package in packages:
        if package.name.matches(requirement.name) and package.candidates:
            return package.candidates
    return installed.get(normalize(requirement.name), ())[:1]


def _tell_unmet(owner: Installed, requirement: Requirement, have: Sequence[Installed]) -> Problem:
    there = " and ".join(f"{one.name} {one.version}" for one in have)
    found = f"{owner.name} {owner.version} needs {requirement.to_text()}, and " + (
        f"{there} is installed" if there else f"no {requirement.name} is installed"
    )
    condition = Unmet(normalize(owner.name), normalize(requirement.name))
    for row in KNOWN_BAD:
        if row.condition == condition:
            return _take(row, found)
    return Problem(
        found,
        "what the package declares isn't met, so nobody has tested it so",
        f"pip install '{requirement.to_text()}'",
        f"the metadata of {owner.name}",
    )


def _find_installed(
    text: str, packages: Sequence[Package], installed: Mapping[str, Sequence[Installed]]
) -> Installed | None:
    requirement = parse_requirement(text)
    assert requirement is not None
    have = _find_providers(requirement, packages, installed)
    return next((one for one in have if meets(one.version, requirement)), None)


def _take(row: KnownBad, found: str) -> Problem:
    return Problem(found, row.goes_wrong, row.next_step, row.source)
