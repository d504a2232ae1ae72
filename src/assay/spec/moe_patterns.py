"""Parts that many mixtures of experts have in common, with the usual names filled in."""

from __future__ import annotations

from typing import Any

from assay.spec.experts import Experts, Router, RouterGroups, SharedExpert
from assay.spec.markers import key, rule, when
from assay.spec.moe import FUSED, FUSED_TRANSPOSED, ITERABLE, ExpertFiles, ExpertLayout
from assay.spec.resolve import Context
from assay.spec.vocabulary import Linear

__all__ = [
    "FUSED_NAMES",
    "GATE_UP",
    "ITERABLE_THEN_FUSED",
    "LLAMA_NAMES",
    "MIXTRAL_NAMES",
    "ONLY_FUSED",
    "UNGATED",
    "W1_W3",
    "W_SHARED",
    "by_layer_or_same",
    "experts",
    "fused_files",
    "gated_shared",
    "per_expert_files",
    "per_expert_or_fused",
    "shared",
    "sigmoid_router",
    "softmax_router",
    "times",
]

LLAMA_NAMES = ("gate_proj", "up_proj", "down_proj")
MIXTRAL_NAMES = ("w1", "w3", "w2")
FUSED_NAMES = ("gate_up_proj", "down_proj")
GATE_UP = ("gate_proj", "up_proj")
W1_W3 = ("w1", "w3")

# transformers 4 had a module for each expert; 5 fuses them as it loads.
ITERABLE_THEN_FUSED = (("4.57.0", ITERABLE), ("5.0.0", FUSED))
ONLY_FUSED = (("5.24.0", FUSED),)
UNGATED = ExpertLayout(kind="fused", has_gate=False)

# Files that call the shared experts' linears w1, w3 and w2.
W_SHARED = tuple(
    (f"mlp.shared_experts.{module}", f"{{block}}shared_experts.{file}")
    for module, file in zip(LLAMA_NAMES, MIXTRAL_NAMES, strict=True)
)


def softmax_router(**facts: Any) -> Router:
    """Softmax over all experts, then the best top_k; facts are fields of Router to change."""
    usual: dict[str, Any] = {
        "linear": Linear(name="gate"),
        "top_k": key("num_experts_per_tok"),
        "score": "softmax",
    }
    return Router(**{**usual, **facts})


def sigmoid_router(**facts: Any) -> Router:
    """DeepSeek-V3's: float32 sigmoids, a bias for the choice, groups, sums normalized, scaled."""
    usual: dict[str, Any] = {
        "linear": Linear(name="gate"),
        "top_k": key("num_experts_per_tok"),
        "score": "sigmoid",
        "choice_bias": "gate.e_score_correction_bias",
        "groups": RouterGroups(count=key("n_group"), keep=key("topk_group")),
        "normalize": when(key("norm_topk_prob"), "sum", "none"),
        "normalize_eps": 1e-20,
        "scale": key("routed_scaling_factor"),
        "math": "float32",
    }
    return Router(**{**usual, **facts})


def experts(count: str, width: str = "moe_intermediate_size", **facts: Any) -> Experts:
    """Gated experts; count and width name config keys."""
    usual: dict[str, Any] = {"activation": key("hidden_act")}
    return Experts(count=key(count), width=key(width), **{**usual, **facts})


def by_layer_or_same(name: str) -> Any:
    """A count that the config gives for all layers, or in a list for each."""

    def count(context: Context) -> int:
        value = context.config.get(name)
        if isinstance(value, (list, tuple)):
            assert context.layer_index is not None
            return int(value[context.layer_index])
        return context.config.get_size(name)

    count.__name__ = name
    return rule(count)


def times(first: str, second: str) -> Any:
    """The product of two config keys, such as a width and how many experts share it."""

    def product(context: Context) -> int:
        return context.config.get_size(first) * context.config.get_size(second)

    product.__name__ = f"{first} * {second}"
    return rule(product)


def shared(name: str, width: Any, **facts: Any) -> SharedExpert:
    """A shared MLP whose output is added; a width that is a text names a config key."""
    return SharedExpert(name=name, width=key(width) if isinstance(width, str) else width, **facts)


def gated_shared() -> SharedExpert:
    """Qwen2-MoE's: a shared expert times the sigmoid of its own gate."""
    return shared(
        "shared_expert",
        "shared_expert_intermediate_size",
        gate=Linear(name="shared_expert_gate"),
    )


def per_expert_files(
    block: str = "mlp",
    names: tuple[str, str, str] = LLAMA_NAMES,
    *,
    renames: tuple[tuple[str, str], ...] = (),
    module: str | None = None,
) -> ExpertFiles:
    """One tensor for each expert and projection. names: gate, up, down.

    block: the block's path in files; module: where the module's path differs, the block's other
    tensors are renamed too.
    """
    stem = f"{block}." if block else ""
    gate, up, down = (f"{stem}experts.{{expert}}.{name}.weight" for name in names)
    renames = tuple((name, file.replace("{block}", stem)) for name, file in renames)
    if module is not None:
        renames = (*renames, (module, block))
    return ExpertFiles(gate_up=(gate, up), down=down, renames=renames)


def per_expert_or_fused(
    block: str = "mlp", names: tuple[str, str, str] = LLAMA_NAMES
) -> tuple[ExpertFiles, ...]:
    """One tensor for each expert and projection, as published; or fused, as transformers 5 has it.

    block: the block's path, the same in both.
    """
    return per_expert_files(block, names), fused_files(block)


def fused_files(block: str = "mlp", *, transposed: bool = False, **facts: Any) -> ExpertFiles:
    """The fused parameters as transformers 5 names them."""
    stem = f"{block}.experts" if block else "experts"
    layout = facts.pop("layout", FUSED_TRANSPOSED if transposed else FUSED)
    return ExpertFiles(
        gate_up=(f"{stem}.gate_up_proj",), down=f"{stem}.down_proj", layout=layout, **facts
    )
