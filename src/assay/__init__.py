"""assay: a Hugging Face language model in, a verified runtime folder out.

    import assay
    assay.export("SmolLM2-135M", "smollm2-int4", precision="int4")
    assay.verify("smollm2-int4", "SmolLM2-135M").status

Functions load what they need on first use, so that `import assay` stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from assay.version import __version__

if TYPE_CHECKING:
    from assay.checkpoint import open_checkpoint
    from assay.diagnosis import diagnose_folder as diagnose
    from assay.errors import AssayError
    from assay.graph import ExportOptions
    from assay.pipeline import export
    from assay.runtime import bench, generate, tune
    from assay.spec import (
        find_model_type,
        get_expert_linear_names,
        get_experts_list,
        get_spec,
        get_specs,
        group_expert_tensors,
        is_moe,
        list_all_possible,
        match_moe_block,
        observed_expert_layout,
        sync_moe_gate_up_amax,
    )
    from assay.verification import verify_folder as verify

__all__ = [
    "AssayError",
    "ExportOptions",
    "__version__",
    "bench",
    "diagnose",
    "export",
    "find_model_type",
    "generate",
    "get_expert_linear_names",
    "get_experts_list",
    "get_spec",
    "get_specs",
    "group_expert_tensors",
    "is_moe",
    "list_all_possible",
    "match_moe_block",
    "observed_expert_layout",
    "open_checkpoint",
    "sync_moe_gate_up_amax",
    "tune",
    "verify",
]

_LOOK_UPS = (
    "find_model_type",
    "get_expert_linear_names",
    "get_experts_list",
    "get_spec",
    "get_specs",
    "group_expert_tensors",
    "is_moe",
    "list_all_possible",
    "match_moe_block",
    "observed_expert_layout",
    "sync_moe_gate_up_amax",
)
_HOMES = {
    **{name: ("assay.spec", name) for name in _LOOK_UPS},
    "AssayError": ("assay.errors", "AssayError"),
    "ExportOptions": ("assay.graph", "ExportOptions"),
    "bench": ("assay.runtime", "bench"),
    "export": ("assay.pipeline", "export"),
    "generate": ("assay.runtime", "generate"),
    "open_checkpoint": ("assay.checkpoint", "open_checkpoint"),
    "tune": ("assay.runtime", "tune"),
    "diagnose": ("assay.diagnosis", "diagnose_folder"),
    "verify": ("assay.verification", "verify_folder"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'assay' has no attribute {name!r}")
    if name in _LOOK_UPS:
        importlib.import_module("assay.models")  # registers every spec
    module, attribute = _HOMES[name]
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
