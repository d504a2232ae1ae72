"""What each check of the judge looks at, in words."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["CheckName", "describe_check"]

_CHECKS = {
    "prefill": ("Prefill", "the whole prompt in one pass"),
    "decode": ("Decode", "token by token through the cache"),
    "window": ("Window", "a prompt longer than the attention window"),
    "left_padded_batch": ("Left-padded batch", "rows of unequal length, padded on the left"),
    "as_shipped": ("As shipped", "the graph as it lies on disk, last position only"),
    "genai": ("onnxruntime-genai", "loads the folder and generates greedily"),
    "end_tokens": ("End tokens", "every id that ends the original's text"),
    "tokenizer": ("Tokenizer", "difficult texts, encoded as the original does"),
    "chat_template": ("Chat template", "a conversation, rendered as the original does"),
    "weights": ("Packed weights", "decoded and compared with the checkpoint's"),
    "loads": ("Loading", "onnxruntime opens the graph"),
    "reference": ("Reference", "the original can be run"),
}
_PREFIXES = {
    "decoded_": ("decoded weights", "the graph with decoded weights"),
    "end_to_end_": ("end to end", "the folder against the original weights"),
}
_PROMPT = re.compile(r"(?P<name>.*?)(?: \(prompt (?P<number>\d+)\))?", re.DOTALL)


@dataclass(frozen=True)
class CheckName:
    """base: the judge's own name, without the prompt's number. title: for people. part: which
    half of a proof it belongs to, or "". subject: what is looked at. prompt: its number, or "".
    """

    base: str
    title: str
    part: str
    subject: str
    prompt: str

    @property
    def plain(self) -> str:
        """A name for a sentence."""
        more = [self.part, f"prompt {self.prompt}" if self.prompt else ""]
        told = ", ".join(text for text in more if text)
        title = self.title if self.title.startswith("onnx") else self.title.lower()
        return f"{title} ({told})" if told else title


def describe_check(name: str) -> CheckName:
    """Take a check's name apart; one that isn't known stays as it is."""
    found = _PROMPT.fullmatch(name)
    assert found is not None
    base, prompt = found["name"], found["number"] or ""
    for prefix, (part, whole) in _PREFIXES.items():
        if base.startswith(prefix) and base[len(prefix) :] in _CHECKS:
            title, subject = _CHECKS[base[len(prefix) :]]
            return CheckName(base, title, part, f"{whole}: {subject}", prompt)
    title, subject = _CHECKS.get(base, (base, ""))
    return CheckName(base, title, "", subject, prompt)
