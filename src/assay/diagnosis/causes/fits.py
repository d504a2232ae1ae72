"""Numbers that are wrong by an amount that nobody can guess: fitted, not tried.

A family is one number of the model. The value under which a segment comes nearest to the folder's
is looked for on a grid, then between its neighbours.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from assay.diagnosis.causes.masks import change_mask
from assay.diagnosis.causes.norms import change_eps, find_norms
from assay.diagnosis.causes.positions import (
    change_theta,
    make_table,
    read_parameters,
    replace_table,
)
from assay.diagnosis.causes.scales import MULTIPLIERS, find_multiplier, place_of
from assay.diagnosis.causes.sites import (
    find_attentions,
    find_rotaries,
    list_tables,
    place_attention,
)
from assay.diagnosis.hypothesis import (
    Change,
    Hypothesis,
    Variant,
    attribute,
    generalize,
    group_by_site,
    hooked,
    list_layers,
)

if TYPE_CHECKING:
    import torch

__all__ = ["FAMILIES", "Family", "fit"]

_EVALUATIONS = 24
_BRANCHES = ("self_attn", "mlp")
_POST_NORMS = ("post_attention_layernorm", "post_feedforward_layernorm")
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class Family:
    """One number. grid: values to begin with, rising. whole: only integers make sense."""

    hypothesis: Hypothesis
    place: str
    what: str
    grid: tuple[float, ...]
    change: Callable[[float], Change]
    whole: bool = False
    elsewhere: str = ""
    shared: str = ""

    def at(self, value: float) -> Variant:
        """The variant with this value."""
        what = f"{self.what} {value:.6g}"
        return Variant(self.place, what, self.change(value), self.elsewhere, self.shared)


def fit(family: Family, measure: Callable[[Variant], float]) -> Variant:
    """The member under which `measure` is least: grid, golden section, then round numbers."""
    known: dict[float, float] = {}

    def score(value: float) -> float:
        value = round(value) if family.whole else value
        if value not in known:
            known[value] = measure(family.at(value))
        return known[value]

    best = min(family.grid, key=score)
    place = family.grid.index(best)
    low = family.grid[max(0, place - 1)]
    high = family.grid[min(len(family.grid) - 1, place + 1)]
    logarithmic = low > 0 and not family.whole
    left, right = (math.log(low), math.log(high)) if logarithmic else (low, high)

    def at(x: float) -> float:
        return score(math.exp(x) if logarithmic else x)

    for _ in range(_EVALUATIONS):
        if family.whole and right - left < 2:
            break
        a, b = right - _GOLDEN * (right - left), left + _GOLDEN * (right - left)
        if at(a) <= at(b):
            right = b
        else:
            left = a
    best = min(known, key=lambda value: known[value])
    if not family.whole and best > 0:
        for digits in (1, 2, 3, 4):  # what somebody wrote down is a round number
            near = float(f"{best:.{digits}g}")
            if score(near) <= known[best] * 1.01:
                best = near
                break
    return family.at(best)


def _grid(low: float, high: float, factor: float) -> tuple[float, ...]:
    count = round(math.log(high / low) / math.log(factor))
    return tuple(low * factor**k for k in range(count + 1))


def _eps(model: torch.nn.Module) -> Iterator[Family]:
    norms = find_norms(model)
    layers = list_layers(model)
    final = next((n for n in reversed(norms) if not n.startswith(tuple(p for p, _ in layers))), "")
    everywhere = {generalize(layers[0][0]): list(norms.values())} if norms and layers else {}
    for place, group in (everywhere | group_by_site(list(norms.items()))).items():
        yield Family(
            _NORM_EPS,
            place,
            "eps",
            _grid(1e-13, 1.0, 10.0),
            partial(_set_eps, group),
            elsewhere=final,
        )


def _set_eps(norms: list[Any], eps: float) -> Change:
    return attribute(change_eps(norms, eps))


def _theta(model: torch.nn.Module) -> Iterator[Family]:
    place = place_attention(model)
    for name, module in find_rotaries(model):
        for table in list_tables(module):
            yield Family(
                _ROPE_THETA,
                place,
                "theta",
                _grid(100.0, 1.2e8, 2.0),
                partial(change_theta, module, table),
                shared=name,
            )
            yield Family(
                _ROPE_SCALING,
                place,
                "positions times",
                _grid(2**-6, 16.0, 2.0),
                _stretch(module, table),
                shared=name,
            )
            yield from _entries(place, name, module, table)


def _stretch(module: Any, table: str) -> Callable[[float], Change]:
    like = module._buffers[table]
    return lambda factor: replace_table(module, table, like * factor, None)


def _entries(place: str, name: str, module: Any, table: str) -> Iterator[Family]:
    """Numbers of rope_parameters."""
    kind = table.removesuffix("inv_freq").removesuffix("_")
    own = read_parameters(module, kind)
    for entry, value in own.items():
        positive = isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
        if entry == "rope_theta" or not positive or make_table(module, kind, own) is None:
            continue
        yield Family(
            _ROPE_SCALING,
            place,
            f"{entry} of rope_parameters",
            _grid(value / 16, value * 16, 2.0),
            partial(_change_entry, module, table, entry),
            whole=isinstance(value, int),
            shared=name,
        )


def _change_entry(module: Any, table: str, entry: str, value: float) -> Change:
    kind = table.removesuffix("inv_freq").removesuffix("_")
    own = read_parameters(module, kind)
    as_own = int(value) if isinstance(own[entry], int) else value
    made = make_table(module, kind, {**own, entry: as_own})
    return replace_table(module, table, *made) if made else _refuse


@contextlib.contextmanager
def _refuse() -> Iterator[None]:
    raise ValueError("transformers makes no table of it")
    yield


def _attention(model: torch.nn.Module) -> Iterator[Family]:
    found = find_attentions(model)
    if not found:
        return
    place = place_attention(model)
    modules = [module for _, module in found]
    scaled = [m for m in modules if isinstance(getattr(m, "scaling", None), float)]
    if scaled:
        own = float(scaled[0].scaling)
        yield Family(
            _ATTENTION_SCALE,
            place,
            "scores times",
            _grid(own / 256, own * 256, 2.0),
            lambda value: attribute([(m, "scaling", value) for m in scaled]),
        )
    capped = [m for m in modules if getattr(m, "attn_logit_softcapping", None)]
    if capped:
        yield Family(
            _ATTENTION_SOFTCAP,
            place,
            "scores capped at",
            _grid(0.5, 1024.0, 2.0),
            lambda value: attribute([(m, "attn_logit_softcapping", value) for m in capped]),
        )
    yield Family(
        _SLIDING_WINDOW,
        place,
        "a window of tokens:",
        tuple(float(2**k) for k in range(11)),
        lambda value: change_mask(modules, int(value)),
        whole=True,
    )


def _multipliers(model: torch.nn.Module) -> Iterator[Family]:
    for name in MULTIPLIERS:
        owners = find_multiplier(model, name)
        if owners and owners[0][1] > 0:
            yield Family(
                _MULTIPLIER,
                place_of(model, name),
                name,
                _grid(owners[0][1] / 256, owners[0][1] * 256, 2.0),
                _set_all([owner for owner, _ in owners], name),
            )
    text: Any = model.config.get_text_config()  # type: ignore[union-attr,operator]
    if getattr(text, "final_logit_softcapping", None):
        yield Family(
            _FINAL_SOFTCAP,
            "lm_head",
            "logits capped at",
            _grid(0.5, 1024.0, 2.0),
            _set_all([text], "final_logit_softcapping"),
        )


def _set_all(owners: list[Any], name: str) -> Callable[[float], Change]:
    return lambda value: attribute([(owner, name, value) for owner in owners])


def _outputs(model: torch.nn.Module) -> Iterator[Family]:
    """Any component times a factor, where the model itself has no such number."""
    sites: dict[str, list[Any]] = {}
    for path, layer in list_layers(model):
        for name, child in layer.named_children():
            if any(True for _ in child.parameters()):
                sites.setdefault(generalize(f"{path}.{name}"), []).append(child)
    paths = {id(module): name for name, module in model.named_modules()}
    for end in (model.get_input_embeddings(), model.get_output_embeddings()):  # type: ignore[operator]
        if end is not None:
            sites[paths[id(end)]] = [end]
    for place, modules in sites.items():
        yield _scaled(place, modules)
    parts = {name: modules for place, modules in sites.items() if (name := place.rsplit(".")[-1])}
    for names in (_BRANCHES, _POST_NORMS):
        both = [parts[name] for name in names if name in parts]
        if len(both) == 2:
            parent = next(iter(sites)).rsplit(".", 1)[0]
            yield _scaled(f"{parent}.{{{','.join(names)}}}", [m for some in both for m in some])


def _scaled(place: str, modules: list[Any]) -> Family:
    return Family(_OUTPUT_SCALE, place, "output times", _grid(1 / 256, 256.0, 2.0), _scale(modules))


def _scale(modules: list[Any]) -> Callable[[float], Change]:
    def change(value: float) -> Change:
        def hook(_: Any, __: Any, ___: Any, output: Any) -> Any:
            if isinstance(output, tuple):
                return (output[0] * value, *output[1:])
            return output * value

        return hooked([(module, hook) for module in modules])

    return change


def _nothing(_: torch.nn.Module) -> Iterator[Variant]:
    return iter(())


_NORM_EPS = Hypothesis(
    "norm_eps", "", "take the norm's eps from the config key of this model type", _nothing
)
_ROPE_THETA = Hypothesis("rope_theta", "", "take rope_theta from the config", _nothing)
_ROPE_SCALING = Hypothesis("rope_scaling", "", "honour every entry of rope_parameters", _nothing)
_ATTENTION_SCALE = Hypothesis(
    "attention_scale", "", "take the scale that the model takes", _nothing
)
_ATTENTION_SOFTCAP = Hypothesis("attention_softcap", "", "take the cap of the config", _nothing)
_SLIDING_WINDOW = Hypothesis(
    "sliding_window", "", "set the window of the config on the layers that have one", _nothing
)
_MULTIPLIER = Hypothesis("multiplier_missing", "", "multiply as the config says", _nothing)
_FINAL_SOFTCAP = Hypothesis("final_softcap", "", "take the cap of the config", _nothing)
_OUTPUT_SCALE = Hypothesis(
    "output_scale", "", "find the factor that is missing or too many at this place", _nothing
)

FAMILIES: tuple[Callable[[torch.nn.Module], Iterator[Family]], ...] = (
    _eps,
    _theta,
    _attention,
    _multipliers,
    _outputs,
)
