"""Interpreter, machine and packages, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.reports.markup import Content, name_code, tag
from assay.reports.section import Section, list_of_mappings
from assay.reports.tables import fact_list, simple_table

__all__ = ["find_environment", "list_warnings", "show_environment"]

_FACTS = (
    ("Python", "python"),
    ("Interpreter", "executable"),
    ("System", "platform"),
    ("Machine", "machine"),
    ("Processor", "processor"),
    ("Working directory", "working_directory"),
)


def show_environment(verdict: Mapping[str, Any]) -> Section | None:
    """The fullest account of the environment that the dictionary holds."""
    found = find_environment(verdict)
    if not found:
        return None
    packages = found.get("packages")
    if not isinstance(packages, Mapping):
        flat = {k: v for k, v in found.items() if k not in dict(_FACTS).values()}
        packages = {k: {"version": v} for k, v in flat.items() if isinstance(v, str)}
    facts: list[tuple[str, Content]] = [(term, _text(found.get(key))) for term, key in _FACTS]
    features = found.get("cpu_features")
    if isinstance(features, (list, tuple)):
        facts.append(("Vector extensions", ", ".join(str(name) for name in features)))
    warnings = list_warnings(verdict)
    body: list[Content] = [
        tag("ul", [tag("li", text) for text in warnings], class_="warnings") if warnings else None,
        fact_list(facts),
        _show_packages(packages, _find_shadows(found)) if packages else None,
    ]
    lead = "What the verdict depends on besides the files."
    return Section("environment", "Environment", lead, body)


def find_environment(verdict: Mapping[str, Any]) -> Mapping[str, Any]:
    """The verdict's environment, or the certificate's where that tells more."""
    certificate = verdict.get("certificate")
    own = verdict.get("environment")
    kept = certificate.get("environment") if isinstance(certificate, Mapping) else None
    candidates = [one for one in (own, kept) if isinstance(one, Mapping) and one]
    full = [one for one in candidates if isinstance(one.get("packages"), Mapping)]
    return (full or candidates or [{}])[0]


def list_warnings(verdict: Mapping[str, Any]) -> list[str]:
    """What is wrong with the environment: shadowed packages and combinations known to be bad."""
    found = find_environment(verdict)
    given = found.get("warnings")
    told = [str(text) for text in given] if isinstance(given, (list, tuple)) else []
    for stray in list_of_mappings(found.get("strays")):
        if stray.get("effect") == "shadows":
            told.append(f"{stray.get('path')}: {stray.get('found')}. {stray.get('next_step')}")
    for problem in list_of_mappings(found.get("problems")):
        told.append(f"{problem.get('found')}: {problem.get('goes_wrong')}. "
                    f"{problem.get('next_step')}")  # fmt: skip
    return list(dict.fromkeys(told))


def _find_shadows(environment: Mapping[str, Any]) -> dict[str, str]:
    strays = list_of_mappings(environment.get("strays"))
    return {
        str(s.get("package")): str(s.get("path")) for s in strays if s.get("effect") == "shadows"
    }


def _show_packages(packages: Mapping[str, Any], shadows: Mapping[str, str]) -> Content:
    rows = []
    for name, entry in packages.items():
        entry = entry if isinstance(entry, Mapping) else {"version": entry}
        origin = _text(entry.get("origin") or entry.get("imported_from"))
        shadowed = _text(entry.get("shadowed")) or shadows.get(str(name), "")
        version = _text(entry.get("version")) or ("no version" if origin else "not installed")
        where: list[Content] = [name_code(origin) if origin else None]
        if shadowed:
            where.append(tag("strong", "! shadowed: ", shadowed, class_="bad"))
        rows.append((name_code(str(name)), version, where))
    return simple_table("Packages", ("Package", "Version", "Imported from"), rows)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
