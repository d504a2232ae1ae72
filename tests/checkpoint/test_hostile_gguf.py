"""Broken and hostile GGUF files: one clear error each, before any count is followed."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from assay.checkpoint import open_checkpoint
from assay.errors import CheckpointError


def text(value: str | bytes) -> bytes:
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def entry(key: str, code: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", code) + value


def tensor(name: str, shape: tuple[int, ...], code: int, offset: int) -> bytes:
    sizes = struct.pack(f"<{len(shape)}Q", *shape)
    return text(name) + struct.pack("<I", len(shape)) + sizes + struct.pack("<IQ", code, offset)


def build(
    entries: tuple[bytes, ...] = (),
    tensors: tuple[bytes, ...] = (),
    data: int = 0,
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    counts: tuple[int, int] | None = None,
) -> bytes:
    numbers = counts or (len(tensors), len(entries))
    head = magic + struct.pack("<IQQ", version, *numbers) + b"".join(entries) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + bytes(data)


ARCHITECTURE = entry("general.architecture", 8, text("llama"))


def refuse(path: Path, content: bytes, *words: str) -> None:
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(path)
    for word in words:
        assert word in str(caught.value), str(caught.value)
    assert str(path) in caught.value.where
    assert caught.value.next_step


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


# proves: Q3
def test_not_a_gguf_file(path: Path) -> None:
    refuse(path, b"", "0 bytes", "header")
    refuse(path, b"GGU", "3 bytes", "header")
    refuse(path, build(magic=b"GGML"), "begins with", "GGML")
    refuse(path, build(version=1), "version 1", "2 or 3")
    refuse(path, build(version=3 << 24), "big-endian")
    refuse(path, build(), "general.architecture")  # a whole but empty file


# proves: Q3
def test_absurd_counts(path: Path) -> None:
    refuse(path, build(counts=(2**63, 0)), f"{2**63:,} tensors")
    refuse(path, build(counts=(0, 2**63)), f"{2**63:,} metadata entries")
    refuse(path, build((ARCHITECTURE,), counts=(0, 3)), "key of 0 bytes")
    refuse(path, build((ARCHITECTURE,), counts=(0, 2))[:-30], "ends inside its header")
    refuse(path, build((text(b"k" * 70_000),)), "string of 70,000 bytes")
    refuse(path, build((struct.pack("<Q", 2**62),)), "string of")
    long = entry("k", 8, struct.pack("<Q", 1 << 20))
    refuse(path, build((long,)), "ends inside its header", "1,048,576 more bytes")
    numbers = entry("k", 9, struct.pack("<IQ", 4, 1 << 40))
    refuse(path, build((numbers,)), "array of 1,099,511,627,776 numbers")
    numbers = entry("k", 9, struct.pack("<IQ", 4, 1 << 20))
    refuse(path, build((numbers,)), "ends inside its header")
    strings = entry("k", 9, struct.pack("<IQ", 8, 1 << 40))
    refuse(path, build((strings,)), "array of 1,099,511,627,776 strings")
    strings = entry("k", 9, struct.pack("<IQ", 8, 1 << 20))
    refuse(path, build((strings,)), "ends inside its header")


# proves: Q3
def test_metadata_of_a_wrong_form(path: Path) -> None:
    refuse(path, build((entry("k", 13, b""),)), "type 13", "0 to 12")
    nested = entry("k", 9, struct.pack("<IQ", 9, 1) + struct.pack("<IQ", 4, 0))
    refuse(path, build((nested,)), "array of type 9")
    refuse(path, build((entry("k", 8, text(b"\xff\xfe")),)), "UTF-8")
    refuse(path, build((text(b"\xff") + struct.pack("<IB", 0, 1),)), "UTF-8")
    refuse(path, build((ARCHITECTURE, ARCHITECTURE)), "general.architecture twice")
    number = entry("general.architecture", 4, struct.pack("<I", 1))
    refuse(path, build((number,)), "general.architecture is 1", "str")


F32, Q4_0, Q2_K, UNKNOWN = 0, 2, 10, 99


# proves: Q3
def test_tensor_table_of_a_wrong_form(path: Path) -> None:
    def refuse_table(*words: str, tensors: tuple[bytes, ...], data: int = 256) -> None:
        refuse(path, build((ARCHITECTURE,), tensors, data), *words)

    refuse_table("'a'", "0 dimensions", tensors=(tensor("a", (), F32, 0),))
    refuse_table("'a'", "5 dimensions", tensors=(tensor("a", (1,) * 5, F32, 0),))
    huge = text("a") + struct.pack("<I", 2**31)
    refuse_table("'a'", "dimensions", tensors=(huge,))
    refuse_table("'a'", "shape", tensors=(tensor("a", (0, 4), F32, 0),))
    refuse_table("'a'", "shape", tensors=(tensor("a", (2**40, 2**40), F32, 0),))
    refuse_table("'a'", "33 values", "32", tensors=(tensor("a", (33, 1), Q4_0, 0),))
    refuse_table("'a'", "vector of Q4_0", tensors=(tensor("a", (32,), Q4_0, 0),))
    refuse_table("'a'", "Q2_K", "Q4_K", tensors=(tensor("a", (256,), Q2_K, 0),))
    refuse_table("'a'", "code 99", tensors=(tensor("a", (256,), UNKNOWN, 0),))
    refuse_table("'a'", "multiple of 32", tensors=(tensor("a", (4,), F32, 8),))
    overlap = (tensor("a", (16,), F32, 0), tensor("b", (16,), F32, 32))
    refuse_table("'b'", "after a", tensors=overlap)
    twice = (tensor("a", (16,), F32, 0), tensor("a", (16,), F32, 64))
    refuse_table("'a' twice", tensors=twice)
    refuse_table("truncated", "'a'", tensors=(tensor("a", (16,), F32, 0),), data=63)
    refuse_table("truncated", tensors=(tensor("a", (16,), F32, 2**63 - 32),))


# proves: Q3
def test_a_truncated_file_says_found_and_expected(
    make_gguf: Callable[..., Path], path: Path
) -> None:
    whole = make_gguf({"output.weight": np.zeros((16, 32), np.float32)}).read_bytes()
    path.write_bytes(whole)
    open_checkpoint(path).close()  # control
    words = {10: "header", 100: "10 metadata entries", 300: "header", len(whole) - 1: "truncated"}
    for kept, word in words.items():
        refuse(path, whole[:kept], f"{kept:,} bytes", word, "download it again")
    refuse(path, whole[:-1], f"{len(whole):,} bytes")


# proves: Q3
def test_no_mutation_of_the_header_gets_past_the_checks(
    make_gguf: Callable[..., Path], path: Path, rng: np.random.Generator
) -> None:
    """Any header byte changed: the file opens and reads, or CheckpointError; nothing else."""
    tokens = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": [f"t{i}" for i in range(16)],
        "tokenizer.ggml.token_type": [1] * 16,
        "tokenizer.ggml.bos_token_id": 1,
    }
    tensors = {"blk.0.attn_q.weight": np.zeros((32, 32), np.float32)}
    whole = make_gguf(tensors, tokens).read_bytes()
    header_bytes = len(whole) - 16 * 32 * 4 - 32 * 32 * 4
    outcomes = {True: 0, False: 0}
    for _ in range(400):
        broken = bytearray(whole)
        for place in rng.integers(0, header_bytes, rng.integers(1, 4)):
            broken[place] = rng.integers(0, 256)
        path.write_bytes(broken)
        try:
            with open_checkpoint(path) as checkpoint:
                for name in checkpoint.tensors:
                    checkpoint.read(name)
                checkpoint.write_tokenizer(path.parent)
            outcomes[True] += 1
        except CheckpointError:
            outcomes[False] += 1
    assert min(outcomes.values()) > 0, "both happen, so the test can see each"
