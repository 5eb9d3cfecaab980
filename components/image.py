"""The images that stages run in: this repository in a locked environment, one folder of images/ each.

A release compiles with digests (QINGLAN_CPU_IMAGE=qinglan/cpu@sha256:..., as `make images` prints them): KFP's cache
takes a tag at its word.
"""

import os


def _image(name: str) -> str:
    return os.environ.get(f"QINGLAN_{name.upper()}_IMAGE") or f"qinglan/{name}:0.1.0"


CPU_IMAGE = _image("cpu")
"""What moves data, judges and releases; no torch in it."""

SFT_IMAGE = _image("sft")
"""ms-swift and DeepSpeed; the rewriter's base is made with it, and its students are evaluated with it."""

PPO_IMAGE = _image("ppo")
"""verl and vLLM, which cannot live with ms-swift."""

STYLE_IMAGE = _image("style")
"""transformers and TRL: the style model's stages."""
