"""BPE merges: read from a GGUF file, or derived from a SentencePiece vocabulary and its scores."""

from __future__ import annotations

from collections.abc import Iterator

from assay.checkpoint._gguf_header import GgufHeader

__all__ = ["derive_merges_by_order", "derive_merges_by_score", "read_merges"]

Merges = Iterator[tuple[str, str]]


def read_merges(header: GgufHeader, ids: dict[str, int]) -> Merges:
    """Read `tokenizer.ggml.merges`, best first; every part and result must be a token."""
    for rank, merge in enumerate(header.strings("tokenizer.ggml.merges") or ()):
        left, _, right = merge.partition(" ")
        if left not in ids or right not in ids or left + right not in ids:
            raise header.fail(
                f"merge {rank} is {merge!r}", "two tokens whose join is a token, all known"
            )
        yield left, right


def derive_merges_by_order(ids: dict[str, int]) -> Merges:
    """Derive each cut of a token into two tokens: by the token's id, longer left part first."""
    for token in ids:
        yield from _cut(token, ids)


def derive_merges_by_score(ids: dict[str, int], scores: list[float]) -> Merges:
    """Derive the same cuts, best score first; then longer left part, then longer right part.

    The order of transformers' generate_merges.
    """
    ranked = [
        (-score, -len(left), -len(right), left, right)
        for token, score in zip(ids, scores, strict=True)
        for left, right in _cut(token, ids)
    ]
    ranked.sort(key=lambda merge: merge[:3])
    for *_, left, right in ranked:
        yield left, right


def _cut(token: str, ids: dict[str, int]) -> Merges:
    for place in range(len(token) - 1, 0, -1):
        left, right = token[:place], token[place:]
        if left in ids and right in ids:
            yield left, right
