"""A checkpoint's config.json, read through a spec, with every key accounted for."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from assay.errors import ConfigError
from assay.spec.model_spec import ConfigSpec

__all__ = ["NEUTRAL_KEYS", "ModelConfig"]

_BOOKKEEPING = "bookkeeping of the file"
_TRAINING = "used in training only"
_GENERATION = "a default of generate(), not of the forward pass"
_LOADING = "how transformers loads or runs the model, not what it computes"
_TASK = "belongs to another task head"

NEUTRAL_KEYS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "_model_name_or_path",
            "_name_or_path",
            "architectures",
            "auto_map",
            "custom_pipelines",
            "dtype",
            "model_type",
            "name_or_path",
            "torch_dtype",
            "transformers_version",
            "transformers.js_config",
            "unsloth_fixed",
            "unsloth_version",
            "license",
            "_commit_hash",
            "base_model_name",
        ),
        _BOOKKEEPING,
    ),
    **dict.fromkeys(
        (
            "attention_dropout",
            "attn_pdrop",
            "classifier_dropout",
            "embd_pdrop",
            "embedding_dropout",
            "embedding_pdrop",
            "gradient_checkpointing",
            "hidden_dropout",
            "initializer_range",
            "resid_pdrop",
            "residual_dropout",
            "use_cache",
            "pretraining_tp",
            "output_router_logits",
            "dropout",
        ),
        _TRAINING,
    ),
    **dict.fromkeys(
        (
            "bad_words_ids",
            "begin_suppress_tokens",
            "bos_token_id",
            "decoder_start_token_id",
            "diversity_penalty",
            "do_sample",
            "early_stopping",
            "encoder_no_repeat_ngram_size",
            "eos_token_id",
            "exponential_decay_length_penalty",
            "forced_bos_token_id",
            "forced_eos_token_id",
            "length_penalty",
            "max_length",
            "max_new_tokens",
            "min_length",
            "no_repeat_ngram_size",
            "num_beam_groups",
            "num_beams",
            "num_return_sequences",
            "output_scores",
            "pad_token_id",
            "prefix",
            "remove_invalid_values",
            "repetition_penalty",
            "return_dict_in_generate",
            "sep_token_id",
            "suppress_tokens",
            "task_specific_params",
            "temperature",
            "top_k",
            "top_p",
            "typical_p",
            "unk_token_id",
        ),
        _GENERATION,
    ),
    **dict.fromkeys(
        (
            "_attn_implementation",
            "_attn_implementation_autoset",
            "_flash_attn_2_enabled",
            "_experts_implementation",
            "attn_implementation",
            "output_attentions",
            "output_hidden_states",
            "return_dict",
            "torchscript",
            "use_bfloat16",
            "use_flash_attention_2",
            "tokenizer_class",
            "chunk_size_feed_forward",
            "pruned_heads",
            "tf_legacy_loss",
            "max_sequence_length",
        ),
        _LOADING,
    ),
    **dict.fromkeys(
        ("finetuning_task", "id2label", "label2id", "num_labels", "problem_type"), _TASK
    ),
}

# Keys that transformers' base class gives every config, with the values that change nothing.
_BASE_ONLY: Mapping[str, tuple[Any, ...]] = {
    "add_cross_attention": (False, None),
    "cross_attention_hidden_size": (None,),
    "is_decoder": (False, True, None),
    "is_encoder_decoder": (False, None),
    "tie_encoder_decoder": (False, None),
}

_MISSING = object()


class ModelConfig:
    """Typed access to a config; remembers what was read, so that nothing is dropped silently.

    values: the parsed config.json. where: names the file in errors.
    """

    def __init__(self, values: Mapping[str, Any], spec: ConfigSpec, *, where: str) -> None:
        self.where = where
        self._spec = spec
        self._values: dict[str, Any] = {}
        for name, value in values.items():
            target = spec.aliases.get(name, name)
            if target in self._values and self._values[target] != value:
                raise ConfigError(
                    where,
                    f"{target!r} is given twice, as {self._values[target]!r} and {value!r} "
                    f"(as {name!r})",
                    next_step="Remove one of the two from config.json.",
                )
            self._values[target] = value
        self._read: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def fill_in(self) -> dict[str, Any]:
        """Return all values in the spelling used here, with defaults for what the file leaves out.

        Nothing counts as read.
        """
        return {**self._spec.defaults, **self._values}

    def get(self, name: str, default: Any = _MISSING) -> Any:
        """Return a key's value: the file's, else the spec's default, else `default`."""
        self._read.add(name)
        if name in self._values:
            return self._values[name]
        if name in self._spec.defaults:
            return self._spec.defaults[name]
        if default is not _MISSING:
            return default
        raise ConfigError(
            self.where,
            f"the key {name!r} is missing, and this model type has no default for it",
            next_step="Add it to config.json as the model's authors publish it.",
        )

    def get_size(self, name: str) -> int:
        """Return a key that counts something: an int of at least 1."""
        value = self.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
            raise ConfigError(
                self.where, f"{name} is {value!r}", expected="an integer of at least 1"
            )
        return value

    def get_flag(self, name: str) -> bool:
        """Return a key that switches something; null counts as false."""
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            raise ConfigError(self.where, f"{name} is {value!r}", expected="true or false")
        return bool(value)

    def check_all_read(self, *, ignored: Collection[str] = ()) -> None:
        """Raise ConfigError for a key that nothing read, or a value that we don't support."""
        for name, allowed in {**_BASE_ONLY, **self._spec.only}.items():
            value = self._values.get(name, _MISSING)
            if value is not _MISSING and value not in allowed and name not in ignored:
                raise ConfigError(
                    self.where,
                    f"{name} = {value!r} asks for something that this spec doesn't build",
                    expected=f"{name} to be {' or '.join(repr(item) for item in allowed)}",
                    next_step="Such a model can't be exported; leaving the key out would give "
                    "wrong logits.",
                )
        known = {
            *self._read,
            *self._spec.defaults,
            *self._spec.only,
            *_BASE_ONLY,
            *self._spec.neutral,
            *NEUTRAL_KEYS,
        }
        unknown = [name for name in self._values if name not in known and name not in ignored]
        if unknown:
            raise ConfigError(
                self.where,
                self._describe_unknown(unknown),
                next_step=(
                    "If you know that a key doesn't change what the model computes, go on with "
                    f"--ignore-config-key {unknown[0]}."
                ),
            )

    def _describe_unknown(self, unknown: list[str]) -> str:
        parts = []
        for name in unknown:
            near = difflib.get_close_matches(name, [*self._read, *self._spec.defaults], n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            parts.append(f"{name} = {self._values[name]!r}{hint}"[:200])
        noun = "key has" if len(unknown) == 1 else "keys have"
        return f"{len(unknown)} config {noun} no meaning in this model's spec: {'; '.join(parts)}"
