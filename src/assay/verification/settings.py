"""The four settings in which candidate and reference are compared, and what each one feeds.

prefill: the whole prompt at once. decode: token by token through the cache, from the very first
token and after a prefill and a chunk. window: positions past the sliding window, in prefill and
in a decode that crosses its edge. left_padded_batch: rows of unequal length, padded on the left,
prefilled and then decoded together. as_shipped (for graphs that were edited to give every
position): the unedited graph's last positions. The reference always runs each sequence whole,
unpadded and without a cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from assay.verification.candidate import Candidate

__all__ = ["SETTINGS", "Comparison", "plan_rows", "run_setting"]

SETTINGS = ("prefill", "decode", "window", "left_padded_batch")

_NUM_SINGLE = 24  # tokens decoded one by one, at the start and at the end of the prompt
_NUM_CHUNK = 16  # tokens fed as one chunk onto a filled cache
_NUM_CROSSING = 8  # single tokens around the window's edge
_NUM_BATCH_STEPS = 6

Ids = npt.NDArray[np.int64]
Logits = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Comparison:
    """Candidate logits [P, V] and where the reference has the same: sequence and positions [P].

    sequence: -1 for the prompt, else the index of a batch row.
    """

    sequence: int
    positions_P: Ids
    logits_PV: Logits


def plan_rows(ids_S: Ids, window: int | None) -> tuple[Ids, ...]:
    """Three stretches of the prompt of unequal length for the batch; the longest passes the window.

    Each includes the tokens that are decoded afterwards. Empty when the prompt is too short.
    """
    num_tokens = len(ids_S)
    longest = min(48, num_tokens // 2)
    if window and longest <= window < num_tokens - _NUM_CROSSING:
        longest = window + _NUM_CROSSING
    lengths = (longest, longest * 5 // 8, 2)
    if longest * 5 // 8 < 2:
        return ()
    starts = (0, min(num_tokens // 2, num_tokens - lengths[1] - _NUM_BATCH_STEPS), num_tokens // 3)
    rows = (ids_S[a : a + n + _NUM_BATCH_STEPS] for a, n in zip(starts, lengths, strict=True))
    return tuple(rows)


def run_setting(
    setting: str, candidate: Candidate, ids_S: Ids, *, window: int | None, rows: Sequence[Ids]
) -> Iterator[Comparison]:
    """Drive the candidate through one setting."""
    if setting == "prefill":
        yield Comparison(-1, np.arange(len(ids_S)), candidate.prefill(ids_S))
    elif setting == "decode":
        yield from _decode_from_start(candidate, ids_S)
        yield from _decode_after_chunk(candidate, ids_S)
    elif setting == "window":
        assert window is not None
        yield from _cross_window(candidate, ids_S, window)
    elif setting == "left_padded_batch":
        yield from run_padded_batch(candidate, rows, pad_left=True)
    elif setting == "as_shipped":
        yield from _run_as_shipped(candidate, ids_S)
        if rows:
            yield from run_padded_batch(candidate, rows, pad_left=True)
    else:
        raise AssertionError(setting)


def _decode_from_start(candidate: Candidate, ids_S: Ids) -> Iterator[Comparison]:
    count = min(_NUM_SINGLE, len(ids_S))
    logits, _ = candidate.decode(candidate.start(), ids_S[:count])
    yield Comparison(-1, np.arange(count), logits)


def _decode_after_chunk(candidate: Candidate, ids_S: Ids) -> Iterator[Comparison]:
    """Prefill, then one chunk on the filled cache, then single tokens."""
    num_tokens = len(ids_S)
    singles = num_tokens - min(_NUM_SINGLE, num_tokens // 4)
    chunk = singles - min(_NUM_CHUNK, singles // 2)
    if not 0 < chunk < singles < num_tokens:
        return
    state = candidate.start()
    for start, stop in ((0, chunk), (chunk, singles)):
        logits, state = candidate.feed(state, ids_S[None, start:stop])
        yield Comparison(-1, np.arange(stop - logits.shape[1], stop), logits[0])
    logits, _ = candidate.decode(state, ids_S[singles:])
    yield Comparison(-1, np.arange(singles, num_tokens), logits)


def _cross_window(candidate: Candidate, ids_S: Ids, window: int) -> Iterator[Comparison]:
    """Prefill past the window, then a decode that starts inside and steps over its edge."""
    logits_SV = candidate.prefill(ids_S)
    yield Comparison(-1, np.arange(window, len(ids_S)), logits_SV[window:])
    start = max(1, window - _NUM_CROSSING // 2)
    stop = min(start + _NUM_CROSSING, len(ids_S))
    _, state = candidate.feed(candidate.start(), ids_S[None, :start])
    logits, _ = candidate.decode(state, ids_S[start:stop])
    yield Comparison(-1, np.arange(start, stop), logits)


def _run_as_shipped(candidate: Candidate, ids_S: Ids) -> Iterator[Comparison]:
    """Prefill all but two tokens, then decode those: the last position of each run."""
    num_tokens = len(ids_S)
    logits_BSV, state = candidate.feed(candidate.start(), ids_S[None, : num_tokens - 2])
    found = [logits_BSV[0, -1]]
    for token in ids_S[num_tokens - 2 :]:
        logits_BSV, state = candidate.feed(state, np.asarray([[token]]))
        found.append(logits_BSV[0, -1])
    yield Comparison(-1, np.arange(num_tokens - 3, num_tokens), np.stack(found))


def run_padded_batch(
    candidate: Candidate, rows: Sequence[Ids], *, pad_left: bool
) -> Iterator[Comparison]:
    """Prefill unequal rows as one padded batch, then decode the rest of each row together.

    Right padding (onnxruntime-genai's own batches) stops after the prefill: a second step
    would need gaps in the cache. Only positions that hold a token are compared.
    """
    lengths = [len(row) - _NUM_BATCH_STEPS for row in rows]
    width = max(lengths)
    ids_BS = np.zeros((len(rows), width), np.int64)
    mask_BS = np.zeros_like(ids_BS)
    for row, (ids, length) in enumerate(zip(rows, lengths, strict=True)):
        filled = slice(width - length, width) if pad_left else slice(0, length)
        ids_BS[row, filled], mask_BS[row, filled] = ids[:length], 1
    logits_BSV, state = candidate.feed(candidate.start(len(rows)), ids_BS, mask_BS)
    all_given = logits_BSV.shape[1] == width
    if not all_given and not pad_left:
        return  # the last position of a right-padded row is padding
    found: list[list[Logits]] = [
        [logits_BSV[row][mask_BS[row] == 1] if all_given else logits_BSV[row]]
        for row in range(len(rows))
    ]
    for step in range(_NUM_BATCH_STEPS if pad_left else 0):
        tokens = np.asarray([[ids[n + step]] for ids, n in zip(rows, lengths, strict=True)])
        logits_BSV, state = candidate.feed(state, tokens)
        for row in range(len(rows)):
            found[row].append(logits_BSV[row])
    for row, length in enumerate(lengths):
        logits_PV = np.concatenate(found[row])
        stop = length + (_NUM_BATCH_STEPS if pad_left else 0)
        yield Comparison(row, np.arange(stop - len(logits_PV), stop), logits_PV)
