"""Inputs for parsers: good ones, broken in the ways that break parsers."""

from collections.abc import Sequence
from random import Random

WORDS = [
    b"{", b"}", b"[", b"]", b'"', b":", b",", b"\\", b"\n", b"\0", b"\xff", b"\xed\xa0\x80", b"\\ud800", b"null",
    b"true", b"-1", b"0", b"1e999", b"NaN", b"Infinity", b"-0.0", b"99999999999999999999999", b"1" * 400, b"[" * 400,
    b'{"a":' * 200, b"&a ", b"*a ", b"<<: ", b"!!python/object:os.system ", b"---\n", b"? ", b"<x:", b"<!DOCTYPE a>",
    b"&lt;", b"../", b"/", b"file:///etc/passwd", b"<|im_start|>", b"<think>", b"</think>", b"{{", b"}}", b"{%",
    b"%}", b"{% for a in b %}", b"{% endfor %}", b"{% macro m(a) %}", b"{% set x = x + x %}", "三百".encode(),
    "٣Ⅲ½亿萬".encode(), "\u202e\u200b\ufeff".encode(), b"2026-11-25T00:00:00+23:59", b"9999-12-31T23:59:59-23:59",
]  # fmt: skip
"""Pieces with a meaning in one of the formats."""

LARGEST = 200_000


def mutated(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """The data with a few cuts, repetitions, pieces of a seed, and pieces with a meaning."""
    for _ in range(random.randint(1, 4)):
        start = random.randint(0, len(data))
        end = min(len(data), start + random.choice((0, 1, 2, 8, 64, 512)))
        kind = random.choice(("insert", "insert", "bytes", "cut", "repeat", "splice", "flip"))
        if kind == "insert":
            piece = random.choice(WORDS)
        elif kind == "bytes":
            piece = random.randbytes(random.randint(0, 6))
        elif kind == "repeat":
            piece = data[start:end] * random.choice((2, 3, 50))
        elif kind == "splice":
            other = random.choice(seeds)
            at = random.randint(0, len(other))
            piece = other[at : at + 64]
        elif kind == "flip":
            piece = bytes(byte ^ random.choice((1, 32, 128)) for byte in data[start:end][:8])
        else:
            piece = b""
        data = (data[:start] + piece + data[end:])[:LARGEST]
    return data
