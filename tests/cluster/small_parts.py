"""Parts hardly larger than the least that S3 takes: ten of them are quickly sent, and go by the same code."""

from qinglan.store import pulling, shelf, sources

PART = 6 << 20
PIECE = PART // 2


def use_small_parts() -> None:
    """In this process."""
    for module in (pulling, shelf, sources):
        module.PART = PART  # type: ignore[attr-defined]
    pulling.PIECE = PIECE
