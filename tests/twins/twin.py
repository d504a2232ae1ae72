"""Builds a tiny twin with transformers and exports it, whole or with a planted fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from assay.checkpoint import Checkpoint, open_checkpoint
from assay.graph import ExportOptions
from assay.pipeline import build_export, resolve_checkpoint, write_export
from assay.spec.vocabulary import DecoderPlan
from tests.twins.cases import SIZES, TwinCase

NUM_TOKENS = 800
# The small scale lets eps show, the large one everything else.
STDS = (0.02, 0.12)

_RENAMED = {
    "gpt2": {
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions",
    }
}
_ABSENT = {
    "gpt2": ("intermediate_size", "num_key_value_heads"),
    "gpt_neox": ("num_key_value_heads",),
}


def build_twin(case: TwinCase, std: float, folder: Path) -> torch.nn.Module:
    """Build a case with random weights, save it as a checkpoint, and return it."""
    config = make_config(case)
    torch.manual_seed(17)
    # Every weight is drawn anew below; 4.57 can't initialize stablelm's q and k norms.
    with mock.patch.object(PreTrainedModel, "_initialize_weights"):
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    model = model.float().eval()
    randomize(model, std)
    model.save_pretrained(folder)
    return model


def make_config(case: TwinCase) -> Any:
    """Return the config of a case."""
    facts = {
        key: value for key, value in SIZES.items() if key not in _ABSENT.get(case.model_type, ())
    }
    names = _RENAMED.get(case.model_type, {})
    facts = {names.get(key, key): value for key, value in facts.items()}
    config = CONFIG_MAPPING[case.model_type](**{**facts, **case.facts})
    config._attn_implementation = "eager"
    return config


def randomize(model: torch.nn.Module, std: float) -> None:
    """Give matrices the std, and move vectors (norm weights, biases) away from 0 and 1."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim >= 2:
                parameter.copy_(std * noise)
            else:
                parameter.add_(0.25 * noise)


def draw_prompt(count: int = NUM_TOKENS) -> np.ndarray[Any, Any]:
    """Random token ids, the same every time, special ids left out."""
    return np.random.default_rng(3).integers(3, SIZES["vocab_size"], count)


def export_twin(
    source: Path,
    output: Path,
    *,
    options: ExportOptions | None = None,
    change_plan: Callable[[DecoderPlan], DecoderPlan] | None = None,
    change_rows: Callable[[str, np.ndarray[Any, Any]], np.ndarray[Any, Any]] | None = None,
) -> Path:
    """Export a checkpoint without loading it in GenAI; the changes plant a fault."""
    options = options or ExportOptions()
    with open_checkpoint(source) as checkpoint:
        model = resolve_checkpoint(checkpoint, options)
        if change_plan is not None:
            model = replace(model, plan=change_plan(model.plan))
        planned = build_export(model, checkpoint, options)
        data = checkpoint if change_rows is None else ChangedCheckpoint(checkpoint, change_rows)
        write_export(planned, data, output, check_loading=False)
    return output


class ChangedCheckpoint(Checkpoint):
    """A checkpoint whose tensors pass through a function when they are read whole or by rows."""

    def __init__(
        self,
        inner: Checkpoint,
        change: Callable[[str, np.ndarray[Any, Any]], np.ndarray[Any, Any]],
    ) -> None:
        self._inner, self._change = inner, change
        for name in ("path", "config", "generation_config", "tensors", "weight_paths", "notes"):
            setattr(self, name, getattr(inner, name))

    def read(self, name: str) -> np.ndarray[Any, Any]:
        """The tensor, changed."""
        return self._change(name, self._inner.read(name).copy())

    def read_rows(self, name: str, start: int, stop: int) -> np.ndarray[Any, Any]:
        """Rows of the changed tensor."""
        whole = self.read(name)
        return whole.reshape(whole.shape[0], -1)[start:stop]

    def tokenizer_files(self) -> list[str]:
        """As the checkpoint has them."""
        return self._inner.tokenizer_files()

    def write_tokenizer(self, folder: Path) -> list[str]:
        """As the checkpoint does."""
        return self._inner.write_tokenizer(folder)

    def close(self) -> None:
        """Close the checkpoint."""
        self._inner.close()
