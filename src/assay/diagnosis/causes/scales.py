"""What goes wrong between the blocks: multipliers, the final softcap, the head, the wiring."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from assay.diagnosis.hypothesis import (
    Change,
    Hook,
    Hypothesis,
    Variant,
    attribute,
    generalize,
    hooked,
    list_layers,
    list_sites,
    replaced,
    values,
)

if TYPE_CHECKING:
    import torch

__all__ = ["CAUSES", "MULTIPLIERS", "find_multiplier"]

# Name of the attribute, and where it explains an error.
MULTIPLIERS = {
    "embedding_multiplier": "model.embed_tokens",
    "residual_multiplier": "*",
    "logits_scaling": "lm_head",
    "logit_scale": "lm_head",
    "embedding_scale": "model.embed_tokens",
    "lm_head_multiplier": "lm_head",
    "scale_emb": "model.embed_tokens",
}


def find_multiplier(model: torch.nn.Module, name: str) -> list[tuple[Any, float]]:
    """Modules, and the config, that hold a multiplier, with its value."""
    config: Any = model.config
    owners = [*model.modules(), config.get_text_config()]
    found = [(owner, getattr(owner, name, None)) for owner in owners]
    return [(o, float(v)) for o, v in found if isinstance(v, (int, float))]


def place_of(model: torch.nn.Module, name: str) -> str:
    """The module path for which a multiplier's name stands."""
    layers = [path for path, _ in list_layers(model)]
    place = MULTIPLIERS[name]
    return generalize(layers[0]) if place == "*" and layers else place


def _multipliers(model: torch.nn.Module) -> Iterator[Variant]:
    for name in MULTIPLIERS:
        targets: list[tuple[Any, str, Any]] = [
            (owner, name, 1.0) for owner, value in find_multiplier(model, name) if value != 1.0
        ]
        if targets:
            yield Variant(place_of(model, name), f"{name} left out", attribute(targets))
    if (change := _unscaled_embedding(model)) is not None:
        yield Variant("model.embed_tokens", "embedding not multiplied by sqrt(hidden_size)", change)


def _unscaled_embedding(model: torch.nn.Module) -> Any:
    """Gemma multiplies inside the model or in the embedding module: undo it in the table's use."""
    kind = str(getattr(model.config, "model_type", ""))
    if not kind.startswith("gemma"):
        return None
    embedding: Any = model.get_input_embeddings()  # type: ignore[operator]
    size = float(model.config.get_text_config().hidden_size)  # type: ignore[union-attr,operator]
    original = embedding.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs) * size**-0.5

    return attribute([(embedding, "forward", forward)])


def _softcap(model: torch.nn.Module) -> Iterator[Variant]:
    config: Any = model.config
    text = config.get_text_config()
    if getattr(text, "final_logit_softcapping", None):
        change = attribute([(text, "final_logit_softcapping", None)])
        yield Variant("lm_head", "logits not capped", change)


def _tie(model: torch.nn.Module) -> Iterator[Variant]:
    embedding: Any = model.get_input_embeddings()  # type: ignore[operator]
    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    if head is None or head.weight.shape != embedding.weight.shape:
        return
    for owner, other, place, what in (
        (head, embedding, "lm_head", "the embedding's weight instead of its own"),
        (embedding, head, "model.embed_tokens", "the head's weight instead of its own"),
    ):
        change = values([(owner.weight, replaced(other.weight.data))])
        yield Variant(place, what, change)


def _shifted(model: torch.nn.Module) -> Iterator[Variant]:
    """Rows of the table or the head one off: other ids, or logits moved; no table is copied."""
    embedding: Any = model.get_input_embeddings()  # type: ignore[operator]
    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    for step in (1, -1):
        change = attribute([(embedding, "forward", _read_beside(embedding, step))])
        yield Variant("model.embed_tokens", f"rows {step:+d}", change)
        if head is not None:
            yield Variant("lm_head", f"rows {step:+d}", hooked([(head, _move_logits(step))]))


def _read_beside(embedding: Any, step: int) -> Any:
    original, size = embedding.forward, embedding.weight.shape[0]
    return lambda ids: original((ids - step) % size)


def _move_logits(step: int) -> Hook:
    return lambda module, args, kwargs, output: output.roll(step, -1)


