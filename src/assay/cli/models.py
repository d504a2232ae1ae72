"""assay models: the registry."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from assay.cli.output import add_json_flag, print_json

if TYPE_CHECKING:
    from assay.spec import ModelSpec

__all__ = ["add_parser", "run"]


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser("models", help="list the registered model types, or show one")
    actions = parser.add_subparsers(dest="action", required=True, metavar="list|show")
    listing = actions.add_parser("list", help="all model types")
    add_json_flag(listing)
    showing = actions.add_parser("show", help="one spec as a data sheet")
    showing.add_argument("model_type")
    add_json_flag(showing)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """List the registry or show a spec."""
    import assay.models  # noqa: F401  (registers every spec)
    from assay.spec import get_broken_types, get_spec, get_specs

    if args.action == "list":
        rows = [
            {
                "model_type": spec.model_type,
                "architectures": ", ".join(spec.architectures),
                "exports": can_export(spec),
            }
            for spec in get_specs()
        ]
        broken: list[dict[str, str]] = [
            {"model_type": name, "where": error.where, "found": error.found}
            for name, error in get_broken_types().items()
        ]
        if args.json:
            print_json({"models": rows, "broken": broken})
        else:
            for row in rows:
                what = "exports" if row["exports"] else "facts  "
                print(f"{row['model_type']:<22} {what}  {row['architectures']}")
            for fault in broken:
                print(f"{fault['model_type']:<22} broken   {fault['where']}: {fault['found']}")
        return 0
    spec = get_spec(args.model_type)
    sheet = {"exports": can_export(spec), **describe(spec)}
    if args.json:
        print_json(sheet)
    else:
        _print_sheet(sheet, "")
    return 0


def can_export(spec: ModelSpec) -> bool:
    """Whether a type has a decoder section, or a text part that has; else it is facts alone."""
    return spec.decoder_spec is not None or spec.text_part is not None


def describe(value: Any) -> Any:
    """Return a spec as plain data; markers become short text."""
    from assay.spec.markers import ByLayer, ByLayerType, Derived, Key, OrElse, When

    if isinstance(value, Key):
        return f"config.{value.name}"
    if isinstance(value, Derived):
        return f"rule {value.name}"
    if isinstance(value, OrElse):
        return f"{describe(value.first)} or else {describe(value.second)}"
    if isinstance(value, When):
        return {
            f"if {describe(value.condition)}": describe(value.then),
            "otherwise": describe(value.otherwise),
        }
    if isinstance(value, ByLayer):
        return f"entry of the layer in {describe(value.values)}"
    if isinstance(value, ByLayerType):
        return {f"{name} layers": describe(item) for name, item in value.values}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: describe(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if getattr(value, field.name) is not None
        }
    if isinstance(value, Mapping):
        return {str(name): describe(item) for name, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [describe(item) for item in value]
    return value


def _print_sheet(value: Any, indent: str) -> None:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if isinstance(item, (dict, list)) and item:
            print(f"{indent}{key}:")
            _print_sheet(item, indent + "  ")
        elif item not in ({}, []):
            print(f"{indent}{key}: {item}")
