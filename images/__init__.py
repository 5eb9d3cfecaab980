"""The container images: one Containerfile, a lock for each image, and the commands that lock and build them."""

from pathlib import Path

IMAGES = Path(__file__).parent
NAMES = ("cpu", "sft", "ppo", "serve", "style")
"""Images that a release is made of."""

WITH_COMPILER = ("ppo", "serve")
"""Images that keep a C compiler: Triton, which vLLM uses, compiles launchers of kernels at run time."""

STAND_INS = "standins"
"""Folder of the images with stand-ins, which only a cluster on a laptop runs."""

WITH_STAND_INS = {STAND_INS: "cpu", f"ppo-{STAND_INS}": "ppo"}
"""Images with stand-ins, by name, and the image below each; the second plays verl's GPUs on a CPU."""
