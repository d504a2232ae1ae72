"""What goes wrong with who sees whom: the sliding window, the causal mask."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.diagnosis.causes.sites import find_attentions
from assay.diagnosis.hypothesis import Change, Hypothesis, Variant, generalize

if TYPE_CHECKING:
    import torch

__all__ = ["CAUSES", "change_mask", "find_sizes"]


def change_mask(attentions: list[Any], window: int | None, *, causal: bool = True) -> Change:
    """Give attentions another mask for a while: a window of so many tokens, None for all."""

    @contextlib.contextmanager
    def change() -> Iterator[None]:
        handles = [m.register_forward_pre_hook(enter, with_kwargs=True) for m in attentions]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def enter(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        import torch

        mask = kwargs.get("attention_mask")
        if not isinstance(mask, torch.Tensor) or mask.ndim != 4:
            raise ValueError("no mask of four axes to change")
        new_tokens, tokens = mask.shape[-2:]
        ahead = torch.arange(tokens)[None, :] - torch.arange(tokens)[-new_tokens:, None]
        hidden = ahead > 0 if causal else torch.zeros_like(ahead, dtype=torch.bool)
        if window is not None:
            hidden = hidden | (ahead <= -window)
        if mask.dtype == torch.bool:
            new = ~hidden
        else:
            new = torch.zeros(ahead.shape, dtype=mask.dtype)
            new = new.masked_fill(hidden, torch.finfo(mask.dtype).min)
        return args, {**kwargs, "attention_mask": new.expand_as(mask)}

    return change


def find_sizes(model: torch.nn.Module) -> list[int]:
    """Windows that the config or a module names."""
    config: Any = model.config
    text = config.get_text_config()
    owners = [text, *(m for _, m in find_attentions(model))]
    names = ("sliding_window", "attention_chunk_size", "window_size")
    found = [getattr(owner, name, None) for owner in owners for name in names]
    return sorted({size for size in found if isinstance(size, int) and size > 0})


def _window(model: torch.nn.Module) -> Iterator[Variant]:
    found = find_attentions(model)
    if not found:
        return
    modules = [module for _, module in found]
    place = generalize(found[0][0])
    sizes = find_sizes(model)
    if sizes:
        yield Variant(place, "window dropped", change_mask(modules, None))
    for size in sizes:
        yield Variant(place, f"a window of {size} tokens", change_mask(modules, size))
        for other, what in ((size + 1, "wide"), (size - 1, "narrow")):
            words = f"window one token too {what}: {other}"
            yield Variant(place, words, change_mask(modules, other))


def _causal(model: torch.nn.Module) -> Iterator[Variant]:
    if found := find_attentions(model):
        change = change_mask([module for _, module in found], None, causal=False)
        yield Variant(generalize(found[0][0]), "later tokens seen", change)


CAUSES = (
    Hypothesis(
        "sliding_window",
        "right up to the window, wrong past it",
        "set the window of the config on the layers that have one",
        _window,
    ),
    Hypothesis("causal_mask", "every position is wrong", "let no token see later ones", _causal),
)
