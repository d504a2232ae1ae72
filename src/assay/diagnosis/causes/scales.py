"""What goes wrong between the blocks: multipliers, the final softcap, the head's weight."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.diagnosis.hypothesis import Hypothesis, Variant, attribute, list_layers

if TYPE_CHECKING:
    import torch

__all__ = ["CAUSES"]


def _multipliers(model: torch.nn.Module) -> Iterator[Variant]:
    names = ("embedding_multiplier", "residual_multiplier", "logits_scaling", "logit_scale")
    config: Any = model.config
    for name in names:
        owners = [m for m in model.modules() if isinstance(getattr(m, name, None), (int, float))]
        targets: list[tuple[Any, str, Any]] = [(o, name, 1.0) for o in owners]
        text = config.get_text_config()
        if isinstance(getattr(text, name, None), (int, float)):
            targets.append((text, name, 1.0))
        targets = [t for t in targets if float(getattr(t[0], t[1])) != 1.0]
        if targets:
            yield Variant(name, "left out", attribute(targets))
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
    if (
        head is None
        or head.weight is embedding.weight
        or head.weight.shape != embedding.weight.shape
    ):
        return

    @contextlib.contextmanager
    def change() -> Iterator[None]:
        saved = head.weight.data
        head.weight.data = embedding.weight.data
        try:
            yield
        finally:
            head.weight.data = saved

    yield Variant("lm_head", "the embedding's weight instead of its own", change)


def _residual(model: torch.nn.Module) -> Iterator[Variant]:
    for path, layer in list_layers(model):
        yield Variant(path, "layer left out", _skip(layer))


def _skip(layer: Any) -> Any:
    original = layer.forward

    def forward(hidden: Any, *args: Any, **kwargs: Any) -> Any:
        output = original(hidden, *args, **kwargs)
        return (hidden, *output[1:]) if isinstance(output, tuple) else hidden

    return attribute([(layer, "forward", forward)])


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
        "layer_missing", "the stream stands still for one layer", "add the layer", _residual
    ),
)