def _skipped(model: torch.nn.Module) -> Iterator[Variant]:
    layers = list_layers(model)
    if layers:
        change = attribute([(layer, "forward", _pass_on(layer)) for _, layer in layers])
        yield Variant(generalize(layers[0][0]), "layer left out", change)


def _pass_on(layer: Any) -> Any:
    original = layer.forward

    def forward(hidden: Any, *args: Any, **kwargs: Any) -> Any:
        output = original(hidden, *args, **kwargs)
        return (hidden, *output[1:]) if isinstance(output, tuple) else hidden

    return forward


def _branches(model: torch.nn.Module) -> Iterator[Variant]:
    """A whole branch of each layer gives nothing."""
    names = ("self_attn", "mlp", "attn", "attention", "feed_forward", "block_sparse_moe")
    for name in names:
        sites = list_sites(model, _named(name))
        if not sites:
            continue

        def silence(_: Any, __: Any, ___: Any, output: Any) -> Any:
            return (output[0] * 0, *output[1:]) if isinstance(output, tuple) else output * 0

        change = hooked([(module, silence) for _, module in sites])
        yield Variant(generalize(sites[0][0]), "left out", change)


def _named(*names: str) -> Callable[[str, Any], bool]:
    return lambda own, _: own in names


def _parallel(model: torch.nn.Module) -> Iterator[Variant]:
    layers = list_layers(model)
    name = "use_parallel_residual"
    owners = [layer for _, layer in layers if isinstance(getattr(layer, name, None), bool)]
    if owners:
        flipped: list[tuple[Any, str, Any]] = [(o, name, not getattr(o, name)) for o in owners]
        what = (
            "branches one after the other" if getattr(owners[0], name) else "branches in parallel"
        )
        yield Variant(generalize(layers[0][0]), what, attribute(flipped))
    elif layers and all(hasattr(layer, "mlp") and _norms(layer) == 1 for _, layer in layers):
        change = _in_sequence([layer for _, layer in layers])
        yield Variant(generalize(layers[0][0]), "branches one after the other", change)


def _norms(layer: Any) -> int:
    return sum("norm" in name for name, _ in layer.named_children())


def _in_sequence(layers: list[Any]) -> Change:
    """The MLP of a layer with one norm reads the stream after attention."""

    @contextlib.contextmanager
    def change() -> Iterator[None]:
        handles: list[Any] = []
        for layer in layers:
            norm = next(m for n, m in layer.named_children() if "norm" in n)
            attention = getattr(layer, "self_attn", None) or getattr(layer, "attn", None)
            handles += _wire(layer, norm, attention)
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    return change


def _wire(layer: Any, norm: Any, attention: Any) -> list[Any]:
    seen: dict[str, Any] = {}

    def enter(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen["stream"] = args[0] if args else kwargs["hidden_states"]

    def attended(_: Any, __: Any, output: Any) -> None:
        seen["attention"] = output[0] if isinstance(output, tuple) else output

    def mlp(_: Any, args: tuple[Any, ...]) -> Any:
        return (norm.forward(seen["stream"] + seen["attention"]), *args[1:])

    return [
        layer.register_forward_pre_hook(enter, with_kwargs=True),
        attention.register_forward_hook(attended),
        layer.mlp.register_forward_pre_hook(mlp),
    ]


CAUSES = (
    Hypothesis(
        "multiplier_missing",
        "the stream or the logits are scaled wrongly",
        "multiply as the config says",
        _multipliers,
    ),
    Hypothesis(
        "final_softcap",
        "large logits are too large",
        "cap the logits: c * tanh(logits / c)",
        _softcap,
    ),
    Hypothesis(
        "head_tied",
        "right up to the last norm, wrong logits",
        "tie_word_embeddings is false: use lm_head.weight",
        _tie,
    ),
    Hypothesis(
        "rows_shifted",
        "other tokens' rows are read or written",
        "keep the vocabulary's order from row 0 on",
        _shifted,
    ),
    Hypothesis("layer_missing", "the stream stands still for one layer", "add the layer", _skipped),
    Hypothesis(
        "branch_missing", "a layer does half of its work", "add the branch's output", _branches
    ),
    Hypothesis(
        "residual_wiring",
        "a large error in every layer",
        "read the stream where the model reads it: parallel or one after the other",
        _parallel,
    ),
)
