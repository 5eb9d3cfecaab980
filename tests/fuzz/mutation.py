"""Inputs for parsers: good ones, broken in the ways that break parsers."""

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

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


@st.composite
def mutated(draw: DrawFn, seeds: Sequence[bytes]) -> bytes:
    """One of the good inputs with a few cuts, repetitions, pieces of another one, and pieces with a meaning."""
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.sampled_from((0, 1, 2, 8, 64, 512))))
        kind = draw(st.sampled_from(("insert", "insert", "bytes", "cut", "repeat", "splice", "flip")))
        if kind == "insert":
            piece = draw(st.sampled_from(WORDS))
        elif kind == "bytes":
            piece = draw(st.binary(max_size=6))
        elif kind == "repeat":
            piece = data[start:end] * draw(st.sampled_from((2, 3, 50)))
        elif kind == "splice":
            other = draw(st.sampled_from(seeds))
            at = draw(st.integers(0, len(other)))
            piece = other[at : at + 64]
        elif kind == "flip":
            piece = bytes(byte ^ draw(st.sampled_from((1, 32, 128))) for byte in data[start:end][:8])
        else:
            piece = b""
        data = (data[:start] + piece + data[end:])[:LARGEST]
    return data
