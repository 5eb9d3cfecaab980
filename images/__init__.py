"""The container images: a lock each, one Containerfile, and what locks and builds them."""

from pathlib import Path

IMAGES = Path(__file__).parent
NAMES = ("cpu", "sft", "ppo", "serve", "style")
"""Images that a release is made of."""

WITH_COMPILER = ("ppo", "serve")
"""Images with vLLM, which compiles kernels' launchers when it runs."""

STAND_INS = "standins"
"""The folder of the images with stand-ins: a cluster on a laptop runs them, and no release names one."""

WITH_STAND_INS = {STAND_INS: "cpu", f"ppo-{STAND_INS}": "ppo"}
"""Each of them, and the image that it is built on: the second holds what plays verl's GPUs on a CPU."""
